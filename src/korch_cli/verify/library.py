"""Where the kernel library of a model is."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from pathlib import Path

from korch_cli.core.companions import library_beside
from korch_cli.core.kernel import DOMAIN_PREFIX

CPU_PROVIDER, CUDA_PROVIDER = "CPUExecutionProvider", "CUDAExecutionProvider"
"""What sessions run on, as ONNX Runtime calls it."""


def find_library(model: Path) -> Path | None:
    """Return `x.korch.so` beside `x.onnx`, if it is there and the model has operators of a korch domain.

    Without its library a model runs all the same, on the functions that it carries. The file is searched for the
    domain's bytes rather than parsed: a false alarm only registers operators that nothing uses.
    """
    library = library_beside(model)
    if not library.is_file() or not model.is_file() or not model.stat().st_size:
        return None
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return library if content.find(DOMAIN_PREFIX.encode()) >= 0 else None


def fitting_library(model: Path, providers: Iterable[str]) -> Path | None:
    """Return the library beside a model, unless its kernels are for a GPU and no provider of a session is.

    Such a session would be refused: an operator that is registered for another provider has no function any more.
    """
    library = find_library(model)
    if library is None or CUDA_PROVIDER in providers:
        return library
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return None if content.find(CUDA_PROVIDER.encode()) >= 0 else library
