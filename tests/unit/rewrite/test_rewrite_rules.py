from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from korch_cli.core.check import check
from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.primitive import Elementwise, Input, Op, Opaque, Reshape, Transpose
from korch_cli.core.text import parse_graph, print_op
from korch_cli.core.types import Array, DType, TensorType
from korch_cli.rewrite import rewrite


def graph(*lines: str) -> PrimitiveGraph:
    return parse_graph("\n".join(lines))


def row(of: PrimitiveGraph, value: int) -> str:
    return f"{print_op(of.values[value].op)} {of.values[value].args}"


def computed(of: PrimitiveGraph, x: Array) -> list[Array]:
    """What numpy makes of a graph of negations and layout primitives."""
    arrays: list[Array] = []
    for value in of.values:
        match value.op:
            case Input():
                arrays.append(x)
            case Elementwise():
                arrays.append(-arrays[value.args[0]])
            case Transpose(perm):
                arrays.append(np.transpose(arrays[value.args[0]], perm))
            case _:
                arrays.append(arrays[value.args[0]].reshape(value.type.shape))
    return arrays


@pytest.mark.parametrize(
    ("first", "between", "second", "expected"),
    [
        ("reshape", "2,12", "reshape", "reshape (0,)"),
        ("transpose perm=[1,0,2]", "3,2,4", "transpose perm=[2,0,1]", "transpose perm=[2,1,0] (0,)"),
        ("transpose perm=[1,0,2]", "3,2,4", "transpose perm=[1,0,2]", "reshape (0,)"),
        ("reshape", "2,3,4", "elementwise neg", "elementwise neg (0,)"),
    ],
)
def test_two_steps_become_one(first: str, between: str, second: str, expected: str) -> None:
    shapes = {"reshape": "24", "transpose perm=[2,0,1]": "4,3,2"}
    before = graph(
        '%0 "x" f32[2,3,4] = input',
        f'%1 "a" f32[{between}] = {first} (%0) @0',
        f'%2 "b" f32[{shapes.get(second, "2,3,4")}] = {second} (%1) @1',
        "outputs (%2)",
    )
    after = rewrite(before)
    check(after)
    assert row(after, 2) == expected
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    np.testing.assert_array_equal(computed(after, x)[2], computed(before, x)[2])


def test_a_transpose_of_axes_of_extent_one_is_a_reshape() -> None:
    before = graph(
        '%0 "x" f32[1,3,1,4] = input',
        '%1 "a" f32[3,4,1,1] = transpose perm=[1,3,0,2] (%0) @0',
        '%2 "b" f32[4,3,1,1] = transpose perm=[3,1,0,2] (%0) @1',
        "outputs (%1, %2)",
    )
    after = rewrite(before)
    assert row(after, 1) == "reshape (0,)"
    assert row(after, 2) == "transpose perm=[3,1,0,2] (0,)"


def test_opaque_operators_read_what_they_read() -> None:
    before = graph(
        '%0 "x" f32[3] = input',
        '%1 "a" f32[3] = reshape (%0) @0',
        '%2 "b" f32[3] = opaque operator=1 output=0 (%1) @1',
        "outputs (%2)",
    )
    assert isinstance(before.values[2].op, Opaque)
    assert rewrite(before) == before


@st.composite
def layouts(draw: st.DrawFn) -> PrimitiveGraph:
    """Chains and branches of reshapes, transposes and negations of 24 elements."""
    values = [Value(0, "x", TensorType(DType.F32, (2, 3, 4)), Input())]
    for i in range(1, draw(st.integers(2, 9))):
        arg = values[draw(st.integers(0, i - 1))]
        kind = draw(st.sampled_from(["reshape", "transpose", "neg"]))
        shape = arg.type.shape
        op: Op = Elementwise("neg")
        if kind == "reshape":
            op, shape = Reshape(), draw(st.sampled_from([(2, 3, 4), (24,), (6, 4), (1, 4, 1, 6), (2, 1, 12)]))
        elif kind == "transpose":
            perm = tuple(draw(st.permutations(range(len(shape)))))
            op, shape = Transpose(perm), tuple(shape[axis] for axis in perm)
        values.append(Value(i, f"t{i}", TensorType(DType.F32, shape), op, (arg.id,), i - 1))
    return PrimitiveGraph(tuple(values), (len(values) - 1,))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(layouts())
def test_every_value_stays_what_it_was(before: PrimitiveGraph) -> None:
    after = rewrite(before)
    check(after)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for value, old, new in zip(before.values, computed(before, x), computed(after, x), strict=True):
        assert after.values[value.id].type == value.type
        np.testing.assert_array_equal(new, old)
    assert rewrite(after) == after
