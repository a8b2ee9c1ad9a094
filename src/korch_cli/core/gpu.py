"""GPUs, and what is known of kernels that were compiled for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a GPU can do, by its data sheet.

    Attributes:
        name: of the product.
        capability: compute capability times ten, e.g. 90.
        processors: streaming multiprocessors.
        bytes_per_second: of its memory.
        flops_per_second: float32 operations, a fused multiply-add counted as two.
        half_flops_per_second: float16 and bfloat16 operations of the matrix units, dense.
        cache_bytes: of the second-level cache, which all multiprocessors share.
        shared_bytes: shared memory of a multiprocessor.
        threads: that a multiprocessor holds at most.
        blocks: that a multiprocessor holds at most.
    """

    name: str
    capability: int
    processors: int
    bytes_per_second: float
    flops_per_second: float
    half_flops_per_second: float
    cache_bytes: int
    shared_bytes: int
    threads: int
    blocks: int

    @property
    def arch(self) -> str:
        """The architecture to compile for."""
        return f"sm_{self.capability}"


@dataclass(frozen=True, slots=True)
class Resources:
    """What a compiled function needs, as the assembler reports it.

    Attributes:
        registers: of each thread.
        spill_bytes: of each thread: registers that did not suffice, stored and loaded.
        shared_bytes: static shared memory of a block.
    """

    registers: int
    spill_bytes: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class Image:
    """A kernel, compiled.

    Attributes:
        arch: "sm_90" for a cubin, which runs on GPUs of the same major and an equal or higher minor number;
            "compute_80" for PTX, which the driver compiles for any GPU from 8.0 on.
        path: of the file.
        resources: by function; none for PTX.
    """

    arch: str
    path: Path
    resources: Mapping[str, Resources]

    @property
    def capability(self) -> int:
        """Compute capability times ten."""
        return capability_of(self.arch)

    @property
    def is_ptx(self) -> bool:
        """Whether this is PTX."""
        return self.arch.startswith("compute_")


def capability_of(arch: str) -> int:
    """Return the number in the name of an architecture, e.g. 90 for sm_90."""
    found = re.fullmatch(r"(?:sm|compute)_(\d+)", arch)
    assert found is not None, f"{arch!r} is no architecture"
    return int(found[1])
