"""What one loop nest contributes to a launch."""

from __future__ import annotations

from dataclasses import dataclass

from korch_cli.codegen.cuda.signature import Buffer
from korch_cli.core.types import DType


@dataclass(frozen=True, slots=True)
class Part:
    """Blocks of threads that run one nest.

    Attributes:
        lines: the statements of a thread; `block` is the number of its block, from 0.
        buffers: what the statements touch, with the element types.
        written: those of them that they write.
        threads: of a block.
        blocks: their number.
    """

    lines: tuple[str, ...]
    buffers: dict[Buffer, DType]
    written: frozenset[Buffer]
    threads: int
    blocks: int
