"""Rows about what operators mean: versions, attributes, and numbers that are no ordinary ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from survival_row import Row, equal, error, floats, integers, model, row

INF, NAN = np.inf, np.nan
ODD = np.array(
    [0.0, -0.0, INF, -INF, NAN, 1e-45, -1e-45, 1e-38, 3e38, -3e38, 0.5, -0.5, 1.5, 2.5, -2.5, 88.8, -104.0, 7.0],
    np.float32,
)


def chain(op: str, x: Any, shape: str | None = None, *, opset: int = 17, ir: int = 8, **more: Any) -> Row:
    """One operator between two others, so that a kernel has something to join."""
    dims = ",".join(map(str, x.shape))
    out = dims if shape is None else shape
    text = f"g (float[{dims}] x) => (float[{out}] y) {{ a = Neg(x) middle = {op} y = Neg(middle) }}"
    return Row(model(text, opset=opset, ir=ir, **more), {"x": x}, equal())


@row
def softmax_before_13_flattens() -> Row:
    return chain("Softmax(a)", floats(2, 3, 4), opset=11)


@row
def softmax_before_13_flattens_at_an_axis() -> Row:
    return chain("Softmax <axis = 2> (a)", floats(2, 3, 4, 2), opset=12)


@row
def log_softmax_before_13_flattens() -> Row:
    return chain("LogSoftmax <axis = 1> (a)", floats(2, 3, 4), opset=11)


@row
def hardmax_before_13_flattens() -> Row:
    return chain("Hardmax(a)", integers(2, 3, 4).astype(np.float32), opset=11)


@row
def softmax_from_13_on() -> Row:
    return chain("Softmax(a)", floats(2, 3, 4), opset=13)


@row
def softmax_along_a_middle_axis() -> Row:
    return chain("Softmax <axis = -2> (a)", floats(2, 3, 4), opset=13)


@row
def softmax_of_infinite_rows() -> Row:
    x = -np.array([[-INF, -INF], [INF, 0], [-INF, 0], [NAN, 0], [3e38, -3e38]], np.float32)
    return chain("Softmax <axis = 1> (a)", x)


@row
def softmax_of_nothing_but_masked_scores() -> Row:
    text = """g (float[1,2,4,8] q, float[1,2,4,8] k, float[1,2,4,8] v, float[1,1,4,4] m) => (float[1,2,4,8] y) {
        t = Transpose <perm = [0,1,3,2]> (k) s = MatMul(q, t) d = Div(s, root) e = Add(d, m) p = Softmax <axis = -1> (e)
        y = MatMul(p, v) }"""
    mask = np.zeros((1, 1, 4, 4), np.float32)
    mask[0, 0, 1], mask[0, 0, 2, :2] = -INF, -INF
    feeds = {n: floats(1, 2, 4, 8, seed=i) for i, n in enumerate("qkv")} | {"m": mask}
    return Row(model(text, root=np.float32(8**0.5)), feeds, equal(), data=("q", "k", "v"))


@row
def softmax_of_one_element() -> Row:
    return chain("Softmax <axis = 1> (a)", np.array([[1.0], [-INF], [NAN]], np.float32))


@row
def log_softmax_of_large_numbers() -> Row:
    return chain("LogSoftmax <axis = 1> (a)", np.array([[1e4, -1e4, 0], [3e38, 3e38, 1], [88, 89, 90]], np.float32))


def _clip(low: float | None, high: float | None, opset: int = 13, dtype: Any = np.float32) -> Row:
    limits = {"low": low, "high": high}
    weights: dict[str, Any] = {name: np.array(limit, dtype) for name, limit in limits.items() if limit is not None}
    call = f"Clip(a, {'low' if low is not None else ''}{', high' if high is not None else ''})"
    return chain(call, ODD.astype(dtype), opset=opset, **weights)


@row
def clip_with_bounds_the_wrong_way_round() -> Row:
    return _clip(2.0, 1.0)


@row
def clip_without_a_lower_bound() -> Row:
    return _clip(None, 1.0)


@row
def clip_without_an_upper_bound() -> Row:
    return _clip(-1.0, None)


@row
def clip_without_any_bound() -> Row:
    return chain("Clip(a)", floats(4), opset=13)


@row
def clip_by_attributes() -> Row:
    return chain("Clip <min = -1.0, max = 0.75> (a)", ODD, opset=9)


@row
def clip_by_bounds_that_come_from_outside() -> Row:
    text = "g (float[18] x, float low, float high) => (float[18] y) { a = Neg(x) b = Clip(a, low, high) y = Neg(b) }"
    return Row(model(text), {"x": ODD, "low": np.float32(-1), "high": np.float32(2)}, equal())


@row
def clip_by_infinities_and_nan() -> Row:
    text = """g (float[18] x) => (float[18] y, float[18] z) {
        a = Neg(x) b = Clip(a, low, high) y = Neg(b) c = Clip(a, zero, high) z = Neg(c) }"""
    return Row(model(text, low=np.float32(-INF), high=np.float32(INF), zero=np.float32(0)), {"x": ODD}, equal())


@row
def relu_and_clip_in_double_precision() -> Row:
    text = "g (double[6] x) => (double[6] y) { a = Relu(x) b = Clip(a, low, high) y = Neg(b) }"
    weights: dict[str, Any] = {"low": np.float64(0.1), "high": np.float64(1.0)}
    return Row(model(text, **weights), {"x": floats(6).astype(np.float64)}, equal())


@row
def relu_and_clip_of_small_integers() -> Row:
    text = "g (int8[6] x) => (int8[6] y) { b = Clip(x, low, high) y = Neg(b) }"
    weights: dict[str, Any] = {"low": np.int8(-3), "high": np.int8(4)}
    return Row(model(text, **weights), {"x": integers(6, dtype=np.int8)}, equal())


@row
def reshapes_with_zeros_that_mean_zero() -> Row:
    text = """g (float[0,6,2] x) => (float[0,0,3] y) {
        a = Reshape(x, s) b = Reshape <allowzero = 1> (a, t) y = Neg(b) }"""
    weights: dict[str, Any] = {"s": np.array([3, 2, -1]), "t": np.array([0, 0, 3])}
    return Row(model(text, **weights), {"x": floats(0, 6, 2)}, equal(), fused_in=())


@row
def reshapes_with_zeros_that_mean_copy() -> Row:
    text = "g (float[2,6,2] x) => (float[2,6,2] y) { a = Neg(x) b = Reshape(a, s) c = Reshape(b, t) y = Exp(c) }"
    weights: dict[str, Any] = {"s": np.array([0, -1]), "t": np.array([0, 6, 2])}
    return Row(model(text, **weights), {"x": floats(2, 6, 2)}, equal())


@row
def a_reshape_to_a_scalar_and_back() -> Row:
    text = (
        "g (float[1,1] x) => (float[1,1,1] y) { a = Neg(x) b = Reshape(a, s) c = Exp(b) d = Reshape(c, t) y = Neg(d) }"
    )
    return Row(model(text, s=np.zeros(0, np.int64), t=np.array([1, 1, -1])), {"x": floats(1, 1)}, equal())


def _split(x: Any, attributes: str, sizes: tuple[int, ...], opset: int = 18) -> Row:
    parts = ", ".join(f"p{i}" for i in range(len(sizes)))
    signature = ", ".join(f"float[{size}] y{i}" for i, size in enumerate(sizes))
    ends = " ".join(f"y{i} = Neg(p{i})" for i in range(len(sizes)))
    text = f"g (float[{len(x)}] x) => ({signature}) {{ a = Exp(x) {parts} = Split {attributes} {ends} }}"
    return Row(model(text, opset=opset, sizes=np.array(sizes)), {"x": x}, equal())


@row
def an_uneven_split() -> Row:
    return _split(floats(10), "<axis = 0, num_outputs = 3> (a)", (4, 4, 2))


@row
def a_split_by_sizes() -> Row:
    return _split(floats(10), "<axis = 0> (a, sizes)", (7, 0, 3))


@row
def a_split_by_an_attribute() -> Row:
    return _split(floats(10), "<axis = 0, split = [2, 8]> (a)", (2, 8), opset=11)


@row
def a_split_into_more_parts_than_there_are() -> Row:
    text = """g (float[5] x) => (float[2] p, float[2] q, float[1] r, float[0] s) {
        a = Exp(x) p, q, r, s = Split <axis = 0, num_outputs = 4> (a) }"""
    return Row(model(text, opset=18), {"x": floats(5)}, error(3, "Split"))


def _integers(text: str, **weights: Any) -> Row:
    feeds = {"x": np.array([8, -8, 7, -7, 0, 9, -9, 1]), "d": np.array([-3, 3, -2, 2, 5, 9, -9, -1])}
    return Row(model(text, **weights), feeds, equal(), data=("x", "d"))


@row
def integers_divided_and_their_remainders() -> Row:
    return _integers("""g (int64[8] x, int64[8] d) => (int64[8] q, int64[8] m) {
        a = Neg(x) q = Div(a, d) m = Mod(a, d) }""")


@row
def integers_divided_by_constants() -> Row:
    return _integers(
        """g (int64[8] x, int64[8] d) => (int64[8] q, int64[8] m, int64[8] p) {
        a = Neg(x) q = Div(a, three) b = Sub(a, d) m = Mod(b, minus) p = Mul(m, three) }""",
        three=np.array(3),
        minus=np.array(-3),
    )


@row
def remainders_of_floats() -> Row:
    text = """g (float[6] x, float[6] d) => (float[6] y, int64[6] z) {
        a = Neg(x) y = Mod <fmod = 1> (a, d) i = Cast <to = 7> (a) j = Cast <to = 7> (d) z = Mod <fmod = 1> (i, j) }"""
    feeds = {"x": np.array([5.5, -5.5, 7, -7, 8, 0.5], np.float32), "d": np.array([2, 2, -3, -3, 2.5, 1], np.float32)}
    return Row(model(text), feeds, equal())


@row
def weights_of_a_convolution_that_another_one_uses() -> Row:
    text = """g (float[1,3,6,6] x) => (float[1,4,4,4] y, float[1,4,4,4] z) {
        c = Conv(x, w) n = BatchNormalization(c, s, b, m, v) y = Relu(n) d = Conv(x, w) z = Exp(d) }"""
    weights: dict[str, Any] = {
        "s": floats(4),
        "b": floats(4, seed=1),
        "m": floats(4, seed=2),
        "v": np.abs(floats(4, seed=3)) + 0.5,
    }
    return Row(model(text, w=floats(4, 3, 3, 3) / 5, **weights), {"x": floats(1, 3, 6, 6)}, equal())


@row
def a_normalization_per_pixel_is_not_read_as_one_per_channel() -> Row:
    text = """g (float[2,3,2] x) => (float[2,3,2] y) {
        a = Neg(x) n = BatchNormalization <spatial = 0> (a, s, b, m, v) y = Relu(n) }"""
    weights: dict[str, Any] = {n: floats(3, 2, seed=i) for i, n in enumerate("sbm")} | {"v": np.abs(floats(3, 2)) + 0.5}
    return Row(model(text, opset=7, ir=3, **weights), {"x": floats(2, 3, 2)}, equal())


@row
def sums_of_many_numbers() -> Row:
    text = "g (float[2,5000] x) => (float[2,1] y, float[2,1] z) { a = Exp(x) y = ReduceSum(a, one) z = ReduceMean(a) }"
    proto = model(text.replace("ReduceMean(a)", "ReduceMean <axes = [1]> (a)"), one=np.array([1]))
    return Row(proto, {"x": floats(2, 5000)}, equal())


def _half_normalization(size: int) -> Row:
    text = """g (float16[2,8] x) => (float16[2,8] y) {
        m = ReduceMean <axes = [-1]> (x) d = Sub(x, m) q = Mul(d, d) v = ReduceMean <axes = [-1]> (q) e = Add(v, eps)
        r = Sqrt(e) y = Div(d, r) }"""
    x = np.tile(np.array([size, -size], np.float16), (2, 4))
    return Row(model(text, eps=np.float16(1e-3)), {"x": x}, equal())


@row
def variances_in_half_precision() -> Row:
    return _half_normalization(80)


@row
def variances_that_half_precision_cannot_hold() -> Row:
    # The squares are infinite, and a kernel says so; ONNX Runtime has no such operators on a CPU and widens them all.
    case = _half_normalization(800)
    return Row(case.model, case.feeds, case.expectation, instead={"y": case.feeds["x"] * np.float16(0)})


@row
def attention_to_nothing() -> Row:
    text = """g (float[1,2,3,8] q, float[1,2,3,8] k, float[1,2,3,8] v, bool[3,3] m) => (float[1,2,3,8] y) {
        a = Neg(q) b = Attention(a, k, v, m) y = Neg(b) }"""
    mask = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]], bool)
    feeds = {n: floats(1, 2, 3, 8, seed=i) for i, n in enumerate("qkv")} | {"m": mask}
    return Row(model(text, opset=23, ir=11), feeds, equal(), data=("q", "k", "v"))


@row
def statistics_of_a_batch_while_training() -> Row:
    text = """g (float[4,3,2] x) => (float[4,3,2] y, float[3] p, float[3] q) {
        a = Neg(x) y, p, q = BatchNormalization <training_mode = 1> (a, s, b, m, v) }"""
    weights: dict[str, Any] = {n: floats(3, seed=i) for i, n in enumerate("sbm")} | {"v": np.abs(floats(3)) + 0.5}
    return Row(model(text, **weights), {"x": floats(4, 3, 2)}, equal())


@row
def a_default_that_changes_nothing() -> Row:
    text = "g (float[2,6] x, float q) => (bool[2,6] m, float[2,6] y) { d, m = Dropout(x, q) y = Relu(d) }"
    return Row(model(text, q=np.float32(0.25)), {"x": floats(2, 6)}, equal(), variants=("as is",))
