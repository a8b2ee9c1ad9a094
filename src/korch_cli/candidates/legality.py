"""What can never be one kernel; the code generator has the last word on the rest."""

from __future__ import annotations

from collections.abc import Sequence

from korch_cli.candidates.limits import SearchLimits
from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.primitive import Constant, Linear, Opaque, Reduce, Reshape, WindowReduce

DEFAULT_LIMITS = SearchLimits()


def fusible(graph: PrimitiveGraph, value: Value, limits: SearchLimits = DEFAULT_LIMITS) -> str | None:
    """Return why no body contains `value`, or None if one may."""
    if isinstance(value.op, Opaque):
        return "opaque operator"
    if isinstance(value.op, Linear) and limits.max_linear == 0:
        return "product"
    types = (value.type, *(a.type for a in graph.args(value)))
    if any(t.dtype not in limits.dtypes for t in types):
        return "element type"
    if any(t.elements == 0 for t in types):
        return "empty tensor"
    return None


def plausible(graph: PrimitiveGraph, body: Sequence[int], limits: SearchLimits = DEFAULT_LIMITS) -> str | None:
    """Return why these primitives, which are fusible, can or should not be one kernel, or None if they may."""
    members = [graph.values[v] for v in body]
    if all(isinstance(v.op, Reshape) for v in members):
        return "only reshapes"
    if sum(isinstance(v.op, Linear) for v in members) > limits.max_linear:
        return "products"
    if sum(isinstance(v.op, Reduce | WindowReduce) for v in members) > limits.max_reduces:
        return "reductions"
    if len(written(graph, body)) > limits.max_outputs:
        return "outputs"
    if len(operands(graph, body)) > limits.max_operands:
        return "operands"
    return None


def written(graph: PrimitiveGraph, body: Sequence[int]) -> tuple[int, ...]:
    """Return the values that are used outside `body` or are outputs of the graph, ascending."""
    inside, outputs = set(body), set(graph.outputs)
    return tuple(v for v in body if v in outputs or not inside.issuperset(graph.users[v]))


def operands(graph: PrimitiveGraph, body: Sequence[int]) -> tuple[int, ...]:
    """Return what `body` takes from outside, ascending; constants of one element, most of them literals, aside."""
    outside = {a for v in body for a in graph.values[v].args}.difference(body)
    return tuple(sorted(a for a in outside if not is_single(graph.values[a])))


def is_single(value: Value) -> bool:
    """Whether `value` is a constant of one element."""
    return isinstance(value.op, Constant) and value.type.elements == 1
