"""The rules, one function each: a value's primitive and operands in, an equal and simpler pair out, or None."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from korch_cli.core.graph import Value
from korch_cli.core.primitive import Op, Reshape, Transpose

Replacement = tuple[Op, tuple[int, ...]]
Rule = Callable[[Sequence[Value], Value], Replacement | None]
"""Takes the graph's values and the one to rewrite. The replacement computes exactly the same elements."""


def read_through_copies(values: Sequence[Value], value: Value) -> Replacement | None:
    """Read what a copy copies instead of the copy."""
    args = tuple(values[a].args[0] if _is_copy(values, values[a]) else a for a in value.args)
    return None if args == value.args else (value.op, args)


def reshape_of_reshape(values: Sequence[Value], value: Value) -> Replacement | None:
    """Only the last shape of several counts."""
    if not isinstance(value.op, Reshape) or not isinstance(values[value.args[0]].op, Reshape):
        return None
    return Reshape(), values[value.args[0]].args


def transpose_of_transpose(values: Sequence[Value], value: Value) -> Replacement | None:
    """Two permutations are one, or none."""
    inner = values[value.args[0]] if value.args else value
    if not isinstance(value.op, Transpose) or not isinstance(inner.op, Transpose):
        return None
    perm = tuple(inner.op.perm[axis] for axis in value.op.perm)
    return (Reshape() if perm == tuple(range(len(perm))) else Transpose(perm)), inner.args


def transpose_that_moves_nothing(values: Sequence[Value], value: Value) -> Replacement | None:
    """A permutation that keeps the order of all axes longer than 1 leaves every element where it is."""
    if not isinstance(value.op, Transpose):
        return None
    shape = values[value.args[0]].type.shape
    moved = [axis for axis in value.op.perm if shape[axis] != 1]
    return (Reshape(), value.args) if moved == sorted(moved) else None


def _is_copy(values: Sequence[Value], value: Value) -> bool:
    return isinstance(value.op, Reshape) and values[value.args[0]].type == value.type


RULES: tuple[Rule, ...] = (
    read_through_copies,
    transpose_of_transpose,
    transpose_that_moves_nothing,
    reshape_of_reshape,
)
"""Tried in this order on every value, again and again until none applies."""
