"""The CUDA target: which architectures, which GPU, and what can be done with them on this machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from korch_cli.codegen import generate_cuda
from korch_cli.core.artifact import KernelResult
from korch_cli.core.errors import MissingError, UsageError
from korch_cli.core.gpu import Gpu, capability_of
from korch_cli.core.kernel import Candidate, KernelBody
from korch_cli.core.launch import GeneratedKernel
from korch_cli.core.machine import MachineLimits
from korch_cli.core.plan import Priced
from korch_cli.core.progress import Progress
from korch_cli.measure.cuda import Roofline, can_measure, gpu_of, known_gpus, named_gpu
from korch_cli.pipeline.cuda.laboratory import CudaLaboratory, MeasuringLaboratory
from korch_cli.pipeline.cuda.prices import estimated_ways
from korch_cli.pipeline.execution import Execution
from korch_cli.pipeline.laboratory import Bench
from korch_cli.pipeline.prepare import Runnable
from korch_cli.pipeline.settings import Settings
from korch_cli.pipeline.ways import Ways
from korch_cli.toolchain import CudaCompiler, find_nvrtc
from korch_cli.verify import CUDA_PROVIDER, CudaDriver, Device, find_driver, require_cuda

_USUAL = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
"""What a library has cubins for where nobody says; as far as the compiler knows them."""


@dataclass(frozen=True, slots=True)
class GpuTools:
    """What is asked for and what is there, before a model is looked at.

    Attributes:
        nvrtc: compiles CUDA text.
        driver: None where there is no driver or no GPU.
        archs: to compile for; the first is that of the GPU.
        gpu: that times are for.
        is_named: whether the GPU was asked for by name, so that it is not the one of this machine.
    """

    nvrtc: CudaCompiler
    driver: CudaDriver | None
    archs: tuple[str, ...]
    gpu: Gpu
    is_named: bool

    @property
    def devices(self) -> tuple[int, ...]:
        """The numbers of the GPU, if it is the first one of this machine, and of those like it."""
        here = self.driver.devices if self.driver is not None and not self.is_named else ()
        if not here or self.archs[0] != f"sm_{here[0].capability}":
            return ()
        return tuple(number for number, device in enumerate(here) if device == here[0])


@dataclass(frozen=True, slots=True)
class CudaTarget:
    """A GPU, be it here or not.

    Attributes:
        bench: what estimates depend on.
        nvrtc: compiles CUDA text.
        archs: that a library has cubins for; the first is that of the GPU.
        roofline: of the GPU; ONNX Runtime's own kernels are always priced by it.
        devices: numbers of the GPUs of this machine that generated kernels are measured on; none where they are not.
    """

    bench: Bench
    nvrtc: CudaCompiler
    archs: tuple[str, ...]
    roofline: Roofline
    devices: tuple[int, ...]

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
        kind = partial(MeasuringLaboratory, devices=self.devices) if self.devices else CudaLaboratory
        return kind(
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


def find_gpu_tools(settings: Settings) -> GpuTools:
    """Return the GPU of this machine if there is one and no other one is asked for, and what compiles for it.

    Raises:
        MissingError: NVRTC is missing.
        UsageError: flags of another target are given, NVRTC does not know an architecture, or there are no figures of
            the GPU.
    """
    for flag, is_given in (("--force-fusion", settings.force_fusion), ("--cpu", settings.processor is not None)):
        if is_given:
            raise UsageError(f"{flag} is for --target cpu", hint="leave one of them out")
    nvrtc = find_nvrtc()
    driver = _driver()
    archs, gpu = _chosen(settings, nvrtc, driver)
    nvrtc.require(archs)
    return GpuTools(nvrtc, driver, archs, gpu, settings.gpu is not None)


def cuda_target(tools: GpuTools, bench: Bench) -> CudaTarget:
    """Return the target that a GPU is, be it here or not."""
    gpu = tools.gpu
    devices = tools.devices if can_measure() else ()
    word = "measured" if devices else "estimated"
    chosen = replace(
        bench,
        compiler=bench.compiler.for_any_processor(),
        identity=f"{gpu.name}, {word}",
        estimated_for=None if devices else gpu.name,
        generate=generate_cuda,
        execution=_execution(is_here=bool(tools.devices), has_driver=tools.driver is not None),
    )
    return CudaTarget(chosen, tools.nvrtc, tools.archs, Roofline(gpu), devices)


def _driver() -> CudaDriver | None:
    try:
        return find_driver()
    except MissingError:
        return None


def _execution(*, is_here: bool, has_driver: bool) -> Execution:
    """Return what ONNX Runtime can do here with a library for a GPU, which is here or not."""
    if not has_driver:
        # Without a device the library registers nothing, so that sessions with it run the functions.
        return Execution(runs_kernels=False)
    if not is_here:
        return Execution(registers=False, runs_kernels=False)
    try:
        require_cuda()
    except MissingError:
        return Execution(registers=False, runs_kernels=False)
    return Execution(provider=CUDA_PROVIDER)


def _chosen(settings: Settings, nvrtc: CudaCompiler, driver: CudaDriver | None) -> tuple[tuple[str, ...], Gpu]:
    """Return the architectures, that of the GPU first, and the GPU.

    Asked for by name, or that of this machine, or the one that stands for the first architecture.
    """
    usual = tuple(arch for arch in _USUAL if capability_of(arch) in nvrtc.capabilities)
    if settings.gpu is not None:
        gpu = named_gpu(settings.gpu)
        return _first(gpu.arch, settings.archs or usual), gpu
    if driver is not None:
        here = driver.devices[0]
        arch = f"sm_{here.capability}"
        if not settings.archs or arch in settings.archs:
            return _first(arch, settings.archs), _described(here)
    archs = settings.archs or usual
    return archs, gpu_of(archs[0])


def _first(arch: str, others: tuple[str, ...]) -> tuple[str, ...]:
    return (arch, *(other for other in others if other != arch))


def _described(device: Device) -> Gpu:
    """Return the figures of a GPU that is here, by its name, or those of one of its architecture under that name."""
    for gpu in known_gpus():
        if all(word in device.name.replace("-", " ").split() for word in gpu.name.split("-")):
            return gpu
    return replace(gpu_of(f"sm_{device.capability}"), name=device.name)
