"""Maxima and minima with numbers, found as the Relu and Clip that runtimes fuse into convolutions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.primitive import Constant, Elementwise
from korch_cli.core.types import DType


@dataclass(frozen=True, slots=True)
class Clamp:
    """`min(max(operand, low), high)` of f32, or the maximum alone if `high` is None.

    Attributes:
        operand: id of what is clamped.
        low: the smallest result.
        high: the largest result.
        inner: id of the maximum inside, which needs no node of its own; -1 if there is none.
    """

    operand: int
    low: float
    high: float | None
    inner: int = -1


def find_clamps(graph: PrimitiveGraph) -> dict[int, Clamp]:
    """Return the clamps of a graph by the id of their result; each computes exactly what the primitives do."""
    found: dict[int, Clamp] = {}
    for value in graph.primitives():
        lower = _limited(graph, value, "max")
        upper = _limited(graph, value, "min")
        if lower is not None and lower[1] == 0:
            found[value.id] = Clamp(lower[0], 0.0, None)
        elif upper is not None:
            inner = graph.values[upper[0]]
            bottom = _limited(graph, inner, "max")
            private = graph.users[inner.id] == (value.id,) and inner.id not in graph.outputs
            if bottom is not None and private and bottom[1] <= upper[1]:
                found.pop(inner.id, None)
                found[value.id] = Clamp(bottom[0], bottom[1], upper[1], inner.id)
    return found


def _limited(graph: PrimitiveGraph, value: Value, function: str) -> tuple[int, float] | None:
    """Return the operand and the number, if `value` is the maximum or minimum of one of each."""
    if value.op != Elementwise(function) or value.type.dtype is not DType.F32:
        return None
    for operand, limit in (value.args, value.args[::-1]):
        op = graph.values[limit].op
        number = op.literal if isinstance(op, Constant) else None
        if number is not None and not math.isnan(number) and not isinstance(graph.values[operand].op, Constant):
            same = graph.values[operand].type == value.type
            return (operand, float(number)) if same else None
    return None
