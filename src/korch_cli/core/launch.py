"""Generated CUDA kernels and how they are launched."""

from __future__ import annotations

from dataclasses import dataclass

from korch_cli.core.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a `__global__` function.

    Attributes:
        function: its name.
        grid: the extents (x, y, z) of the grid, in blocks.
        block: the extents (x, y, z) of a block, in threads.
        shared_bytes: dynamic shared memory of a block.
        arguments: what is passed, in order, as ("in", i), ("out", i) or ("scratch", i), each a device pointer.
    """

    function: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class CudaKernel:
    """Generated CUDA text for a body, under one schedule.

    Attributes:
        name: a C identifier, unique for the text.
        digest: of the body it computes.
        schedule: the variant in words, e.g. "row, registers".
        source: one CUDA C++ translation unit that defines `extern "C" __global__` functions and needs no header but
            the text of `codegen.cuda_headers()`.
        launches: in order, on one stream.
        scratch: bytes of each scratch buffer (for split reductions), 256-byte aligned.
        read_bytes: of the whole kernel, for the roofline.
        written_bytes: of the whole kernel, for the same.
        flops: of the whole kernel (elementwise functions weighted by cost), for the same.
    """

    name: str
    digest: str
    schedule: str
    source: str
    launches: tuple[Launch, ...]
    scratch: tuple[int, ...]
    read_bytes: int
    written_bytes: int
    flops: int


GeneratedKernel = Kernel | CudaKernel
"""What a code generator makes of a body."""
