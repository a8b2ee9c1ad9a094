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

from korch_cli.core.elementwise import FUNCTIONS
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


_X = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], np.float32)
_POINTS: dict[str, list[float]] = {
    "abs": [2.5, 1.5, 0.5, 0.5, 1.5, 2.5],
    "ceil": [-2, -1, 0, 1, 2, 3],
    "floor": [-3, -2, -1, 0, 1, 2],
    "neg": [2.5, 1.5, 0.5, -0.5, -1.5, -2.5],
    "reciprocal": [-0.4, -1 / 1.5, -2, 2, 1 / 1.5, 0.4],
    "round": [-2, -2, 0, 0, 2, 2],
    "sign": [-1, -1, -1, 1, 1, 1],
    "erf": [-0.999593048, -0.966105146, -0.520499878, 0.520499878, 0.966105146, 0.999593048],
    "sigmoid": [0.0758581800, 0.182425524, 0.377540669, 0.622459331, 0.817574476, 0.924141820],
    "softplus": [0.0788897, 0.2014133, 0.4740770, 0.9740770, 1.7014133, 2.5788897],
    "tanh": [-0.986614298, -0.905148254, -0.462117157, 0.462117157, 0.905148254, 0.986614298],
    "exp": [0.0820849986, 0.223130160, 0.606530660, 1.64872127, 4.48168907, 12.1824940],
    "sin": [-0.598472144, -0.997494987, -0.479425539, 0.479425539, 0.997494987, 0.598472144],
    "cos": [-0.801143616, 0.0707372017, 0.877582562, 0.877582562, 0.0707372017, -0.801143616],
}


_INSIDE = {"acos": 0.3, "acosh": 1.7, "asin": -0.4, "asinh": -2.0, "atan": 3.0, "atanh": 0.6, "cosh": 1.1, "sinh": -0.7}


@pytest.mark.parametrize("function", [*_INSIDE, "tan"])
def test_functions_of_angles(function: str) -> None:
    x = _INSIDE.get(function, 0.9)
    found = result(Elementwise(function), f32(1), np.array([x], np.float32))
    np.testing.assert_allclose(found, [getattr(math, function)(x)], rtol=1e-6)


def test_remainders() -> None:
    a, b = np.array([-7, 7, -7, 7], np.int32), np.array([3, -3, -3, 3], np.int32)
    typed = TensorType(DType.I32, (4,))
    assert result(Elementwise("mod"), typed, a, b).tolist() == [2, -2, -1, 1]
    assert result(Elementwise("fmod"), typed, a, b).tolist() == [-1, 1, -1, 1]
    x, y = np.array([-5.5, 5.5], np.float32), np.array([2, 2], np.float32)
    assert result(Elementwise("fmod"), f32(2), x, y).tolist() == [-1.5, 1.5]


def test_bits() -> None:
    a, b = np.array([0b1100, 0b1010], np.uint8), np.array([0b1010, 0b0011], np.uint8)
    typed = TensorType(DType.U8, (2,))
    assert result(Elementwise("bit_and"), typed, a, b).tolist() == [0b1000, 0b0010]
    assert result(Elementwise("bit_or"), typed, a, b).tolist() == [0b1110, 0b1011]
    assert result(Elementwise("bit_xor"), typed, a, b).tolist() == [0b0110, 0b1001]
    assert result(Elementwise("bit_not"), typed, a).tolist() == [0b11110011, 0b11110101]
    places = np.array([3, 9], np.uint8)
    assert result(Elementwise("shift_left"), typed, a, places).tolist() == [0b1100000, 0]
    assert result(Elementwise("shift_right"), typed, a, places).tolist() == [0b1, 0]


@pytest.mark.parametrize("function", sorted(_POINTS))
def test_functions_of_one_operand(function: str) -> None:
    np.testing.assert_allclose(result(Elementwise(function), f32(6), _X), _POINTS[function], rtol=1e-6)


def test_roots_and_logarithms_outside_of_their_domain() -> None:
    x = np.array([4, 0, -1, np.inf], np.float32)
    np.testing.assert_array_equal(result(Elementwise("sqrt"), f32(4), x), [2, 0, np.nan, np.inf])
    np.testing.assert_allclose(result(Elementwise("log"), f32(4), x), [np.log(4), -np.inf, np.nan, np.inf], rtol=1e-6)


_A, _B = np.array([-7, 7, 2, np.nan], np.float32), np.array([2, -2, 2, 1], np.float32)
_PAIRS: dict[str, list[float]] = {
    "add": [-5, 5, 4, np.nan],
    "sub": [-9, 9, 0, np.nan],
    "mul": [-14, -14, 4, np.nan],
    "div": [-3.5, -3.5, 1, np.nan],
    "pow": [49, 1 / 49, 4, np.nan],
    "max": [2, 7, 2, np.nan],
    "min": [-7, -2, 2, np.nan],
    "equal": [False, False, True, False],
    "greater": [False, True, False, False],
    "greater_equal": [False, True, True, False],
    "less": [True, False, False, False],
    "less_equal": [True, False, True, False],
}


@pytest.mark.parametrize("function", sorted(_PAIRS))
def test_functions_of_two_operands(function: str) -> None:
    dtype = FUNCTIONS[function].result or DType.F32
    found = result(Elementwise(function), TensorType(dtype, (4,)), _A, _B)
    np.testing.assert_allclose(found.astype(np.float64), _PAIRS[function], rtol=1e-6)


def test_logic() -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    typed = TensorType(DType.BOOL, (4,))
    assert result(Elementwise("and"), typed, a, b).tolist() == [False, False, False, True]
    assert result(Elementwise("or"), typed, a, b).tolist() == [False, True, True, True]
    assert result(Elementwise("xor"), typed, a, b).tolist() == [False, True, True, False]
    assert result(Elementwise("not"), typed, a).tolist() == [True, True, False, False]
    assert result(Elementwise("where"), f32(4), a, numbered(4), -numbered(4)).tolist() == [0, -1, 2, 3]


def test_every_function_is_tested_here() -> None:
    others = {"and", "or", "xor", "not", "where", "sqrt", "log", "cast"}
    others |= {*_INSIDE, "tan", "mod", "fmod"}
    others |= {"bit_and", "bit_or", "bit_xor", "bit_not", "shift_left", "shift_right"}
    assert {*_POINTS, *_PAIRS, *others} == set(FUNCTIONS)


def test_integers_are_divided_towards_zero() -> None:
    a, b = np.array([-7, 7, -7, 7, 6]), np.array([2, -2, -2, 2, 3])
    assert result(Elementwise("div"), TensorType(DType.I64, (5,)), a, b).tolist() == [-3, -3, 3, 3, 2]


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
