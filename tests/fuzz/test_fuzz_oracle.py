"""The judgement on random graphs: wide where a graph is ill-conditioned, narrow elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx.parser
import pytest

from korch_cli.core.types import Array
from tests.fuzz.oracle import NotJudged, difference, expect
from tests.fuzz.running import captures, reads


def _model(inputs: str, outputs: str, body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g ({inputs}) => ({outputs}) {{ {body} }}'
    )


def _x(*numbers: float) -> dict[str, Array]:
    return {"x": np.array(numbers, np.float32)}


def test_a_few_units_in_the_last_place_are_allowed_and_no_more() -> None:
    model = _model("float[3] x", "float[3] y", "three = Constant <value = float {3}> () y = Mul (x, three)")
    expected = expect(model, _x(1.0, -2.0, 1e-30))
    right = np.array([3.0, -6.0, 3e-30], np.float32)
    assert difference(["y"], [right], expected) is None
    assert difference(["y"], [np.nextafter(right, np.float32(9))], expected) is None
    for wrong in (1.0001, 1 + 1e-5, 0.0, -1.0, np.nan, np.inf):
        assert difference(["y"], [right * np.float32(wrong)], expected) is not None
    for place in range(3):
        assert difference(["y"], [np.where(np.arange(3) == place, right * np.float32(1.001), right)], expected)


def test_a_cancellation_is_judged_by_what_is_left_of_it() -> None:
    body = "big = Constant <value = float {65536}> () s = Add (x, big) y = Sub (s, big)"
    model = _model("float[4] x", "float[4] y", body)
    feeds = _x(0.1, 1.7, -0.3, 12.5)
    expected = expect(model, feeds)
    # Exact arithmetic is as right as float32, which holds 65536 to within 0.004.
    assert difference(["y"], [feeds["x"]], expected) is None
    assert difference(["y"], [feeds["x"] + np.float32(1)], expected) is not None


def test_a_rounding_to_integers_is_judged_away_from_ties() -> None:
    model = _model("float[3] x", "int64[3] y", "s = Sqrt (x) f = Floor (s) y = Cast <to = 7> (f)")
    expected = expect(model, _x(9.0, 10.0, 3.0))
    assert difference(["y"], [np.array([2, 3, 1])], expected) is None
    assert difference(["y"], [np.array([3, 2, 1])], expected) is not None
    assert expected.judged == (2, 3)


_SCALE = "g = Constant <value = float[2] {1.787, 0.02}> ()"


@pytest.mark.parametrize(
    ("body", "scale", "epsilon"),
    [
        (
            f"{_SCALE} b = Constant <value = float[2] {{0, 0}}> () y = InstanceNormalization (x, g, b)",
            [[1.787], [0.02]],
            1e-5,
        ),
        (f"{_SCALE} y = LayerNormalization (x, g)", [1.787, 0.02], 1e-5),
        ("y = MeanVarianceNormalization <axes = [2]> (x)", [1.0], 0.0),
    ],
)
def test_a_normalization_is_judged_by_what_its_mean_leaves(
    body: str, scale: list[list[float]] | list[float], epsilon: float
) -> None:
    # Of two numbers the larger one becomes 1 and the smaller one -1, whatever they are.
    means = 7 + 200 * np.random.default_rng(0).random((512, 2, 1))
    apart = np.array([[0, 0.157], [0.3, 0.01]]) * np.arange(1, 513).reshape(-1, 1, 1) / 64
    x = (means + apart).astype(np.float32)
    wide = x.astype(np.float64)
    exact = (
        (wide - wide.mean(2, keepdims=True))
        / np.sqrt(wide.var(2, keepdims=True) + epsilon)
        * np.asarray(scale, np.float32)
    )
    expected = expect(_model("float[512,2,2] x", "float[512,2,2] y", body), {"x": x})
    assert difference(["y"], [exact.astype(np.float32)], expected) is None
    assert difference(["y"], [(exact * 1.01).astype(np.float32)], expected) is not None


@pytest.mark.parametrize("number", [-1.3, 0.7, 1 / 3])
@pytest.mark.parametrize(("typed", "wrong"), [("double", 1e-9), ("float", 1e-3)])
@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceL1"])
def test_a_long_sum_may_be_rounded_one_way_all_along(operator: str, typed: str, wrong: float, number: float) -> None:
    x = np.full((1, 5000), number, typed if typed == "double" else "float32")
    one_by_one = np.add.accumulate(x if operator == "ReduceMean" else np.abs(x), axis=1)[:, -1:]
    right = one_by_one / x.dtype.type(5000 if operator == "ReduceMean" else 1)
    expected = expect(_model(f"{typed}[1,5000] x", f"{typed}[1,1] y", f"y = {operator} <axes = [1]> (x)"), {"x": x})
    assert difference(["y"], [right], expected) is None
    assert difference(["y"], [right * x.dtype.type(1 + wrong)], expected) is not None


@pytest.mark.parametrize(("number", "is_certain"), [(1e-45, False), (1e-37, True), (0.0, True)])
def test_below_the_least_normal_number_all_places_are_the_same(number: float, is_certain: bool) -> None:
    model = _model("float[2] x", "float[1] y", "a, b = Split <axis = 0> (x) q = Div (a, b) y = Ceil (q)")
    expected = expect(model, _x(number, 1.6846601))
    assert expected.outputs[0] == [np.ceil(number)]
    assert (difference(["y"], [1 - expected.outputs[0]], expected) is not None) == is_certain


_PARTS = "a, b = Split <axis = 0> (x)"
_NEAR_ONE = "s = Sqrt (x) q = Mul (s, s) m = ReduceMax <keepdims = 1> (q)"
_TWICE = (
    "s = Constant <value = int64[3] {1, 1, 2}> () g = Constant <value = float[2] {300, -300}> () r = Reshape (x, s)"
    "n = com.microsoft.SkipLayerNormalization (r, r, g) m = ReduceMax <keepdims = 0> (n)"
    "o = Constant <value = int64[1] {1}> () y = Reshape (m, o)"
)
_HALVES = "m = ReduceMax <keepdims = 1> (x) h = Cast <to = 10> (m) p = Softplus (h)"


@pytest.mark.parametrize(
    ("body", "numbers", "judged"),
    [
        ("y = ReduceMax <keepdims = 1> (x)", (1.0, float("nan")), 0),
        ("y = ReduceMax <keepdims = 1> (x)", (1.0, float("inf")), 1),
        ("m = ReduceMax <keepdims = 1> (x) n = Neg (m) y = Exp (n)", (1.0, float("nan")), 0),
        ("y = ReduceSum <keepdims = 1> (x)", (1.0, float("nan")), 1),
        ("s = ReduceSum <keepdims = 1> (x) y = Tan (s)", (1.0, 1e5), 0),
        ("s = ReduceSum <keepdims = 1> (x) y = Tan (s)", (1.0, 1e3), 1),
        ("s = ReduceSum <keepdims = 1> (x) y = Cos (s)", (1.0, float("inf")), 1),
        ("a = ArgMax <axis = 0> (x) y = Cast <to = 1> (a)", (1.0, 1.0000001), 0),
        ("a = ArgMax <axis = 0> (x) y = Cast <to = 1> (a)", (1.0, 1.0001), 1),
        ("a = ArgMin <axis = 0> (x) y = Cast <to = 1> (a)", (1.0, 1.0), 1),
        (f"{_PARTS} e = Equal (a, b) y = Cast <to = 1> (e)", (1.0, 1.0000001), 0),
        (f"{_PARTS} e = Equal (a, b) y = Cast <to = 1> (e)", (1.0, 1.0001), 1),
        (f"{_PARTS} e = Equal (a, a) y = Cast <to = 1> (e)", (1.0, 1.0), 1),
        (f"{_PARTS} t = Tanh (a) e = Equal (t, a) y = Cast <to = 1> (e)", (1e-4, 1.0), 0),
        (f"{_PARTS} t = Tanh (a) e = Equal (t, a) y = Cast <to = 1> (e)", (0.1, 1.0), 1),
        ("y = ReduceLogSumExp <keepdims = 1> (x)", (1.0, 1e3), 0),
        ("y = ReduceLogSumExp <keepdims = 1> (x)", (1.0, 89.0), 1),
        (f"{_HALVES} y = Cast <to = 1> (p)", (1.0, 12.0), 0),
        (f"{_HALVES} y = Cast <to = 1> (p)", (1.0, 9.0), 1),
        ("n = MeanVarianceNormalization <axes = [0]> (x) y = ReduceMax <keepdims = 1> (n)", (1.0, 1.0000001), 0),
        ("n = MeanVarianceNormalization <axes = [0]> (x) y = ReduceMax <keepdims = 1> (n)", (1.0, 1.01), 1),
        (_TWICE, (1.0, 1.0000001), 0),
        (_TWICE, (1.0, 1.01), 1),
        (f"{_NEAR_ONE} l = Log (m) y = Div (l, l)", (0.5, 0.99999994), 0),
        (f"{_NEAR_ONE} l = Log (m) y = Div (l, l)", (0.5, 0.999), 1),
    ],
)
def test_what_the_runtime_leaves_open_is_not_judged(body: str, numbers: tuple[float, ...], judged: int) -> None:
    assert expect(_model("float[2] x", "float[1] y", body), _x(*numbers)).judged == (judged, 1)


_LARGER = "m = ReduceMax <keepdims = 1> (x)"


@pytest.mark.parametrize(
    ("body", "is_certain"),
    [
        (f"{_LARGER} r = Sqrt (m) n = Neg (r) s = Add (r, n) y = Sign (s)", False),
        (f"{_LARGER} r = Sqrt (m) s = Sub (r, r) y = Sign (s)", True),
        (f"{_LARGER} n = Neg (m) s = Add (m, n) y = Sign (s)", True),
        (f"{_HALVES} r = Relu (p) y = Greater (p, r)", False),
        (f"{_HALVES} f = Floor (p) c = Ceil (f) y = Greater (f, c)", True),
        (f"{_LARGER} r = Sqrt (m) i = Identity (r) y = Less (i, r)", False),
        (f"{_LARGER} r = Sqrt (m) i = Identity (r) e = Exp (i) y = Less (r, e)", True),
    ],
)
def test_a_rounded_number_may_be_another_one_each_time_it_is_read(body: str, is_certain: bool) -> None:
    model = _model("float[2] x", "int64[1] z", f"{body} z = Cast <to = 7> (y)")
    assert expect(model, _x(1.5, 2.5)).is_open is not is_certain


@pytest.mark.parametrize("other", ["Abs (x)", "Exp (x)", "Mul (x, x)"])
@pytest.mark.parametrize("join", ["c = Concat <axis = 0> (x, o)", "w = Neg (x) c = Concat <axis = 0> (o, w)"])
def test_the_order_of_a_sum_is_as_free_beside_a_rounded_result(other: str, join: str) -> None:
    body = f"o = {other} {join} y = GlobalAveragePool (c)"
    model = _model("float[1,1,8] x", "float[2,1,1] y", body)
    numbers = np.array([[[0.7, -0.7001, 0.5, -0.3, 0.1, 0.2, -0.4, -0.1]]], np.float32)
    allowed = expect(model, {"x": numbers}).allowed[0]
    assert (allowed > np.abs(numbers).mean() * 2**-24).all()


@pytest.mark.parametrize(("number", "is_certain"), [(-1e-38, False), (-0.25, True), (0.0, True)])
def test_a_rounding_to_sixteen_bits_may_be_left_out(number: float, is_certain: bool) -> None:
    body = "h = Cast <to = 10> (x) s = Shrink <bias = 0.5, lambd = 0.0> (h) y = Cast <to = 1> (s)"
    expected = expect(_model("float[1] x", "float[1] y", body), _x(number))
    without = np.array([number + 0.5 if number < 0 else 0.0], np.float32)
    assert difference(["y"], [without], expected) is None
    assert (difference(["y"], [without + np.float32(0.5)], expected) is not None) == is_certain


@pytest.mark.parametrize(("number", "is_certain"), [(1e-6, False), (0.25, True), (0.0, True)])
@pytest.mark.parametrize("body", ["p = Mul (h, h)", "p = ReduceProd <axes = [0]> (h)"])
def test_what_vanishes_in_sixteen_bits_may_be_a_number_elsewhere(body: str, number: float, is_certain: bool) -> None:
    model = _model("float[2] x", "float[n] y", f"h = Cast <to = 10> (x) {body} c = Ceil (p) y = Cast <to = 1> (c)")
    expected = expect(model, _x(number, number))
    kept, other = expected.outputs[0], 1 - expected.outputs[0]
    assert difference(["y"], [kept], expected) is None
    assert (difference(["y"], [other], expected) is not None) == is_certain


@pytest.mark.parametrize(
    ("rows", "is_open"),
    [(((1.5, -1.5), (2.0, -2.0)), True), (((0.0, 0.0), (0.0, 0.0)), True), (((1.5, 1.0), (2.0, 1.0)), False)],
)
def test_how_many_are_not_zero_may_be_open(rows: tuple[tuple[float, float], ...], is_open: bool) -> None:
    model = _model("float[2,2] x", "int64[2,n] y", "s = ReduceSum <keepdims = 1> (x) y = NonZero (s)")
    expected = expect(model, {"x": np.array(rows, np.float32)})
    other = np.zeros((2, 1 - expected.outputs[0].shape[1]), np.int64)
    assert (difference(["y"], [other], expected) is None) == is_open


def test_a_run_may_fail_where_nothing_is_certain() -> None:
    body = "s = ReduceSumSquare <axes = [1], keepdims = 1> (x) n = NonZero (s) f = Cast <to = 1> (n) y = Neg (f)"
    model = _model("int64[3,1] x", "float[2,n] y", body)
    assert expect(model, {"x": np.array([[1], [-(2**63)], [3]])}).is_open
    assert not expect(model, {"x": np.array([[1], [0], [3]])}).is_open
    assert not expect(model, {"x": np.array([[0], [0], [0]])}).is_open


@pytest.mark.parametrize(("numbers", "is_run"), [((0.0, 0.0), True), ((1.0, 0.0), False)])
def test_nothing_is_said_where_parts_do_not_fit(numbers: tuple[float, float], is_run: bool) -> None:
    body = "i = NonZero (x) e = ConstantOfShape <value = int64[1] {7}> (s) y = Concat <axis = 0> (i, e)"
    model = _model("float[2] x, int64[2] s", "int64[m,n] y", body)
    feeds = {**_x(*numbers), "s": np.array([1, 0])}
    if is_run:
        assert expect(model, feeds).outputs[0].shape == (2, 0)
    else:
        with pytest.raises(NotJudged):
            expect(model, feeds)


def test_nothing_is_said_of_what_does_not_run() -> None:
    model = _model("float[2] x, int64[1] s", "float[n] y", "y = Reshape (x, s)")
    with pytest.raises(NotJudged):
        expect(model, {**_x(1.0, 2.0), "s": np.array([3])})


@pytest.mark.parametrize(
    ("instead", "words"),
    [
        (lambda y: y.astype(np.float64), "float64"),
        (lambda y: y[:2], "instead of"),
        (lambda y: -y, "differs in 3 of 3 elements"),
    ],
)
def test_a_difference_is_a_sentence(instead: Callable[[Array], Array], words: str) -> None:
    model = _model("float[3] x", "float[3] y", "y = Abs (x)")
    found = difference(["y"], [instead(np.array([1, 2, 3], np.float32))], expect(model, _x(1, -2, 3)))
    assert found is not None
    assert words in found


def test_what_a_body_captures_is_read() -> None:
    body = (
        "y = If (c) <then_branch = g1 () => (float[2] t) { a = Abs (x) t = Neg (a) }, "
        "else_branch = g2 () => (float[2] e) { e = Exp (z) }>"
    )
    (node,) = _model("float[2] x, float[2] z, bool c", "float[2] y", body).graph.node
    assert set(captures(node)) == {"x", "z"}
    assert set(reads(node)) == {"c", "x", "z"}
