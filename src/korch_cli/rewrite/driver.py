"""Applies the rules to a whole graph."""

from __future__ import annotations

from dataclasses import replace

from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.primitive import Opaque
from korch_cli.rewrite.rules import RULES, Replacement


def rewrite(graph: PrimitiveGraph) -> PrimitiveGraph:
    """Return a graph of the same values, some of them computed in a shorter way.

    No value goes away or changes its type: ONNX Runtime's own operators read and write the same tensors as before.
    Every rule brings a value closer to the graph's sources, so that this comes to an end.
    """
    values: list[Value] = []
    for value in graph.values:
        current = value
        while (found := _first(values, current)) is not None:
            op, args = found
            current = replace(current, op=op, args=args)
        values.append(current)
    return replace(graph, values=tuple(values))


def _first(values: list[Value], value: Value) -> Replacement | None:
    if value.is_source or isinstance(value.op, Opaque):
        return None
    return next((found for rule in RULES if (found := rule(values, value)) is not None), None)
