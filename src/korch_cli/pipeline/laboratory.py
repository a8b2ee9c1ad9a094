"""From digests of candidates to measured kernels: codegen, toolchain, emit and measure in one place."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from korch_cli.codegen import headers
from korch_cli.core.artifact import KernelJob, KernelResult, LibraryEntry
from korch_cli.core.errors import KorchError, Refusal
from korch_cli.core.gpu import Resources
from korch_cli.core.kernel import Candidate, Kernel, KernelBody
from korch_cli.core.launch import GeneratedKernel
from korch_cli.core.processor import NATIVE
from korch_cli.core.progress import Progress
from korch_cli.core.types import TensorType
from korch_cli.emit import can_be_function, empty_model, ort_headers, probe_model, registration_unit, save_model
from korch_cli.measure import ProfileStore, Worker, measure_kernels
from korch_cli.pipeline.execution import ON_CPU, Execution
from korch_cli.toolchain import BuildFailure, Compiler, compile_units, link

_DOMAIN = "korch.probe"
_PROTOCOL = 2
"""Part of every key: figures taken in another way are not comparable."""
_REPLICA_BYTES = 4 << 20
_MAX_REPLICAS = 16
_SECONDS_PER_KERNEL = 20.0


@dataclass(frozen=True, slots=True)
class Bench:
    """What every measurement depends on.

    Attributes:
        compiler: builds the kernels.
        store: where figures are kept.
        identity: of the machine, see `measure.machine_identity`.
        folder: for temporary files.
        threads: of ONNX Runtime's pool.
        jobs: compilers that run at the same time.
        seed: of the operands.
        opset: of the model-local functions that kernels are compared with.
        generate: makes the kernels of a body that are worth measuring; raises Refusal.
        execution: how models run on this machine.
        estimated_for: the machine that all times are estimated for; None where they are measured on this one.
    """

    compiler: Compiler
    store: ProfileStore
    identity: str
    folder: Path
    threads: int
    jobs: int
    seed: int
    opset: int
    generate: Callable[[KernelBody], tuple[GeneratedKernel, ...]]
    execution: Execution = ON_CPU
    estimated_for: str | None = None

    @property
    def origin(self) -> str:
        """The machine and the compiler: what times of kernels depend on, beside their text."""
        return f"{self.identity}, {self.compiler.identity}"


@dataclass(slots=True)
class Laboratory:
    """Measures candidates and remembers which kernel is the best for each.

    Attributes:
        cut: cuts a candidate out of the whole graph.
        representatives: for each digest one candidate that has it.
        bench: what measurements depend on.
        progress: told of every kernel.
        results: for each digest, the generated kernels with what measuring them found.
        rejected: how many candidates were refused or failed, by reason.
        measured: kernels measured in this run.
        remembered: kernels whose figures came from the store.
        worker: the process that measures; None for a process of its own each time.
    """

    cut: Callable[[Candidate], KernelBody]
    representatives: Mapping[str, Candidate]
    bench: Bench
    progress: Progress
    results: dict[str, list[tuple[GeneratedKernel, KernelResult]]] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)
    measured: int = 0
    remembered: int = 0
    worker: Worker | None = None

    def measure(self, digests: Sequence[str], failed: Mapping[str, str] = MappingProxyType({})) -> dict[str, float]:
        """Return the time of the best sound kernel of each digest in microseconds, infinite where there is none.

        Args:
            digests: of candidates, all of which have a representative.
            failed: kernels that are not tried again, by name: what went wrong before, though the store has no figure.
        """
        todo: list[tuple[KernelBody, GeneratedKernel]] = []
        for digest in digests:
            self.results[digest] = []
            body = self.cut(self.representatives[digest])
            for kernel in self._generated(body):
                known = self.bench.store.kernel(self._key(kernel))
                if known is None and kernel.name in failed:
                    known = KernelResult(kernel.name, None, None, failed[kernel.name])
                if known is None:
                    todo.append((body, kernel))
                else:
                    self.remembered += 1
                    self.results[digest].append((kernel, known))
        for kernel, result in self._experiments(todo):
            self.measured += 1
            self.results[kernel.digest].append((kernel, self._kept(kernel, result)))
        self._count_failures(digests)
        return {digest: self.cost(digest) for digest in digests}

    def failures(self) -> dict[str, str]:
        """Return what went wrong with kernels that the store has no figure of, by name."""
        results = (r for found in self.results.values() for _, r in found)
        return {r.name: r.failure for r in results if r.failure is not None and not _is_lasting(r)}

    def stamp(self, digest: str) -> str:
        """Return what the fastest sound kernel of a measured digest is known by: its text, compiler and machine."""
        return self._key(self.best(digest)[0])

    def stored(self, digest: str) -> tuple[int, int]:
        """Return how many kernels a candidate has, and of how many of them the store has figures."""
        kernels = self._generated(self.cut(self.representatives[digest]))
        return len(kernels), sum(self.bench.store.kernel(self._key(kernel)) is not None for kernel in kernels)

    def cost(self, digest: str) -> float:
        """Return the time of the best sound kernel of a measured digest in microseconds, infinite without one."""
        return min((r.timing.low_us for _, r in self.results[digest] if r.timing is not None), default=math.inf)

    def best(self, digest: str) -> tuple[GeneratedKernel, KernelResult]:
        """Return the fastest sound kernel of a digest that `measure` gave a finite time."""
        sound = [(k, r) for k, r in self.results[digest] if r.timing is not None]
        return min(sound, key=lambda pair: (pair[1].timing.low_us if pair[1].timing else math.inf, pair[0].name))

    def types(self, digest: str) -> tuple[tuple[TensorType, ...], tuple[TensorType, ...]]:
        """Return the types of a candidate's operands and results."""
        graph = self.cut(self.representatives[digest]).graph
        return tuple(v.type for v in graph.inputs()), tuple(graph.values[v].type for v in graph.outputs)

    def resources(self, kernel: GeneratedKernel) -> Resources | None:  # noqa: ARG002 - not of the CPU's
        """Return what the functions of a kernel need at most; None where that is not known."""
        return None

    def environment(self) -> dict[str, str]:
        """Return what figures depend on, in words."""
        return {
            "machine": self.bench.identity,
            "compiler": self.bench.compiler.identity,
            "cpu": self.bench.compiler.processor,
            "threads": str(self.bench.threads),
        }

    def caveats(self, *, changed: bool) -> tuple[str, ...]:  # noqa: ARG002 - nothing to say of the CPU
        """Return what was not checked, and what figures are not, as sentences; `changed`: the output has kernels."""
        return ()

    def made_with(self) -> dict[str, object]:
        """Return what a plan says of the target that it was made for; nothing for the processor at hand."""
        processor = self.bench.compiler.processor
        return {} if processor == NATIVE else {"cpu": processor}

    def ship(self, domain: str, kernels: Sequence[GeneratedKernel], comments: Mapping[str, str], library: Path) -> None:
        """Build the library of a plan. Raises KorchError."""
        self.build(domain, [self._entry(kernel) for kernel in kernels], comments, None, library)

    def _entry(self, kernel: GeneratedKernel) -> LibraryEntry:
        assert isinstance(kernel, Kernel)
        return LibraryEntry(kernel, *self.types(kernel.digest))

    def _generated(self, body: KernelBody) -> tuple[GeneratedKernel, ...]:
        try:
            unsayable = can_be_function(body, self.bench.opset)
            if unsayable is not None:
                raise Refusal(unsayable)
            return self.bench.generate(body)
        except Refusal as refusal:
            self.rejected[refusal.sentence] += 1
            return ()

    def _count_failures(self, digests: Sequence[str]) -> None:
        for digest in digests:
            for _, result in self.results[digest]:
                if result.failure is not None:
                    self.rejected[_kind_of(result.failure)] += 1

    def _kept(self, kernel: GeneratedKernel, result: KernelResult) -> KernelResult:
        """Keep a result that lasts; return the one that counts, because another run may have been faster."""
        if not _is_lasting(result):
            return result
        return self.bench.store.keep_kernel(self._key(kernel), result, origin=self.bench.origin)

    def _key(self, kernel: GeneratedKernel) -> str:
        parts = [_PROTOCOL, kernel.source, headers(), self.bench.origin]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def _experiments(
        self, todo: Sequence[tuple[KernelBody, GeneratedKernel]]
    ) -> Iterable[tuple[GeneratedKernel, KernelResult]]:
        """Build all kernels into one library and measure them, one after the other."""
        if not todo:
            return
        kernels = {kernel.name: kernel for _, kernel in todo}
        self.progress.stage(f"Compiling {len(kernels)} kernels")
        objects = self._compiled({name: kernel.source for name, kernel in kernels.items()}, headers())
        built = [(body, kernel) for body, kernel in todo if isinstance(objects[kernel.name], Path)]
        for name, failure in objects.items():
            if isinstance(failure, BuildFailure):
                yield kernels[name], KernelResult(name, None, None, f"It does not compile: {failure.sentence}")
        if not built:
            return
        library = self._linked(built, objects)
        jobs = [self._job(body, kernel, library) for body, kernel in built]
        self.progress.stage(f"Measuring {len(jobs)} kernels")
        baseline = self.bench.folder / "empty.onnx"
        save_model(empty_model(), self.bench.folder, baseline)
        for result in measure_kernels(
            jobs,
            baseline=baseline,
            threads=self.bench.threads,
            seed=self.bench.seed,
            time_limit_s=_SECONDS_PER_KERNEL,
            progress=self.progress,
            worker=self.worker,
        ):
            yield kernels[result.name], result

    def _compiled(self, units: Mapping[str, str], included: Mapping[str, str]) -> dict[str, Path | BuildFailure]:
        return compile_units(
            self.bench.compiler,
            units,
            included,
            self.bench.store.objects,
            jobs=self.bench.jobs,
            progress=self.progress,
        )

    def _linked(
        self, built: Sequence[tuple[KernelBody, GeneratedKernel]], objects: Mapping[str, Path | BuildFailure]
    ) -> Path:
        entries = [self._entry(kernel) for _, kernel in built]
        library = self.bench.folder / f"probe{self.measured}.so"
        self.build(_DOMAIN, entries, {}, objects, library)
        return library

    def build(
        self,
        domain: str,
        entries: Sequence[LibraryEntry],
        comments: Mapping[str, str],
        objects: Mapping[str, Path | BuildFailure] | None,
        library: Path,
    ) -> None:
        """Link a library of `entries`; kernels are compiled, or found among the compiled ones, if `objects` is None."""
        if objects is None:
            objects = self._compiled({e.kernel.name: e.kernel.source for e in entries}, headers())
        registration = compile_registration(
            self.bench.compiler, domain, entries, comments, self.bench.store.objects, self.progress
        )
        parts: list[Path] = []
        for built in (registration, *(objects[e.kernel.name] for e in entries)):
            if isinstance(built, BuildFailure):
                raise KorchError(f"the kernel library cannot be built: {built.sentence}", where=built.name)
            parts.append(built)
        link(self.bench.compiler, parts, library)

    def _job(self, body: KernelBody, kernel: GeneratedKernel, library: Path) -> KernelJob:
        entry = self._entry(kernel)
        size_bytes = sum(t.size_bytes for t in (*entry.inputs, *entry.outputs))
        replicas = max(2, min(_MAX_REPLICAS, _REPLICA_BYTES // max(1, size_bytes)))
        proto, inputs = probe_model(body, kernel.name, _DOMAIN, opset=self.bench.opset, replicas=replicas)
        path = self.bench.folder / f"{kernel.name}.onnx"
        save_model(proto, self.bench.folder, path)
        return KernelJob(body.digest, kernel.name, path, _DOMAIN, replicas, library, inputs, rtol=1e-4, atol=1e-5)


def compile_registration(
    compiler: Compiler,
    domain: str,
    entries: Sequence[LibraryEntry],
    comments: Mapping[str, str],
    objects: Path,
    progress: Progress,
) -> Path | BuildFailure:
    """Compile the unit that registers `entries`, which finds out on any processor whether the kernels can run there."""
    text = registration_unit(domain, entries, comments, processor=compiler.processor, features=compiler.features)
    units = {"registration": text}
    anywhere = compiler.for_any_processor()
    return compile_units(anywhere, units, ort_headers(), objects, jobs=1, progress=progress)["registration"]


def _is_lasting(result: KernelResult) -> bool:
    """Whether another run would find the same: a full disk or a machine that was too busy is no fault of the kernel."""
    return result.failure is None or result.failure.startswith(("It computes", "It returns"))


def _kind_of(failure: str) -> str:
    """The first clause of a failure, so that failures of one kind are counted together."""
    return failure.split(":", maxsplit=1)[0]


def probe_builder(bench: Bench, progress: Progress) -> Callable[[str, tuple[str, ...]], Path]:
    """Return a function that makes a shared library of C++ text, for calibrating the machine."""

    def build(text: str, exports: tuple[str, ...]) -> Path:
        cache = bench.store.objects
        built = compile_units(bench.compiler, {"limits": text}, {}, cache, jobs=1, progress=progress)["limits"]
        if isinstance(built, BuildFailure):
            raise KorchError(f"the calibration does not compile: {built.sentence}")
        library = bench.folder / "limits.so"
        link(bench.compiler, [built], library, exports=exports)
        return library

    return build
