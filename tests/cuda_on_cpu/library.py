"""Libraries of CUDA kernels as they ship, run in ONNX Runtime on a machine without a GPU."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from korch_cli.codegen import cuda_headers
from korch_cli.core.artifact import CudaEntry
from korch_cli.core.gpu import Image
from korch_cli.core.launch import CudaKernel
from korch_cli.core.progress import Silent
from korch_cli.core.types import Array
from korch_cli.emit import cuda_kernel_unit, cuda_library_headers, cuda_registration_unit
from korch_cli.toolchain import CudaCompiler, compile_images, compile_units, find_compiler, link
from tests.cuda_on_cpu.execution import HERE

DOMAIN = "korch.3f0a12bc"
ON_CPU = '#define KORCH_CUDA_PROVIDER "CPUExecutionProvider"\n'
"""Makes a registration for sessions on the CPU: the only difference to what ships."""
_TIMEOUT_S = 100


@dataclass(frozen=True, slots=True)
class Driver:
    """The stand-in for libcuda.so.1.

    Attributes:
        folder: where it lies.
        kernels: the library that runs the kernels' text.
        log: where its calls are written down.
        settings: further variables of stand_in.cpp.
    """

    folder: Path
    kernels: Path
    log: Path
    settings: Mapping[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """The variables that make a process use it."""
        return {
            "LD_LIBRARY_PATH": str(self.folder),
            "KORCH_STAND_IN_KERNELS": str(self.kernels),
            "KORCH_STAND_IN_LOG": str(self.log),
            **self.settings,
        }

    def calls(self) -> list[str]:
        """What was called so far, in order; `function argument`."""
        return [line.strip() for line in self.log.read_text().splitlines()] if self.log.exists() else []


class SessionError(Exception):
    """ONNX Runtime refuses the library or the model; the message is its own."""


def build_driver(folder: Path) -> Path:
    """Return the folder of the stand-in."""
    made = folder / "libcuda.so.1"
    if not made.exists():
        flags = ["-std=c++17", "-O1", "-g", "-fPIC", "-shared", "-fvisibility=hidden"]
        command = ["g++", *flags, str(HERE / "stand_in.cpp"), "-o", str(made), "-ldl"]
        subprocess.run(command, check=True, timeout=_TIMEOUT_S)
    return folder


def written_images(kernel: CudaKernel, folder: Path, archs: Sequence[str]) -> tuple[Image, ...]:
    """Return images without code, for a driver that looks for the functions' names alone, where NVRTC is not there."""
    images = []
    for arch in archs:
        path = folder / f"{kernel.name}.{arch}.ptx"
        entries = "\n".join(f".visible .entry {launch.function}(" for launch in kernel.launches)
        path.write_text(f".version 8.0\n.target {arch.replace('compute', 'sm')}\n{entries}\n", encoding="utf-8")
        images.append(Image(arch, path, {}))
    return tuple(images)


def compiled_images(nvrtc: CudaCompiler, kernel: CudaKernel, folder: Path, archs: Sequence[str]) -> tuple[Image, ...]:
    """Return a kernel's images."""
    units = {kernel.name: kernel.source}
    built = compile_images(nvrtc, units, cuda_headers(), archs, folder, jobs=1, progress=Silent())
    images = tuple(image for image in built.values() if isinstance(image, Image))
    assert len(images) == len(archs), built
    return images


def build_library(entries: Sequence[CudaEntry], path: Path, *, opening: str = ON_CPU) -> Path:
    """Link a library of `entries`."""
    compiler = find_compiler().for_any_processor()
    units = {entry.kernel.name: cuda_kernel_unit(entry, f"Computes {entry.kernel.name}.") for entry in entries}
    units["registration"] = opening + cuda_registration_unit(DOMAIN, [entry.kernel.name for entry in entries])
    built = compile_units(compiler, units, cuda_library_headers(), path.parent, jobs=2, progress=Silent())
    objects = [made for made in built.values() if isinstance(made, Path)]
    assert len(objects) == len(units), built
    link(compiler, objects, path)
    return path


def run_session(
    model: Path, library: Path, feeds: Mapping[str, Array], driver: Driver | None, *, runs: int = 1, threads: int = 1
) -> dict[str, Array]:
    """Return the outputs of a model. Raises SessionError."""
    given = model.with_suffix(".npz")
    np.savez(given, **feeds)  # type: ignore[arg-type]
    command = [sys.executable, str(HERE / "session.py"), str(model), str(library), str(given), str(runs), str(threads)]
    environment = {**os.environ, **({} if driver is None else driver.environment())}
    done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, env=environment, check=False)
    if done.returncode == 3:
        raise SessionError(done.stderr.decode(errors="replace"))
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return dict(np.load(io.BytesIO(done.stdout)))
