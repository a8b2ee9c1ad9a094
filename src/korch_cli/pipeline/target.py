"""What differs between the targets, in one place: the machine's limits, ONNX Runtime's prices, and the laboratory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from korch_cli.codegen import generate
from korch_cli.core.artifact import KernelResult
from korch_cli.core.errors import MissingError, UsageError
from korch_cli.core.kernel import Candidate, KernelBody
from korch_cli.core.launch import GeneratedKernel
from korch_cli.core.machine import MachineLimits
from korch_cli.core.model import Model
from korch_cli.core.plan import Priced
from korch_cli.core.processor import NATIVE
from korch_cli.core.progress import Progress
from korch_cli.measure import ProfileStore, calibrate, machine_identity, missing_features
from korch_cli.pipeline.cuda.target import GpuTools, cuda_target, find_gpu_tools
from korch_cli.pipeline.execution import CUDA
from korch_cli.pipeline.laboratory import Bench, Laboratory, probe_builder
from korch_cli.pipeline.prepare import Runnable
from korch_cli.pipeline.prices import priced_ways
from korch_cli.pipeline.settings import Settings
from korch_cli.pipeline.ways import Ways
from korch_cli.toolchain import Compiler, find_compiler

Results = dict[str, list[tuple[GeneratedKernel, KernelResult]]]


class Target(Protocol):
    """Where the optimised model is to run."""

    @property
    def bench(self) -> Bench:
        """What measurements depend on."""

    def limits(self, progress: Progress) -> MachineLimits:
        """Return what no kernel beats."""

    def vendor(self, ways: Ways, runnables: Mapping[str, Runnable], progress: Progress) -> tuple[Priced, ...]:
        """Return ONNX Runtime's own kernels with their prices; `runnables` are the models of the ways, by name."""

    def laboratory(
        self,
        cut: Callable[[Candidate], KernelBody],
        representatives: Mapping[str, Candidate],
        progress: Progress,
        results: Results | None = None,
        rejected: Counter[str] | None = None,
    ) -> Laboratory:
        """Return what generates kernels, prices them, and builds their library."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What a run builds with. It is looked for before a model is loaded, which may take long.

    Attributes:
        compiler: for C++.
        cuda: for a GPU; None if the target is the processor.
    """

    compiler: Compiler
    cuda: GpuTools | None


def find_tools(settings: Settings) -> Tools:
    """Return what a run for the target that is asked for builds with.

    Raises:
        MissingError: a compiler is missing.
        UsageError: an architecture or a GPU that is asked for is not known, or flags of another target are given.
    """
    if settings.target == CUDA:
        return Tools(cuda=find_gpu_tools(settings), compiler=_compiler(settings))
    if settings.archs or settings.gpu is not None:
        raise UsageError("--arch and --gpu are for --target cuda", hint="add --target cuda, or leave them out")
    return Tools(cuda=None, compiler=_compiler(settings))


def make_target(settings: Settings, tools: Tools, store: ProfileStore, scratch: Path, model: Model) -> Target:
    """Return the target of a run on a model."""
    bench = Bench(
        compiler=tools.compiler,
        store=store,
        identity=machine_identity(settings.threads),
        folder=scratch,
        threads=settings.threads,
        jobs=settings.jobs,
        seed=settings.seed,
        opset=model.opsets.get("", 1),
        generate=generate,
    )
    return _Cpu(bench) if tools.cuda is None else cuda_target(tools.cuda, bench)


def _compiler(settings: Settings) -> Compiler:
    """Return the compiler. Raises MissingError: there is none, or what it would build does not run on this machine."""
    compiler = find_compiler(settings.compiler, settings.processor or NATIVE)
    missing = missing_features(compiler.features)
    if missing:
        raise MissingError(
            f"this machine cannot run kernels for {compiler.processor}: it has no {', '.join(missing)}",
            hint="kernels are timed and compared where they are built: run korch on such a machine, or change --cpu",
        )
    return compiler


@dataclass(frozen=True, slots=True)
class _Cpu:
    """This machine's processor."""

    bench: Bench

    def limits(self, progress: Progress) -> MachineLimits:
        progress.stage("Calibrating the machine")
        bench = self.bench
        return calibrate(bench.threads, bench.compiler.identity, bench.store, probe_builder(bench, progress))

    def vendor(self, ways: Ways, runnables: Mapping[str, Runnable], progress: Progress) -> tuple[Priced, ...]:
        progress.stage("Profiling ONNX Runtime on the model")
        return priced_ways(ways, runnables, self.bench)

    def laboratory(
        self,
        cut: Callable[[Candidate], KernelBody],
        representatives: Mapping[str, Candidate],
        progress: Progress,
        results: Results | None = None,
        rejected: Counter[str] | None = None,
    ) -> Laboratory:
        return Laboratory(cut, representatives, self.bench, progress, results or {}, rejected or Counter())
