"""What a row kernel computes once and keeps: expensive values that one loop over a row leaves for the next ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from korch_cli.codegen.expressions import LANES
from korch_cli.codegen.index import Var, variable
from korch_cli.codegen.nest import Load, Nest, Node, Reduction, operands, operation_flops, unreduced
from korch_cli.codegen.schedule import Schedule, is_vectorisable

_LEAST_FLOPS = 12
"""An exponential; cheaper values are computed again."""
_MOST_ELEMENTS = 16 << 10
"""Floats of scratch in all: they lie on the stack and in the first caches."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """Values kept in scratch rows.

    Attributes:
        rows: for each node that is kept, the node in a reduction that computes it first; that one maps to itself.
        extent: elements of each scratch row.
    """

    rows: Mapping[int, int]
    extent: int


def kept_values(nest: Nest, schedule: Schedule) -> Reuse:
    """Return which values of a row kernel are worth keeping, where its loops over the row all have the same length."""
    nothing = Reuse({}, 0)
    variables = {
        v for node in nest.reductions if isinstance(node.operation, Reduction) for v in node.operation.variables
    }
    if schedule.columns or len(variables) != 1 or not is_vectorisable(nest):
        return nothing
    (bound,) = variables
    loops = _loops(nest, bound)
    same: dict[int, int] = {}
    if len(schedule.inner) == 1 and schedule.inner[0].extent == bound.extent:
        same = _counterparts(nest, schedule.inner[0], bound)
        loops.append({same[p] for p in unreduced(nest.nodes, [s.node for s in nest.stores]) if p in same})
    kept: set[int] = set()
    for number, loop in enumerate(loops):
        earlier = set().union(*loops[:number])
        kept |= {p for p in _outermost(nest, loop & earlier) if _is_worth_it(nest, p, bound)}
    if not kept or len(kept) * bound.extent > _MOST_ELEMENTS:
        return nothing
    return Reuse({p: p for p in kept} | {p: q for p, q in same.items() if q in kept}, bound.extent)


def _loops(nest: Nest, bound: Var) -> list[set[int]]:
    """What each loop of reductions computes, in the order in which they run."""
    levels = sorted({node.level for node in nest.reductions})
    found = []
    for level in levels:
        roots = [
            node.operation.operand
            for node in nest.reductions
            if node.level == level and isinstance(node.operation, Reduction)
        ]
        found.append({p for p in unreduced(nest.nodes, roots) if bound in nest.nodes[p].free})
    return found


def _counterparts(nest: Nest, inner: Var, bound: Var) -> dict[int, int]:
    """Return nodes over the loop of the results that are nodes over those of the reductions, once the loops are one."""
    known: dict[tuple[object, ...], int] = {}
    for position, node in enumerate(nest.nodes):
        if bound in node.free and inner not in node.free:
            known[_key(node, {}, {})] = position
    same: dict[int, int] = {}
    for position, node in enumerate(nest.nodes):
        if inner in node.free and bound not in node.free:
            found = known.get(_key(node, {inner: bound}, same))
            if found is not None:
                same[position] = found
    return same


def _key(node: Node, moved: Mapping[Var, Var], same: Mapping[int, int]) -> tuple[object, ...]:
    """What a node computes, with other loop variables and operands."""
    replacements = {old: variable(new) for old, new in moved.items()}
    operation = node.operation
    if isinstance(operation, Load):
        guards = tuple((g.position.substitute(replacements), g.low, g.high) for g in operation.guards)
        return (node.dtype, operation.argument, operation.address.substitute(replacements), guards)
    function = getattr(operation, "function", None)
    if function is None:
        return (id(node),)
    return (node.dtype, function, tuple(same.get(arg, arg) for arg in operands(operation)))


def _outermost(nest: Nest, positions: set[int]) -> set[int]:
    """Those that no other one of them is computed from."""
    inside = {arg for p in positions for arg in operands(nest.nodes[p].operation)}
    return positions - inside


def _is_worth_it(nest: Nest, position: int, bound: Var) -> bool:
    below = [nest.nodes[p] for p in unreduced(nest.nodes, [position])]
    flops = sum(operation_flops(n.operation) for n in below if bound in n.free)
    return nest.nodes[position].dtype in LANES and flops >= _LEAST_FLOPS
