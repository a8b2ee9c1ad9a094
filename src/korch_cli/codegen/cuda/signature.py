"""What a CUDA kernel is given: operands, results, and scratch buffers that its launches hand on."""

from __future__ import annotations

from dataclasses import dataclass

from korch_cli.codegen.nest import Load, Nest
from korch_cli.core.types import DType

Buffer = tuple[str, int]
"""("in", i), ("out", i) or ("scratch", i), as in `core.launch.Launch.arguments`."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The buffers that a nest of a kernel may touch: arguments from `inputs` and results from `outputs` on are scratch.

    Attributes:
        inputs: the number of operands.
        outputs: the number of results.
        scratch: the number that the nest's first scratch buffer has in the kernel.
    """

    inputs: int
    outputs: int
    scratch: int = 0

    def source(self, argument: int) -> Buffer:
        """What argument number `argument` of the nest is."""
        return ("in", argument) if argument < self.inputs else ("scratch", argument - self.inputs + self.scratch)

    def target(self, result: int) -> Buffer:
        """What result number `result` of the nest is."""
        return ("out", result) if result < self.outputs else ("scratch", result - self.outputs + self.scratch)

    def buffers(self, nest: Nest) -> dict[Buffer, DType]:
        """Return the buffers that a nest touches, in order, with their element types."""
        found: dict[Buffer, DType] = {}
        for node in nest.nodes:
            if isinstance(node.operation, Load):
                found[self.source(node.operation.argument)] = node.dtype
        for store in nest.stores:
            found[self.target(store.result)] = nest.nodes[store.node].dtype
        order = ("in", "scratch", "out")
        return dict(sorted(found.items(), key=lambda item: (order.index(item[0][0]), item[0][1])))


def pointer(buffer: Buffer) -> str:
    """Return the name that a buffer has in the text."""
    return f"{_LETTERS[buffer[0]]}{buffer[1]}"


_LETTERS = {"in": "a", "out": "r", "scratch": "s"}
