"""Functions of functions that vectors compute in one go, with fewer operations and no more error."""

from __future__ import annotations

from dataclasses import replace

from korch_cli.codegen.expressions import LANES
from korch_cli.codegen.nest import Apply, Nest, Node

_OF = {("tanh", "softplus"): "tanh_softplus"}
"""A function of a function, and what both are together."""


def with_idioms(nest: Nest) -> Nest:
    """Return an equal nest in which functions of `korch_vector.h` stand for pairs of functions."""
    return Nest(nest.variables, tuple(_joined(nest, node) for node in nest.nodes), nest.stores)


def _joined(nest: Nest, node: Node) -> Node:
    match node.operation:
        case Apply(outer, (position,)) if node.dtype in LANES:
            inner = nest.nodes[position]
            if isinstance(inner.operation, Apply) and inner.dtype is node.dtype:
                name = _OF.get((outer, inner.operation.function))
                if name is not None:
                    return replace(node, operation=Apply(name, inner.operation.args))
    return node
