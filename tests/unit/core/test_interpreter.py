"""The interpreter: every primitive against numbers by hand, or a formula of its own in float64."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from korch_cli.core.interpreter import apply, evaluate
from korch_cli.core.primitive import (
    Broadcast,
    Concat,
    Constant,
    Elementwise,
    Gather,
    Input,
    Linear,
    Op,
    Opaque,
    Pad,
    Reduce,
    Reshape,
    Slice,
    Transpose,
    WindowReduce,
)
from korch_cli.core.text import parse_graph
from korch_cli.core.types import Array, DType, TensorType

_QUICK = settings(max_examples=60, deadline=None, derandomize=True)


def f32(*shape: int) -> TensorType:
    return TensorType(DType.F32, shape)


def numbered(*shape: int) -> Array:
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def result(op: Op, typed: TensorType, *args: Array, widen: bool = False) -> Array:
    found = apply(op, args, typed, widen=widen)
    assert found.shape == typed.shape
    assert found.dtype == (np.float64 if widen and typed.dtype.is_float else typed.dtype.numpy)
    return found


_LAYOUT: list[tuple[Op, Array, Array]] = [
    (Broadcast(), numbered(2, 1), np.array([[0, 0, 0], [1, 1, 1]])),
    (Broadcast(), numbered(3), np.array([[0, 1, 2], [0, 1, 2]])),
    (Transpose((1, 0)), numbered(2, 3), np.array([[0, 3], [1, 4], [2, 5]])),
    (Transpose((2, 0, 1)), numbered(1, 2, 2), np.array([[[0, 2]], [[1, 3]]])),
    (Reshape(), numbered(2, 3), np.array([[0, 1], [2, 3], [4, 5]])),
    (Slice((1, 2), (1, -2)), numbered(2, 3), np.array([[5, 3]])),
    (Slice((0,), (2,)), numbered(5), np.array([0, 2, 4])),
    (Slice((0,), (1,)), numbered(5), np.zeros(0)),
    (Pad((1, 0), 9.0), numbered(1, 2), np.array([[9, 9, 9], [0, 1, 9]])),
    (Gather(1, (2, 0, 2)), numbered(2, 3), np.array([[2, 0, 2], [5, 3, 5]])),
    (Gather(0, ()), numbered(2, 3), np.zeros((0, 3))),
]


@pytest.mark.parametrize(("op", "operand", "expected"), _LAYOUT)
def test_layout(op: Op, operand: Array, expected: Array) -> None:
    np.testing.assert_array_equal(result(op, f32(*expected.shape), operand), expected)


def test_concat() -> None:
    found = result(Concat(1), f32(2, 3), numbered(2, 1), numbered(2, 2))
    np.testing.assert_array_equal(found, [[0, 0, 1], [1, 2, 3]])


def test_sigmoid_and_softplus_do_not_overflow() -> None:
    x = np.array([-1e4, -100, 100, 1e4], np.float32)
    np.testing.assert_allclose(result(Elementwise("sigmoid"), f32(4), x), [0, 3.783506e-44, 1, 1], rtol=0.02)
    np.testing.assert_allclose(result(Elementwise("softplus"), f32(4), x), [0, 3.783506e-44, 100, 1e4], rtol=0.02)


def test_casts() -> None:
    x = np.array([-1.7, 0.0, 2.9, 70000.0], np.float32)
    assert result(Elementwise("cast"), TensorType(DType.I64, (4,)), x).tolist() == [-1, 0, 2, 70000]
    assert result(Elementwise("cast"), TensorType(DType.BOOL, (4,)), x).tolist() == [True, False, True, True]
    assert result(Elementwise("cast"), TensorType(DType.F16, (4,)), x)[3] == np.inf


_FOLDS: dict[str, Callable[[list[float]], float]] = {
    "sum": math.fsum,
    "mean": math.fsum,
    "max": max,
    "min": min,
    "prod": math.prod,
}


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("function", sorted(_FOLDS))
def test_reductions_are_left_folds(function: str, axes: tuple[int, ...]) -> None:
    x = normal(2, 3, 4)
    shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(x.shape))
    expected = np.empty(shape)
    for place in np.ndindex(shape):
        ranges = [range(x.shape[axis]) if axis in axes else [place[axis]] for axis in range(3)]
        row = [float(x[index]) for index in itertools.product(*ranges)]
        total = _FOLDS[function](row)
        expected[place] = total / len(row) if function == "mean" else total
    np.testing.assert_allclose(result(Reduce(function, axes), f32(*shape), x), expected, rtol=1e-5, atol=1e-6)


def test_a_nan_is_the_extremum_of_its_row() -> None:
    x = np.array([[1, np.nan, 2], [3, 1, 2]], np.float32)
    np.testing.assert_array_equal(result(Reduce("max", (1,)), f32(2, 1), x), [[np.nan], [3]])
    np.testing.assert_array_equal(result(Reduce("min", (1,)), f32(2, 1), x), [[np.nan], [1]])


@pytest.mark.parametrize(
    ("function", "expected"), [("sum", 0), ("prod", 1), ("max", -np.inf), ("min", np.inf), ("mean", np.nan)]
)
def test_reductions_of_nothing(function: str, expected: float) -> None:
    np.testing.assert_array_equal(result(Reduce(function, (1,)), f32(2, 1), numbered(2, 0)), [[expected]] * 2)


def test_reductions_of_no_integers() -> None:
    typed = TensorType(DType.I32, (1,))
    x = np.zeros(0, np.int32)
    assert result(Reduce("max", (0,)), typed, x).tolist() == [np.iinfo(np.int32).min]
    assert result(Reduce("min", (0,)), typed, x).tolist() == [np.iinfo(np.int32).max]
    truths = TensorType(DType.BOOL, (1,))
    assert result(Reduce("max", (0,)), truths, np.zeros(0, bool)).tolist() == [False]
    assert result(Reduce("min", (0,)), truths, np.zeros(0, bool)).tolist() == [True]


def test_sums_keep_their_integer_type() -> None:
    x = np.full(3, 100, np.int8)
    assert result(Reduce("sum", (0,)), TensorType(DType.I8, (1,)), x).tolist() == [44]


def _window_by_hand(op: WindowReduce, x: Array, spatial: tuple[int, ...]) -> Array:
    rank = len(op.window)
    lead = x.shape[: x.ndim - rank]
    extents = x.shape[x.ndim - rank :]
    expected = np.full((*lead, *spatial), -np.inf if op.function == "max" else 0.0)
    for place in np.ndindex(*spatial):
        here, counted = expected[(..., *place)], 0
        for offset in np.ndindex(*op.window):
            moves = zip(place, op.strides, op.before, offset, op.dilations, strict=True)
            at = [p * s - b + o * d for p, s, b, o, d in moves]
            own = all(0 <= a < e for a, e in zip(at, extents, strict=True))
            reach = zip(at, extents, op.before, op.after, strict=True)
            counted += all(-b <= a < e + c for a, e, b, c in reach) if op.count_padding else own
            if own:
                element = x[(..., *at)]
                here = np.maximum(here, element) if op.function == "max" else here + element
        if op.function == "mean":
            with np.errstate(invalid="ignore"):
                here = here / np.float64(counted)
        expected[(..., *place)] = here
    return expected


_AXIS = st.tuples(
    st.integers(1, 6), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(0, 2), st.integers(0, 2)
)


@_QUICK
@given(
    function=st.sampled_from(["sum", "max", "mean"]),
    axes=st.lists(_AXIS, min_size=1, max_size=2),
    counts=st.booleans(),
    rounds_up=st.booleans(),
)
def test_windows(function: str, axes: list[tuple[int, ...]], counts: bool, rounds_up: bool) -> None:
    extents, window, strides, dilations, before, after = zip(*axes, strict=True)
    spatial = []
    for extent, size, stride, dilation, first, last in axes:
        room = extent + first + last - dilation * (size - 1) - 1
        assume(room >= 0)
        count = -(-room // stride) + 1 if rounds_up else room // stride + 1
        spatial.append(count - 1 if (count - 1) * stride >= extent + first else count)
    assume(min(spatial) >= 1)
    x = normal(2, *extents)
    op = WindowReduce(function, window, strides, dilations, before, after, counts)
    expected = _window_by_hand(op, x, tuple(spatial))
    np.testing.assert_allclose(result(op, f32(2, *spatial), x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("left", "right", "equation"),
    [
        ((3, 4), (4, 5), "mk,kn->mn"),
        ((2, 3, 4), (2, 4, 5), "bmk,bkn->bmn"),
        ((2, 3, 4), (4, 5), "bmk,kn->bmn"),
    ],
)
def test_matmul(left: tuple[int, ...], right: tuple[int, ...], equation: str) -> None:
    x, y = normal(*left), normal(*right, seed=1)
    expected = np.einsum(equation, x.astype(np.float64), y.astype(np.float64))
    np.testing.assert_allclose(result(Linear("matmul"), f32(*expected.shape), x, y), expected, rtol=1e-5, atol=1e-6)


@_QUICK
@given(
    group=st.integers(1, 2),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    before=st.tuples(st.integers(0, 2), st.integers(0, 1)),
    after=st.tuples(st.integers(0, 1), st.integers(0, 2)),
)
def test_conv(group: int, strides: Any, dilations: Any, before: Any, after: Any) -> None:
    x, w = normal(2, 2 * group, 6, 7), normal(3 * group, 2, 3, 2, seed=1)
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *zip(before, after, strict=True)])
    spans = [d * (k - 1) + 1 for d, k in zip(dilations, (3, 2), strict=True)]
    spatial = [(e - span) // s + 1 for e, span, s in zip(padded.shape[2:], spans, strides, strict=True)]
    expected = np.zeros((2, 3 * group, *spatial))
    for n, m, i, j in np.ndindex(*expected.shape):
        first = m // 3 * 2
        rows = slice(i * strides[0], i * strides[0] + spans[0], dilations[0])
        columns = slice(j * strides[1], j * strides[1] + spans[1], dilations[1])
        expected[n, m, i, j] = (padded[n, first : first + 2, rows, columns] * w[m]).sum()
    attributes = (
        ("after", after),
        ("before", before),
        ("dilations", dilations),
        ("group", group),
        ("strides", strides),
    )
    found = result(Linear("conv", attributes), f32(*expected.shape), x, w)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=lambda d: d.text)
def test_narrow_floats_are_rounded_once(dtype: DType) -> None:
    x = np.full(4096, 1.0 + 2.0**-7).astype(dtype.numpy)
    (found,) = result(Reduce("mean", (0,)), TensorType(dtype, (1,)), x)
    assert found == x[0]
    (total,) = result(Reduce("sum", (0,)), TensorType(dtype, (1,)), x)
    assert total == np.array(4096 * float(x[0])).astype(dtype.numpy)


def test_widened_values_are_not_rounded() -> None:
    x = np.array([1 / 3])
    assert result(Elementwise("neg"), f32(1), x, widen=True)[0] == -1 / 3
    assert result(Elementwise("cast"), TensorType(DType.F16, (1,)), x, widen=True)[0] == 1 / 3
    assert result(Elementwise("cast"), TensorType(DType.I32, (1,)), x, widen=True)[0] == 0
    assert result(Constant(np.array(0.1, np.float32)), f32(), widen=True) == np.float32(0.1)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F32, DType.F64], ids=lambda d: d.text)
def test_widened_values_are_infinite_where_their_type_is(dtype: DType) -> None:
    """A mask of attention is made so: (1 - m) * lowest; what a kernel computes of it goes on from an infinity."""
    scalar, largest = TensorType(dtype, (2,)), float(np.array(dtype.largest))
    twice = result(Elementwise("add"), scalar, *[np.array([largest, -largest])] * 2, widen=True)
    assert twice.dtype == np.float64
    assert twice.tolist() == [np.inf, -np.inf]
    back = result(Elementwise("sub"), scalar, twice, np.array([largest, -largest]), widen=True)
    assert back.tolist() == [np.inf, -np.inf]
    assert result(Elementwise("neg"), scalar, np.array([largest, np.nan]), widen=True)[0] == -largest
    assert np.isnan(result(Elementwise("neg"), scalar, np.array([largest, np.nan]), widen=True)[1])


def test_only_primitives_are_computed() -> None:
    for op in (Input(), Opaque(0, 0)):
        with pytest.raises(ValueError, match="no primitive"):
            apply(op, [], f32())


_GRAPH = parse_graph(
    """
%0 "x" f32[2] = input
%1 "two" f32[] = literal 2.0
%2 "o" f32[2] = opaque operator=0 output=0 (%0) @0
%3 "y" f32[2] = elementwise mul (%2, %1) @1
outputs (%3)
"""
)


def test_a_graph_is_evaluated_with_its_opaque_values_given() -> None:
    found = evaluate(_GRAPH, {0: numbered(2), 2: np.array([3, 4], np.float32)})
    assert sorted(found) == [0, 1, 2, 3]
    assert found[3].tolist() == [6, 8]
    assert found[3].dtype == np.float32
    assert evaluate(_GRAPH, {0: numbered(2), 2: np.array([1 / 3, 0])}, widen=True)[3][0] == 2 / 3


def test_a_fed_value_is_held_in_its_own_type() -> None:
    found = evaluate(_GRAPH, {0: np.array([1 / 3, 0]), 2: numbered(2)})
    assert found[0].dtype == np.float32


def test_what_must_be_fed() -> None:
    with pytest.raises(ValueError, match="o is not fed"):
        evaluate(_GRAPH, {0: numbered(2)})
    with pytest.raises(ValueError, match="x is not fed"):
        evaluate(_GRAPH, {2: numbered(2)})
    with pytest.raises(ValueError, match=r"x is f32\[2\]; it cannot be fed an array of shape \(3,\)"):
        evaluate(_GRAPH, {0: numbered(3), 2: numbered(2)})


def test_bfloat16_is_a_numpy_type() -> None:
    x = np.array([1, 2], ml_dtypes.bfloat16)
    assert result(Elementwise("add"), TensorType(DType.BF16, (2,)), x, x).tolist() == [2, 4]
