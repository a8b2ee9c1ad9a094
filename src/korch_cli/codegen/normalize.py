"""Fewer and simpler loops: neighbouring variables that always move together become one, strided ones are split."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from korch_cli.codegen.index import Div, Expr, Mod, Var, variable
from korch_cli.codegen.nest import Nest, Reduction, nonlinear, rewrite

_MIN_INNER = 16
"""A variable is not split into one shorter than this: the innermost loop has to fill vectors."""


def normalize(nest: Nest) -> Nest:
    """Return an equal nest with as few loop variables and as few quotients and remainders as can be found."""
    nest = _split(nest)
    return _fuse(nest)


def _fuse(nest: Nest) -> Nest:
    """Join neighbouring variables, free or bound, wherever no index expression gets more complicated."""
    changed = True
    while changed:
        changed = False
        for outer, inner in _neighbours(nest):
            joined = Var(f"{outer.name}_{inner.name}", outer.extent * inner.extent)
            position = variable(joined)
            attempt = rewrite(nest, {outer: position // inner.extent, inner: position % inner.extent})
            if nonlinear(attempt) <= nonlinear(nest):
                nest, changed = attempt, True
                break
    return nest


def _neighbours(nest: Nest) -> Iterator[tuple[Var, Var]]:
    lists = [nest.variables]
    lists += [node.operation.variables for node in nest.reductions if isinstance(node.operation, Reduction)]
    # Variables may be joined only where they are neighbours in every list that holds one of them.
    for group in dict.fromkeys(lists):
        for outer, inner in pairwise(group):
            if all(_adjacent(other, outer, inner) for other in lists):
                yield outer, inner


def _adjacent(group: tuple[Var, ...], outer: Var, inner: Var) -> bool:
    if outer not in group and inner not in group:
        return True
    return (outer, inner) in pairwise(group)


def _split(nest: Nest) -> Nest:
    """Split a variable that is only ever divided, into a quotient and a remainder of its own."""
    changed = True
    while changed:
        changed = False
        for var, by in _divided(nest):
            high, low = Var(f"{var.name}q{by}", var.extent // by), Var(f"{var.name}r{by}", by)
            attempt = rewrite(nest, {var: variable(high) * by + variable(low)})
            if nonlinear(attempt) < nonlinear(nest):
                nest, changed = attempt, True
                break
    return nest


def _divided(nest: Nest) -> list[tuple[Var, int]]:
    found: dict[tuple[Var, int], None] = {}
    for expr in nest.expressions():
        for atom in expr.atoms():
            if isinstance(atom, Div | Mod):
                found.update(((var, by), None) for var, by in _factors(atom.operand, atom.by))
    return [(var, by) for var, by in found if var.extent % by == 0 and by < var.extent and _stays_long(nest, var, by)]


def _factors(operand: Expr, by: int) -> Iterator[tuple[Var, int]]:
    for atom, coefficient in operand.terms:
        if isinstance(atom, Var) and by % coefficient == 0:
            yield atom, by // coefficient


def _stays_long(nest: Nest, var: Var, by: int) -> bool:
    """Whether the innermost loop still fills vectors after the split."""
    return by >= min(_MIN_INNER, var.extent) or not nest.variables or var != nest.variables[-1]
