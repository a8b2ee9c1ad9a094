"""Where the kernel library of a model is."""

from __future__ import annotations

import mmap
from pathlib import Path

from korch_cli.core.kernel import DOMAIN_PREFIX


def find_library(model: Path) -> Path | None:
    """Return `x.korch.so` beside `x.onnx`, if it is there and the model has operators of a korch domain.

    Without its library a model runs all the same, on the functions that it carries. The file is searched for the
    domain's bytes rather than parsed: a false alarm only registers operators that nothing uses.
    """
    library = model.with_suffix(".korch.so")
    if not library.is_file() or not model.is_file() or not model.stat().st_size:
        return None
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return library if content.find(DOMAIN_PREFIX.encode()) >= 0 else None
