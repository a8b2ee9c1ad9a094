"""Simplified index expressions have the value of the arithmetic they came from."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from korch_cli.codegen.index import Expr, Var, constant, flatten, lookup, unflatten, variable

VARIABLES = (Var("a", 3), Var("b", 4), Var("c", 6), Var("d", 1))
Meaning = Callable[[dict[Var, int]], int]


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4) -> tuple[Expr, Meaning]:
    """An expression, and the same built from Python integers."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        var = draw(st.sampled_from(VARIABLES))
        return variable(var), lambda values: values[var]
    kind = draw(st.sampled_from(["add", "sub", "scale", "shift", "div", "mod", "lookup"]))
    left, means_left = draw(expressions(depth - 1))
    number = draw(st.integers(1, 12))
    if kind in ("add", "sub"):
        right, means_right = draw(expressions(depth - 1))
        if kind == "add":
            return left + right, lambda values: means_left(values) + means_right(values)
        return left - right, lambda values: means_left(values) - means_right(values)
    if kind == "scale":
        return left * number, lambda values: means_left(values) * number
    if kind == "shift":
        return left + number, lambda values: means_left(values) + number
    if kind == "div":
        return left // number, lambda values: means_left(values) // number
    if kind == "mod":
        return left % number, lambda values: means_left(values) % number
    low, high = left.range
    table = tuple(draw(st.lists(st.integers(0, 20), min_size=8, max_size=8)))
    if low < 0 or high >= len(table):
        return left, means_left
    return lookup(left, table), lambda values: table[means_left(values)]


def assignments() -> list[dict[Var, int]]:
    return [dict(zip(VARIABLES, point, strict=True)) for point in product(*(range(v.extent) for v in VARIABLES))]


ALL = assignments()


@settings(max_examples=300, deadline=None, derandomize=True)
@given(expressions())
def test_simplification_changes_no_value(pair: tuple[Expr, Meaning]) -> None:
    expr, meaning = pair
    low, high = expr.range
    for values in ALL:
        found = expr.evaluate(values)
        assert found == meaning(values)
        assert low <= found <= high


@settings(max_examples=150, deadline=None, derandomize=True)
@given(expressions(), expressions(2))
def test_substitution_is_evaluation_with_other_values(pair: tuple[Expr, Meaning], inner: tuple[Expr, Meaning]) -> None:
    expr, meaning = pair
    replacement, value_of = inner
    var = VARIABLES[1]
    low, high = replacement.range
    if low < 0 or high >= var.extent:
        return
    substituted = expr.substitute({var: replacement})
    for values in ALL:
        assert substituted.evaluate(values) == meaning({**values, var: value_of(values)})


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_flatten_and_unflatten_are_row_major(shape: list[int]) -> None:
    axes = [Var(f"i{n}", extent) for n, extent in enumerate(shape)]
    position = flatten(map(variable, axes), shape)
    back = unflatten(position, tuple(shape))
    for point in product(*map(range, shape)):
        values = dict(zip(axes, point, strict=True))
        assert position.evaluate(values) == np.ravel_multi_index(point, shape)
        assert tuple(e.evaluate(values) for e in back) == point
    assert back == tuple(map(variable, axes))


def test_coefficients_are_found_or_denied() -> None:
    a, b, c = (variable(v) for v in VARIABLES[:3])
    expr = a * 5 + b + (c // 2) * 3 + constant(1)
    assert [expr.coefficient(v) for v in VARIABLES] == [5, 1, None, 0]


def test_nothing_is_read_outside_of_a_table() -> None:
    """Positions under a guard that does not hold are evaluated, too, to see where loops are cut."""
    x = Var("x", 8)
    inner = lookup(variable(x) - 3, (5, 1, 4))
    outer = lookup(inner + 2, (9, 2, 8))
    assert [inner.evaluate({x: i}) for i in range(8)] == [0, 0, 0, 5, 1, 4, 0, 0]
    assert [outer.evaluate({x: i}) for i in range(8)] == [8, 8, 8, 0, 0, 0, 8, 8]
