"""From digests of candidates to CUDA kernels with prices, and from a plan's kernels to its library."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from korch_cli.codegen import cuda_headers
from korch_cli.core.artifact import CudaEntry, CudaJob, KernelResult
from korch_cli.core.errors import KorchError
from korch_cli.core.gpu import Image, Resources, capability_of
from korch_cli.core.kernel import KernelBody, Timing, TimingSource
from korch_cli.core.launch import CudaKernel, GeneratedKernel
from korch_cli.emit import (
    cuda_kernel_unit,
    cuda_library_headers,
    cuda_registration_unit,
    probe_model,
    save_model,
)
from korch_cli.measure.cuda import Roofline, measure_cuda_kernels
from korch_cli.pipeline.laboratory import Laboratory
from korch_cli.toolchain import BuildFailure, CudaCompiler, compile_images, link

_DOMAIN = "korch.probe"
_PROTOCOL = "cuda 1"
"""Part of every key: figures taken in another way are not comparable."""
_SECONDS_PER_KERNEL = 30.0


@dataclass(slots=True, kw_only=True)
class CudaLaboratory(Laboratory):
    """Compiles candidates for the GPU that times are estimated for, and prices them by its roofline.

    Attributes:
        nvrtc: compiles CUDA text.
        archs: that a library has cubins for; the first is that of the GPU.
        roofline: of the GPU.
    """

    nvrtc: CudaCompiler
    archs: tuple[str, ...]
    roofline: Roofline

    def resources(self, kernel: GeneratedKernel) -> Resources | None:
        """Return what the function of a kernel that needs most of something needs of it."""
        assert isinstance(kernel, CudaKernel)
        needs = list(self._image(kernel).resources.values())
        return Resources(
            max(need.registers for need in needs),
            max(need.spill_bytes for need in needs),
            max(need.shared_bytes for need in needs),
        )

    def environment(self) -> dict[str, str]:
        """Return what figures depend on, in words."""
        return {
            "machine": self.bench.identity,
            "compiler": self.bench.compiler.identity,
            "nvrtc": ".".join(map(str, self.nvrtc.version)),
            "archs": ",".join(self.archs),
        }

    def caveats(self, *, changed: bool) -> tuple[str, ...]:
        """Return what was estimated, and what was not checked."""
        times = f"Kernels' times are estimated for the {self.roofline.gpu.name} by a roofline model, ONNX Runtime's too"
        if self.bench.execution.runs_kernels:
            return (f"{times}; whole models were timed on the GPU.",)
        times = f"{times}; nothing was measured."
        return (times, self._checked()) if changed else (times,)

    def _checked(self) -> str:
        """What is known of an output whose kernels do not run here."""
        version = ".".join(map(str, self.nvrtc.version))
        loaded = "the library and the model" if self.bench.execution.registers else "the model, without the library"
        return (
            f"Checked: NVRTC {version} compiles every kernel for {', '.join(self.archs)}; ONNX Runtime loads {loaded}; "
            "the functions that stand for the kernels compute what the input does, on the CPU. "
            "Not checked: what the kernels compute on a GPU; there, korch verify IN OUT --target cuda does."
        )

    def made_with(self) -> dict[str, object]:
        """Return what a plan says of its target."""
        found: dict[str, object] = {"target": "cuda", "archs": list(self.archs)}
        if self.bench.estimated_for is not None:
            found["estimated_for"] = self.bench.estimated_for
        return found

    def ship(self, domain: str, kernels: Sequence[GeneratedKernel], comments: Mapping[str, str], library: Path) -> None:
        """Build the library of a plan, with images for every architecture. Raises KorchError."""
        units = {}
        every = [kernel for kernel in kernels if isinstance(kernel, CudaKernel)]
        images = self._compiled_images(every, (*self.archs, self._ptx))
        for kernel in every:
            own = tuple(_sound(images[kernel.name, arch]) for arch in (*self.archs, self._ptx))
            entry = CudaEntry(kernel, *self.types(kernel.digest), own)
            units[kernel.name] = cuda_kernel_unit(entry, comments.get(kernel.name, ""))
        units["registration"] = cuda_registration_unit(domain, [kernel.name for kernel in every])
        built = self._compiled(units, cuda_library_headers())
        parts: list[Path] = []
        for made in built.values():
            if isinstance(made, BuildFailure):
                raise KorchError(f"the kernel library cannot be built: {made.sentence}", where=made.name)
            parts.append(made)
        link(self.bench.compiler, parts, library)

    def _key(self, kernel: GeneratedKernel) -> str:
        parts = [_PROTOCOL, kernel.source, cuda_headers(), self.nvrtc.identity, self.archs[0], self.bench.origin]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def _experiments(
        self, todo: Sequence[tuple[KernelBody, GeneratedKernel]]
    ) -> Iterable[tuple[GeneratedKernel, KernelResult]]:
        kernels = list({kernel.name: kernel for _, kernel in todo if isinstance(kernel, CudaKernel)}.values())
        if not kernels:
            return
        self.progress.stage(f"Compiling {len(kernels)} kernels")
        images = self._compiled_images(kernels, self.archs[:1])
        sound: list[tuple[CudaKernel, Image]] = []
        for kernel in kernels:
            image = images[kernel.name, self.archs[0]]
            if isinstance(image, BuildFailure):
                yield kernel, KernelResult(kernel.name, None, None, f"It does not compile: {image.sentence}")
            else:
                sound.append((kernel, image))
        yield from self._priced(sound)

    def _priced(self, images: Sequence[tuple[CudaKernel, Image]]) -> Iterable[tuple[GeneratedKernel, KernelResult]]:
        """Estimate the times of compiled kernels."""
        for kernel, image in images:
            time_us = self.roofline.kernel_us(kernel, image.resources)
            timing = Timing(time_us, time_us, time_us, 0, TimingSource.ESTIMATED)
            yield kernel, KernelResult(kernel.name, timing, None, None)

    def _kept(self, _kernel: GeneratedKernel, result: KernelResult) -> KernelResult:
        """Estimates are not kept: nothing was measured, and images are found again."""
        return result

    @property
    def _ptx(self) -> str:
        """For GPUs that no cubin fits, from the oldest one on that there is one for."""
        return f"compute_{min(map(capability_of, self.archs))}"

    def _image(self, kernel: CudaKernel) -> Image:
        return _sound(self._compiled_images([kernel], self.archs[:1])[kernel.name, self.archs[0]])

    def _compiled_images(
        self, kernels: Sequence[CudaKernel], archs: Sequence[str]
    ) -> dict[tuple[str, str], Image | BuildFailure]:
        return compile_images(
            self.nvrtc,
            {kernel.name: kernel.source for kernel in kernels},
            cuda_headers(),
            archs,
            self.bench.store.objects,
            jobs=self.bench.jobs,
            progress=self.progress,
        )


@dataclass(slots=True, kw_only=True)
class MeasuringLaboratory(CudaLaboratory):
    """Checks and measures kernels on GPUs of this machine, from the very images that ship.

    Attributes:
        devices: numbers of the GPUs, which are of one kind.
    """

    devices: tuple[int, ...]

    def caveats(self, *, changed: bool) -> tuple[str, ...]:  # noqa: ARG002 - the same with and without kernels
        """Return what was estimated, though kernels were measured."""
        return (
            "Generated kernels were measured one by one; what ONNX Runtime's own kernels take was estimated by a "
            "roofline model, as it does not tell.",
        )

    def _kept(self, kernel: GeneratedKernel, result: KernelResult) -> KernelResult:
        return Laboratory._kept(self, kernel, result)

    def _priced(self, images: Sequence[tuple[CudaKernel, Image]]) -> Iterable[tuple[GeneratedKernel, KernelResult]]:
        jobs = [self._cuda_job(kernel, image) for kernel, image in images]
        kernels = {kernel.name: kernel for kernel, _ in images}
        where = f" on {len(self.devices)} GPUs" if len(self.devices) > 1 else ""
        self.progress.stage(f"Measuring {len(jobs)} kernels{where}")
        for result in measure_cuda_kernels(
            jobs, self.devices, seed=self.bench.seed, time_limit_s=_SECONDS_PER_KERNEL, progress=self.progress
        ):
            yield kernels[result.name], result

    def _cuda_job(self, kernel: CudaKernel, image: Image) -> CudaJob:
        body = self.cut(self.representatives[kernel.digest])
        proto, inputs = probe_model(body, kernel.name, _DOMAIN, opset=self.bench.opset, replicas=1)
        path = self.bench.folder / f"{kernel.name}.onnx"
        save_model(proto, self.bench.folder, path)
        _, outputs = self.types(kernel.digest)
        return CudaJob(
            kernel.name, path, image.path, kernel.launches, kernel.scratch, inputs, outputs, rtol=1e-4, atol=1e-5
        )


def _sound(image: Image | BuildFailure) -> Image:
    if isinstance(image, BuildFailure):
        raise KorchError(f"a kernel does not compile for every architecture: {image.sentence}", where=image.name)
    return image
