"""Loops cut where their index arithmetic changes: at the seams of concatenated tensors, at padding, at clamped ends.

Inside a segment guards hold or do not, and lookups are arithmetic, so that what is left are plain loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from korch_cli.codegen.index import Div, Expr, Lookup, Mod, Var, variable
from korch_cli.codegen.nest import Load, Nest, Select, rewrite

_MAX_SEGMENTS = 8
_MAX_EXTENT = 1 << 16
_LEAST_PERIOD = 16
"""A loop over what repeats is cut into its periods only where each of them fills vectors."""


def partition(nest: Nest, *, most: int = _MAX_SEGMENTS) -> list[Nest]:
    """Return nests that together do what a nest without reductions does, cut at guards on its outer variables."""
    if nest.reductions:
        return [nest]
    pieces = [nest]
    for var in nest.variables[:-1]:
        bounds = _seams([_truth(guard, var) for guard in _guards(nest) if _alone(guard, var)])
        if len(bounds) + 1 > 1 and len(pieces) * (len(bounds) + 1) <= most:
            pieces = [part for piece in pieces for part in _cut(piece, var, bounds)]
    return pieces


def segments(nest: Nest, lane: Var) -> list[tuple[int, Var, Nest]]:
    """Return where each segment of the innermost loop starts, its variable, and what it does; empty for one segment.

    A variable of a single value does not occur in its segment.
    """
    if lane.extent > _MAX_EXTENT:
        return []
    rules = [_truth(guard, lane) for guard in _guards(nest) if _alone(guard, lane)]
    bounds = set(_seams(rules))
    for expr in nest.expressions():
        for atom in expr.atoms():
            if isinstance(atom, Lookup) and _depends_alone(atom.operand, lane):
                bounds |= set(_runs([Expr(((atom, 1),)).evaluate({lane: x}) for x in range(lane.extent)]))
            elif isinstance(atom, Div | Mod) and atom.operand == variable(lane) and atom.by >= _LEAST_PERIOD:
                bounds |= set(range(atom.by, lane.extent, atom.by))
    if not bounds or len(bounds) >= _MAX_SEGMENTS:
        return []
    edges = [0, *sorted(bounds), lane.extent]
    found = []
    for number, (start, end) in enumerate(pairwise(edges)):
        var = Var(f"{lane.name}s{number}", end - start)
        found.append((start, var, rewrite(nest, {lane: variable(var) + start})))
    return found


Condition = tuple[Expr, int, int]


def _guards(nest: Nest) -> Iterator[Condition]:
    for node in nest.nodes:
        if isinstance(node.operation, Load | Select):
            for guard in node.operation.guards:
                yield guard.position, guard.low, guard.high


def _alone(condition: Condition, var: Var) -> bool:
    return _depends_alone(condition[0], var)


def _depends_alone(expr: Expr, var: Var) -> bool:
    return expr.variables == {var}


def _truth(condition: Condition, var: Var) -> list[bool]:
    position, low, high = condition
    if var.extent > _MAX_EXTENT:
        return []
    return [low <= position.evaluate({var: x}) < high for x in range(var.extent)]


def _seams(rules: Sequence[Sequence[bool]]) -> list[int]:
    return sorted({x for rule in rules for x in range(1, len(rule)) if rule[x] != rule[x - 1]})


def _runs(table: Sequence[int]) -> list[int]:
    """Where a table changes its rule: a constant step, or each entry several times."""
    bounds: list[int] = []
    start = 0
    while start < len(table) and len(bounds) < _MAX_SEGMENTS:
        start += max(_linear(table, start), _repeating(table, start))
        if start < len(table):
            bounds.append(start)
    return bounds


def _linear(table: Sequence[int], start: int) -> int:
    end = start + 1
    while end < len(table) and table[end] - table[end - 1] == table[start + 1] - table[start]:
        end += 1
    return end - start


def _repeating(table: Sequence[int], start: int) -> int:
    """The length of a run in which each entry occurs as often as the first one; 0 for less than two of them."""
    period = next((n for n in range(1, len(table) - start) if table[start + n] != table[start]), 1)
    end = start + period
    while end < len(table) and table[end] == table[start] + (end - start) // period:
        end += 1
    return end - start if end - start >= 2 * period else 0


def _cut(nest: Nest, var: Var, bounds: Sequence[int]) -> list[Nest]:
    edges = [0, *bounds, var.extent]
    parts = []
    for number, (start, end) in enumerate(pairwise(edges)):
        piece = Var(f"{var.name}p{number}", end - start)
        parts.append(rewrite(nest, {var: variable(piece) + start}))
    return parts
