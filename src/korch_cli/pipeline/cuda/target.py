"""The CUDA target: which architectures, which GPU, and what can be done with them on this machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from korch_cli.codegen import generate_cuda
from korch_cli.core.artifact import KernelResult
from korch_cli.core.errors import UsageError
from korch_cli.core.gpu import Gpu
from korch_cli.core.kernel import Candidate, KernelBody
from korch_cli.core.launch import GeneratedKernel
from korch_cli.core.machine import MachineLimits
from korch_cli.core.plan import Priced
from korch_cli.core.progress import Progress
from korch_cli.measure.cuda import Roofline, gpu_of, named_gpu
from korch_cli.pipeline.cuda.laboratory import CudaLaboratory
from korch_cli.pipeline.cuda.prices import estimated_ways
from korch_cli.pipeline.execution import Execution
from korch_cli.pipeline.laboratory import Bench
from korch_cli.pipeline.prepare import Runnable
from korch_cli.pipeline.settings import Settings
from korch_cli.pipeline.ways import Ways
from korch_cli.toolchain import CudaCompiler, find_nvrtc

_USUAL = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
"""What a library has cubins for where nobody says; as far as the compiler knows them."""


@dataclass(frozen=True, slots=True)
class CudaTarget:
    """A GPU that is not there: times are estimated.

    Attributes:
        bench: what estimates depend on.
        nvrtc: compiles CUDA text.
        archs: that a library has cubins for; the first is that of the GPU.
        roofline: of the GPU.
    """

    bench: Bench
    nvrtc: CudaCompiler
    archs: tuple[str, ...]
    roofline: Roofline

    def limits(self, progress: Progress) -> MachineLimits:  # noqa: ARG002 - nothing is measured
        """Return what no estimate goes below."""
        return self.roofline.limits()

    def vendor(self, ways: Ways, runnables: Mapping[str, Runnable], progress: Progress) -> tuple[Priced, ...]:
        """Return ONNX Runtime's own kernels with estimated prices."""
        progress.stage("Estimating ONNX Runtime's own kernels")
        return estimated_ways(ways, runnables, self.roofline, self.bench.folder)

    def laboratory(
        self,
        cut: Callable[[Candidate], KernelBody],
        representatives: Mapping[str, Candidate],
        progress: Progress,
        results: dict[str, list[tuple[GeneratedKernel, KernelResult]]] | None = None,
        rejected: Counter[str] | None = None,
    ) -> CudaLaboratory:
        """Return what generates kernels, prices them, and builds their library."""
        return CudaLaboratory(
            cut,
            representatives,
            self.bench,
            progress,
            results or {},
            rejected or Counter(),
            nvrtc=self.nvrtc,
            archs=self.archs,
            roofline=self.roofline,
        )


def cuda_target(settings: Settings, bench: Bench) -> CudaTarget:
    """Return the target for a GPU that is not there.

    Raises:
        MissingError: NVRTC is missing.
        UsageError: NVRTC does not know an architecture, or there are no figures of the GPU.
    """
    if settings.force_fusion:
        raise UsageError("--force-fusion is for --target cpu", hint="leave one of them out")
    nvrtc = find_nvrtc()
    archs, gpu = _chosen(settings, nvrtc)
    nvrtc.require(archs)
    estimated = replace(
        bench,
        compiler=bench.compiler.portable(),
        identity=f"{gpu.name}, estimated",
        estimated_for=gpu.name,
        generate=generate_cuda,
        # Without a device a library registers nothing, so that sessions with it run the functions.
        execution=Execution(runs_kernels=False),
    )
    return CudaTarget(estimated, nvrtc, archs, Roofline(gpu))


def _chosen(settings: Settings, nvrtc: CudaCompiler) -> tuple[tuple[str, ...], Gpu]:
    """Return the architectures, that of the GPU first, and the GPU."""
    usual = tuple(arch for arch in _USUAL if int(arch.removeprefix("sm_")) in nvrtc.capabilities)
    if settings.gpu is None:
        archs = settings.archs or usual
        return archs, gpu_of(archs[0])
    gpu = named_gpu(settings.gpu)
    others = (arch for arch in settings.archs or usual if arch != gpu.arch)
    return (gpu.arch, *others), gpu
