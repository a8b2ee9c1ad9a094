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
    _build_shared("stand_in.cpp", folder / "libcuda.so.1")
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
    model: Path,
    library: Path,
    feeds: Mapping[str, Array],
    driver: Driver | None,
    *,
    runs: int = 1,
    threads: int = 1,
    devices: Sequence[int] = (),
    current: int | None = None,
) -> dict[str, Array]:
    """Return the outputs of a model; with `devices`, of a session on each, all in one process.

    Args:
        model: the ONNX file.
        library: with its kernels.
        feeds: its inputs.
        driver: None for a machine without one.
        runs: of each thread.
        threads: that run it at the same time.
        devices: that sessions are on; none for one session on the first.
        current: the device whose context threads have made current themselves.

    Raises:
        SessionError: ONNX Runtime refuses something.
    """
    given = model.with_suffix(".npz")
    np.savez(given, **feeds)  # type: ignore[arg-type]
    environment = {**os.environ, **({} if driver is None else driver.environment())}
    if current is not None:
        environment["KORCH_SESSION_CURRENT"] = str(current)
    registered = library
    if devices:
        assert driver is not None
        registered = _build_shared("on_device.cpp", driver.folder / "on_device.so")
        environment["KORCH_ON_DEVICE_LIBRARY"] = str(library)
    command = [sys.executable, str(HERE / "session.py"), str(model), str(registered), str(given), str(runs)]
    command += map(str, (threads, *devices))
    done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, env=environment, check=False)
    if done.returncode == 3:
        raise SessionError(done.stderr.decode(errors="replace"))
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return dict(np.load(io.BytesIO(done.stdout)))


def _build_shared(source: str, target: Path) -> Path:
    if not target.exists():
        headers = target.parent / "headers"
        headers.mkdir(exist_ok=True)
        for name, text in cuda_library_headers().items():
            (headers / name).write_text(text, encoding="utf-8")
        flags = ["-std=c++17", "-O1", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-I", str(headers)]
        subprocess.run(["g++", *flags, str(HERE / source), "-o", str(target), "-ldl"], check=True, timeout=_TIMEOUT_S)
    return target
