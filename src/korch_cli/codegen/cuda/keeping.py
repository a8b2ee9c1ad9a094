"""Which values along a row are computed once and kept for the loops that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from korch_cli.codegen.index import Var, variable
from korch_cli.codegen.nest import Apply, Nest, Reduction, operands, rewrite, unreduced
from korch_cli.codegen.schedule import reduced_rows
from korch_cli.core.elementwise import FUNCTIONS

_CHEAP = 2
"""An elementwise function of at most this cost is rather computed again than kept beside its operands."""

Phase = tuple[tuple[Var, ...], tuple[int, ...]]
"""A loop along a row: its variables, and the reductions that it finishes."""


def phases(nest: Nest) -> list[Phase]:
    """Return the loops that finish the reductions of a nest, in order."""
    found: list[Phase] = []
    for level in range(1, max((node.level for node in nest.nodes), default=0) + 1):
        groups: dict[tuple[Var, ...], list[int]] = {}
        for position, node in enumerate(nest.nodes):
            if isinstance(node.operation, Reduction) and node.level == level:
                groups.setdefault(node.operation.variables, []).append(position)
        found += [(variables, tuple(members)) for variables, members in groups.items()]
    return found


def operands_of(nest: Nest, members: Sequence[int]) -> list[int]:
    """Return what reductions reduce."""
    found = []
    for member in members:
        operation = nest.nodes[member].operation
        assert isinstance(operation, Reduction)
        found.append(operation.operand)
    return found


def unified(nest: Nest) -> Nest:
    """Let reductions over a whole row run over the variables of the results, so that both name the same nodes."""
    inner = row_axes(nest)
    groups = list(dict.fromkeys(variables for variables, _ in phases(nest)))
    for variables in groups:
        alone = all(group == variables or not set(group) & set(variables) for group in groups)
        if alone and variables != inner and [var.extent for var in variables] == [var.extent for var in inner]:
            renamed = {old: variable(new) for old, new in zip(variables, inner, strict=True)}
            return unified(rewrite(nest, renamed))
    return nest


def row_axes(nest: Nest) -> tuple[Var, ...]:
    """Return the variables of the loops between which values are kept: those of the results, or of a reduction."""
    rows = reduced_rows(nest)
    inner = tuple(var for var in nest.variables if var not in rows)
    found = phases(nest)
    return inner or (found[0][0] if found else ())


@dataclass(frozen=True, slots=True)
class Kept:
    """When a value is needed: the number of the loop that computes it, and of the last one that reads it."""

    first: int
    last: int


def kept_nodes(nest: Nest, axes: tuple[Var, ...]) -> dict[int, Kept]:
    """Return the nodes that a loop over `axes` computes and a later one needs."""
    rows = frozenset(reduced_rows(nest))
    loops = [operands_of(nest, members) for variables, members in phases(nest) if variables == axes]
    results = [store.node for store in nest.stores if not nest.nodes[store.node].free <= rows]
    if results:
        loops.append(results)
    computed: dict[int, int] = {}
    kept: dict[int, Kept] = {}
    for number, roots in enumerate(loops):
        pending, seen = list(roots), set[int]()
        while pending:
            position = pending.pop()
            node = nest.nodes[position]
            if position in seen or isinstance(node.operation, Reduction) or axes[-1] not in node.free:
                continue
            seen.add(position)
            if position in computed and not _is_cheap_from(nest, position, kept, axes[-1]):
                kept[position] = Kept(computed[position], number)
            else:
                pending += operands(node.operation)
        below = sorted(unreduced(nest.nodes, roots))
        computed.update((p, number) for p in below if p not in kept and p not in computed)
    return kept


def kept_bytes(nest: Nest, kept: Mapping[int, Kept]) -> int:
    """Return the bytes that the values of one point take where most of them are needed at the same time."""
    most = 0
    for number in {life.first for life in kept.values()}:
        alive = [position for position, life in kept.items() if life.first <= number < life.last]
        most = max(most, sum(max(4, nest.nodes[position].dtype.size_bytes) for position in alive))
    return most


def _is_cheap_from(nest: Nest, position: int, kept: Mapping[int, Kept], lane: Var) -> bool:
    operation = nest.nodes[position].operation
    if not isinstance(operation, Apply) or FUNCTIONS[operation.function].flops > _CHEAP:
        return False
    varying = [arg for arg in operation.args if lane in nest.nodes[arg].free]
    return all(arg in kept for arg in varying)
