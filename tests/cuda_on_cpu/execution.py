"""Compiles generated CUDA text with g++ and runs it on numpy arrays, in a process of its own, under sanitizers."""

from __future__ import annotations

import hashlib
import math
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path

import numpy as np

from korch_cli.codegen import cuda_headers
from korch_cli.core.launch import CudaKernel
from korch_cli.core.types import Array, TensorType

HERE = Path(__file__).parent
_FLAGS = ("-std=c++17", "-g", "-fPIC", "-w", "-fvisibility=hidden")
_TIMEOUT_S = 300


class Sanitizer(Enum):
    """What a build watches."""

    NOTHING = ""
    ADDRESS = "address"
    """Bounds, alignment, overflows: AddressSanitizer and UndefinedBehaviorSanitizer."""
    THREAD = "thread"
    """Barriers: ThreadSanitizer."""


_WATCHED = {
    Sanitizer.NOTHING: (),
    Sanitizer.ADDRESS: ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    Sanitizer.THREAD: ("-fsanitize=thread",),
}
_DEFINED = {
    Sanitizer.NOTHING: (),
    Sanitizer.ADDRESS: ("-DCUDA_ON_CPU_ADDRESS=1",),
    Sanitizer.THREAD: ("-DCUDA_ON_CPU_THREAD=1",),
}


class FaultError(Exception):
    """A kernel did what no kernel may do; the message is what the sanitizer, or the machine, says of it."""


def build(
    kernels: Sequence[CudaKernel],
    folder: Path,
    sanitizer: Sanitizer = Sanitizer.NOTHING,
    headers: Mapping[str, str] | None = None,
) -> Path:
    """Return a library that exports `cuda_on_cpu_launch_FUNCTION` for each function that `kernels` launch.

    What is already in `folder` from earlier builds is used again; other `headers` than the usual ones need another
    folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (headers or cuda_headers()).items():
        (folder / name).write_text(text, encoding="utf-8")
    runtime = folder / f"cuda_on_cpu_{sanitizer.name}.o"
    if not runtime.exists():
        _compile(HERE / "cuda_on_cpu.cpp", runtime, ("-O2", *_DEFINED[sanitizer]))
        launcher = ("-rdynamic", "-ldl", "-O1", *_WATCHED[sanitizer])
        _run(["g++", *_FLAGS, str(HERE / "launcher.cpp"), "-o", str(_launcher(folder, sanitizer)), *launcher])
    with ThreadPoolExecutor(2) as pool:
        different = {kernel.source: kernel for kernel in kernels}.values()
        objects = list(pool.map(lambda kernel: _object(kernel, folder, sanitizer), different))
    joined = hashlib.sha256("\n".join(sorted(path.name for path in objects)).encode()).hexdigest()[:16]
    library = folder / f"{joined}_{sanitizer.name}.so"
    if not library.exists():
        _run(["g++", "-shared", *_WATCHED[sanitizer], *map(str, objects), str(runtime), "-o", str(library)])
    return library


def execute(
    library: Path,
    kernel: CudaKernel,
    inputs: Sequence[Array],
    outputs: Sequence[TensorType],
    order: str = "forward",
) -> list[Array]:
    """Run the launches of a kernel; `order` as in cuda_on_cpu.cpp.

    Raises:
        FaultError: a sanitizer reported something, the threads came to a standstill, or a GPU would refuse a launch.
    """
    _check_bounds(kernel)
    sanitizer = Sanitizer[library.stem.rsplit("_", 1)[1]]
    sizes = [typed.size_bytes for typed in outputs]
    lines = [f"buffer {array.nbytes} given" for array in inputs]
    lines += [f"buffer {size} fresh" for size in [*sizes, *kernel.scratch]]
    first = {"in": 0, "out": len(inputs), "scratch": len(inputs) + len(outputs)}
    for launch in kernel.launches:
        extents = [*launch.grid, *launch.block, launch.shared_bytes]
        numbers = [first[kind] + number for kind, number in launch.arguments]
        lines.append(" ".join(map(str, ["launch", launch.function, *extents, len(numbers), *numbers])))
    job = "\n".join([*lines, "data\n"]).encode() + b"".join(np.ascontiguousarray(a).tobytes() for a in inputs)
    command = [str(_launcher(library.parent, sanitizer)), str(library)]
    if sanitizer is Sanitizer.THREAD and (setarch := shutil.which("setarch")):
        # The thread sanitizer of older compilers starts only where addresses are not random.
        command = [setarch, "-R", *command]
    options = {"CUDA_ON_CPU_ORDER": order, "ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "halt_on_error=1"}
    done = subprocess.run(
        command, input=job, capture_output=True, timeout=_TIMEOUT_S, env={**os.environ, **options}, check=False
    )
    if done.returncode:
        raise FaultError(f"{done.stderr.decode(errors='replace')[:6000]}\nstatus {done.returncode}")
    results, at = [], 0
    for typed in outputs:
        data = done.stdout[at : at + typed.size_bytes]
        results.append(np.frombuffer(data, typed.dtype.numpy).reshape(typed.shape))
        at += typed.size_bytes
    return results


def _check_bounds(kernel: CudaKernel) -> None:
    """Refuse blocks that are larger than the function was compiled for, as the driver does."""
    for launch in kernel.launches:
        bound = re.search(rf"__launch_bounds__\((\d+)\)\s+{launch.function}\(", kernel.source)
        if bound and math.prod(launch.block) > int(bound[1]):
            raise FaultError(f"{launch.function}: blocks of {math.prod(launch.block)} threads, compiled for {bound[1]}")


def _launcher(folder: Path, sanitizer: Sanitizer) -> Path:
    return folder / f"launcher_{sanitizer.name}"


def _object(kernel: CudaKernel, folder: Path, sanitizer: Sanitizer) -> Path:
    digest = hashlib.sha256(kernel.source.encode()).hexdigest()[:16]
    path = folder / f"{digest}_{sanitizer.name}.o"
    if path.exists():
        return path
    exports = "\n".join(f"CUDA_ON_CPU_EXPORT({launch.function})" for launch in kernel.launches)
    section = f"shared_{digest}"
    text = folder / f"{digest}_{sanitizer.name}.cpp"
    opening = f'#define CUDA_SHARED_SECTION {section}\n#include "cuda_on_cpu.h"\n#line 1 "{kernel.name}.cu"'
    text.write_text(f"{opening}\n{kernel.source}\n{exports}\n", encoding="utf-8")
    watched = [*_WATCHED[sanitizer]]
    if sanitizer is Sanitizer.ADDRESS:
        watched.append(f"-fsanitize-sections={section}")
    _compile(text, path, ("-O1", *watched))
    return path


def _compile(source: Path, target: Path, flags: Sequence[str]) -> None:
    unfinished = target.with_name(f"{os.getpid()}_{target.name}")
    _run(["g++", *_FLAGS, *flags, "-I", str(HERE), "-I", str(target.parent), "-c", str(source), "-o", str(unfinished)])
    unfinished.replace(target)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[:6000]}")
