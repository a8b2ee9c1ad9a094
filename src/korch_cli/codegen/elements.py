"""How elements are read, written and reduced, for each element type."""

from __future__ import annotations

from korch_cli.codegen.expressions import NARROW_FLOATS
from korch_cli.codegen.nest import Node, Reduction
from korch_cli.core.types import DType

COMBINERS = {"sum": "Add", "prod": "Multiply", "max": "Largest", "min": "Smallest"}
"""What joins the lanes of a vector, for each reduction."""


def combined(function: str, left: str, right: str, dtype: DType) -> str:
    """Return one step of a reduction; the parts are names or calls, or sums in a sum."""
    if dtype is DType.BOOL:
        return f"{'or_' if function == 'max' else 'and_'}({left}, {right})"
    if not dtype.is_float:
        return f"int_{_INTEGER_STEPS.get(function, function)}({left}, {right})"
    if function in ("sum", "prod"):
        return f"{left} {'+' if function == 'sum' else '*'} {right}"
    return f"v{function}({left}, {right})"


_INTEGER_STEPS = {"sum": "add", "prod": "mul"}


def is_rounded(node: Node) -> bool:
    """Whether a reduction gives more digits than its element type has."""
    assert isinstance(node.operation, Reduction)
    return node.dtype in NARROW_FLOATS and node.operation.function in ("sum", "prod")


def read(element: str, dtype: DType) -> str:
    """Return what an element in memory is computed with."""
    return f"from_{NARROW_FLOATS[dtype]}({element})" if dtype in NARROW_FLOATS else element


def written(text: str, dtype: DType) -> str:
    """Return what is stored for a computed element."""
    return f"to_{NARROW_FLOATS[dtype]}({text})" if dtype in NARROW_FLOATS else text


def suffixed(call: str, dtype: DType) -> str:
    """Return the function that loads or stores a vector of these elements."""
    return f"{call}_{NARROW_FLOATS[dtype]}" if dtype in NARROW_FLOATS else call
