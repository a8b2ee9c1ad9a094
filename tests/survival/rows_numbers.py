"""Rows about element types, empty tensors, scalars, and numbers that are no ordinary ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper
from survival_row import Row, equal, error, floats, integers, model, opaque, row

INF, NAN = np.inf, np.nan
ODD = np.array(
    [0, -0.0, INF, -INF, NAN, 1e-45, -1e-45, 1e-38, 3e38, -3e38, 0.5, -0.5, 1.5, 2.5, -2.5, 88.8, -104, 7], np.float32
)
_NAMES: dict[str, Any] = {"float": np.float32, "double": np.float64, "float16": np.float16}
_NAMES |= {f"{u}int{b}": np.dtype(f"{u}int{b}").type for u in ("", "u") for b in (8, 16, 32, 64)}


def _arithmetic(name: str, opset: int = 14) -> Row:
    """Sums, differences and products, which wrap around in integers, and comparisons."""
    text = f"""g ({name}[6] x, {name}[6] z) => ({name}[6] y, bool[6] q, {name}[6] w) {{
        a = Add(x, z) b = Mul(a, x) y = Sub(b, z) q = Less(b, z) w = Where(q, a, x) }}"""
    dtype = _NAMES[name]
    if np.dtype(dtype).kind == "f":
        feeds = {"x": floats(6).astype(dtype), "z": floats(6, seed=1).astype(dtype)}
    else:
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        feeds = {"x": np.array([0, 1, most, least, most - 1, 7], dtype), "z": np.array([1, most, 1, 1, 3, 5], dtype)}
    return Row(model(text, opset=opset), feeds, equal(), data=("x",))


@row
def arithmetic_in_double_precision() -> Row:
    return _arithmetic("double")


@row
def arithmetic_in_int32_that_wraps() -> Row:
    return _arithmetic("int32")


@row
def arithmetic_in_int64_that_wraps() -> Row:
    return _arithmetic("int64")


@row
def arithmetic_in_half_precision() -> Row:
    text = """g (float[6] x) => (float[6] y) {
        a = Cast <to = 10> (x) b = Relu(a) c = Exp(b) d = Sqrt(c) y = Cast <to = 1> (d) }"""
    return Row(model(text), {"x": floats(6)}, equal(), tolerance=2e-3)


@row
def arithmetic_in_bfloat16() -> Row:
    text = """g (float[6] x) => (float[6] y) {
        a = Cast <to = 16> (x) b = Cast <to = 1> (a) c = Neg(b) y = Exp(c) }"""
    return Row(model(text), {"x": floats(6)}, equal(), tolerance=2e-2)


@row
def bytes_that_wrap() -> Row:
    text = """g (uint8[4] x) => (uint8[4] y, float[4] z, int32[4] i) {
        a = Cast <to = 6> (x) b = Mul(a, a) y = Cast <to = 2> (b) z = Cast <to = 1> (x) i = Neg(b) }"""
    return Row(model(text), {"x": np.array([0, 1, 200, 255], np.uint8)}, equal())


@row
def unsigned_numbers_beyond_half_of_their_range() -> Row:
    text = "g (uint64[3] x) => (uint64[3] y, bool[3] q) { y = Mod(x, m) q = Equal(y, x) }"
    x = np.array([2**64 - 1, 2**63, 5], np.uint64)
    return Row(model(text, m=np.array(10, np.uint64)), {"x": x}, equal())


@row
def least_integers() -> Row:
    text = "g (int32[3] x, int64[3] z) => (int32[3] y, int64[3] w) { a = Abs(x) y = Neg(a) b = Abs(z) w = Sub(b, one) }"
    feeds = {"x": np.array([-(2**31), 5, -7], np.int32), "z": np.array([-(2**63), 4, -4])}
    return Row(model(text, one=np.array(1)), feeds, equal(), data=("x", "z"))


@row
def truth_values() -> Row:
    text = """g (bool[4] x, bool[4] z, float[4] f) => (bool[4] y, float[4] w, bool[4] n) {
        a = And(x, z) b = Or(a, z) y = Xor(b, x) c = Not(y) w = Where(c, f, z0) n = Cast <to = 9> (f) }"""
    feeds = {
        "x": np.array([1, 1, 0, 0], bool),
        "z": np.array([1, 0, 1, 0], bool),
        "f": np.array([0.0, -0.0, NAN, 2], np.float32),
    }
    return Row(model(text, z0=np.float32(9)), feeds, equal(), data=("x", "f"))


@row
def conversions_to_integers() -> Row:
    text = """g (float[8] x) => (int32[8] y, int64[8] z, uint8[8] u) {
        a = Neg(x) y = Cast <to = 6> (a) z = Cast <to = 7> (a) b = Abs(a) u = Cast <to = 2> (b) }"""
    return Row(model(text), {"x": np.array([0, -0.0, 0.99, -0.99, 1.5, -1.5, 200.7, -3], np.float32)}, equal())


@row
def large_integers_that_become_floats() -> Row:
    text = "g (int64[4] x) => (float[4] y, double[4] z) { y = Cast <to = 1> (x) z = Cast <to = 11> (x) }"
    return Row(model(text), {"x": np.array([2**53 + 1, -(2**53) - 1, 2**63 - 1, 16777217])}, equal())


def _untouched(kind: int) -> Row:
    """A type that no kernel computes with, between two chains that it does."""
    text = f"""g (float[4] x) => (float[4] y) {{
        a = Neg(x) b = Cast <to = {kind}> (a) c = Identity(b) d = Cast <to = 1> (c) y = Exp(d) }}"""
    return Row(model(text, opset=21, ir=10), {"x": np.array([1, -2, 0, 3], np.float32)}, opaque("Cast", "Cast"))


@row
def eight_bit_floats() -> Row:
    return _untouched(TensorProto.FLOAT8E4M3FN)


@row
def eight_bit_floats_of_another_kind() -> Row:
    return _untouched(TensorProto.FLOAT8E5M2FNUZ)


@row
def four_bit_integers() -> Row:
    text = """g (float[4] x) => (float[4] y) { a = Neg(x) d = DequantizeLinear(w, s) b = Add(a, d) y = Exp(b) }"""
    proto = model(text, opset=21, ir=10, s=np.float32(0.5))
    weight = helper.make_tensor("w", TensorProto.INT4, [4], [1, -2, 7, -8])
    proto.graph.initializer.append(weight)
    return Row(proto, {"x": floats(4)}, opaque("DequantizeLinear"))


@row
def weights_in_half_precision_that_are_widened() -> Row:
    text = "g (float[2,4] x) => (float[2,3] y) { a = Relu(x) w = Cast <to = 1> (h) m = MatMul(a, w) y = Neg(m) }"
    return Row(model(text, h=floats(4, 3).astype(np.float16)), {"x": floats(2, 4)}, equal())


@row
def complex_numbers() -> Row:
    text = "g (float[1,8,1] x) => (float[1,8,2] y) { a = Neg(x) b = DFT <axis = 1> (a) y = Neg(b) }"
    return Row(model(text), {"x": floats(1, 8, 1)}, opaque("DFT"))


@row
def nothing_goes_through_a_chain() -> Row:
    text = "g (float[0,3] x, float[3] z) => (float[0,3] y, float[3,0] t) { a = Add(x, z) y = Exp(a) t = Transpose(y) }"
    return Row(model(text), {"x": floats(0, 3), "z": floats(3)}, equal(), fused_in=())


@row
def sums_and_extremes_of_nothing() -> Row:
    text = """g (float[0,3] x) => (float[3] y, float[3] p, float[0] z, float s) {
        a = Neg(x) y = ReduceSum <keepdims = 0> (a, axis) p = ReduceProd <axes = [0], keepdims = 0> (a)
        z = ReduceMax <axes = [1], keepdims = 0> (a) s = ReduceSum <keepdims = 0> (a) }"""
    return Row(model(text, axis=np.array([0])), {"x": floats(0, 3)}, equal(), fused_in=())


@row
def a_product_over_nothing() -> Row:
    text = "g (float[2,0] x, float[0,3] z) => (float[2,3] y) { a = Neg(x) m = MatMul(a, z) y = Add(m, b) }"
    feeds = {"x": floats(2, 0), "z": floats(0, 3)}
    return Row(model(text, b=floats(3)), feeds, equal(), data=("x", "z"), fused_in=())


@row
def nothing_is_joined_to_something() -> Row:
    text = """g (float[2,3] x, float[0,3] z) => (float[2,3] y, float[0,3] e) {
        a = Neg(x) c = Concat <axis = 0> (a, z, a) d = Slice(c, from, to) y = Exp(d)
        f = Slice(c, to, from) e = Neg(f) }"""
    weights: dict[str, Any] = {"from": np.array([1]), "to": np.array([3])}
    return Row(model(text, **weights), {"x": floats(2, 3), "z": floats(0, 3)}, equal(), fused_in=())


@row
def scalars_everywhere() -> Row:
    text = """g (float x, float[1] z, float[2,2] m) => (float y, float[2,2] w, float[1] v, float r) {
        a = Neg(x) y = Exp(a) w = Mul(m, y) v = Add(z, y) r = ReduceMax <keepdims = 0> (w) }"""
    feeds = {"x": np.float32(0.5), "z": floats(1), "m": floats(2, 2)}
    return Row(model(text), feeds, equal(), data=("x", "m"))


@row
def a_transposed_scalar() -> Row:
    text = "g (float x) => (float y, float z) { a = Neg(x) y = Transpose(a) b = Squeeze(a) z = Identity(b) }"
    return Row(model(text), {"x": np.float32(2)}, equal())


@row
def elementary_functions_of_odd_numbers() -> Row:
    outputs = ["Exp", "Log", "Sqrt", "Reciprocal", "Tanh", "Sigmoid", "Erf", "Sign", "Floor", "Ceil", "Round", "Abs"]
    signature = ", ".join(f"float[18] {o}" for o in outputs)
    nodes = " ".join(f"{o} = {o}(x)" for o in outputs)
    return Row(model(f"g (float[18] x) => ({signature}) {{ {nodes} }}"), {"x": ODD}, equal())


@row
def activations_of_odd_numbers() -> Row:
    outputs = ["Softplus", "Softsign", "Elu", "Selu", "LeakyRelu", "HardSigmoid", "HardSwish", "Relu", "Mish", "Celu"]
    signature = ", ".join(f"float[18] {o}" for o in outputs)
    nodes = " ".join(f"{o} = {o}(x)" for o in outputs)
    return Row(model(f"g (float[18] x) => ({signature}) {{ {nodes} }}", opset=18), {"x": ODD}, equal())


@row
def comparisons_of_odd_numbers() -> Row:
    text = """g (float[18] x, float[18] z)
        => (bool[18] l, bool[18] g0, bool[18] e, bool[18] n, bool[18] i, bool[18] p) {
        a = Neg(x) l = Less(a, z) g0 = GreaterOrEqual(a, z) e = Equal(a, z) n = IsNaN(a) i = IsInf(a)
        p = IsInf <detect_negative = 0> (a) }"""
    return Row(model(text), {"x": ODD, "z": np.roll(ODD, 1)}, equal(), data=("x", "z"))


@row
def powers_of_odd_numbers() -> Row:
    text = """g (float[6] x, float[6] e) => (float[6] y, float[6] s, float[6] h, float[6] i, float[6] c) {
        a = Neg(x) y = Pow(a, e) s = Pow(a, two) h = Pow(a, half) i = Pow(a, minus) c = Pow(a, whole) }"""
    weights: dict[str, Any] = {
        "two": np.float32(2),
        "half": np.float32(0.5),
        "minus": np.float32(-1),
        "whole": np.array(3),
    }
    feeds = {"x": np.array([0, -2, 3, -INF, NAN, 1], np.float32), "e": np.array([0, 2, -1.5, 2, 0, NAN], np.float32)}
    return Row(model(text, **weights), feeds, equal(), data=("x", "e"))


@row
def negative_zero() -> Row:
    text = """g (float[2] x) => (float[2] y, float[2] r, float[2] m) {
        a = Neg(x) b = Add(a, zero) y = Reciprocal(b) c = Mul(a, one) r = Reciprocal(c)
        d = Sub(a, zero) m = Reciprocal(d) }"""
    proto = model(text, zero=np.float32(0), one=np.float32(1))
    return Row(proto, {"x": np.array([0, -0.0], np.float32)}, equal())


def _extremes(x: Any, right: dict[str, Any]) -> Row:
    text = """g (float[N,M] x) => (float[N,1] y, float[N,1] z, float[N,M] p, float[N,M] q) {
        a = Neg(x) b = Neg(a) y = ReduceMax <axes = [1]> (b) z = ReduceMin <axes = [1]> (b)
        p = Max(b, one) q = Min(b, one) }"""
    return Row(model(text, one=np.float32(1)), {"x": x}, equal(), instead=right)


@row
def extremes_of_what_is_no_number() -> Row:
    # ONNX Runtime loses NaN or keeps it according to its place; a kernel always keeps it.
    x = np.array([[NAN, 1], [2, NAN], [NAN, NAN], [42, -42]], np.float32)
    one, most, least = np.float32(1), x.max(axis=1, keepdims=True), x.min(axis=1, keepdims=True)
    return _extremes(x, {"y": most, "z": least, "p": np.maximum(x, one), "q": np.minimum(x, one)})


@row
def extremes_of_infinities() -> Row:
    return _extremes(np.array([[INF, -INF], [-INF, -INF], [INF, INF], [-0.0, 0]], np.float32), {})


@row
def means_that_overflow() -> Row:
    text = """g (float[2,4] x) => (float[2,1] y, float[2,1] z) {
        a = Neg(x) y = ReduceMean <axes = [1]> (a) z = ReduceL2 <axes = [1]> (a) }"""
    x = np.array([[3e38, 3e38, 3e38, -3e38], [1e20, 2e20, 1, 0]], np.float32)
    return Row(model(text), {"x": x}, equal())


@row
def choices_between_odd_numbers() -> Row:
    text = """g (float[18] x, bool[18] c) => (float[18] y, float[18] z) {
        a = Neg(x) y = Where(c, a, zero) b = Mul(a, zero) z = Where(c, zero, b) }"""
    feeds = {"x": ODD, "c": np.arange(18) % 2 == 0}
    return Row(model(text, zero=np.float32(0)), feeds, equal())


@row
def a_tensor_of_seven_axes() -> Row:
    text = """g (float[2,1,3,1,2,1,2] x) => (float[2,1,2,3,1,1,2] y, float[2,3,2,2] z) {
        a = Neg(x) b = Transpose <perm = [6,5,4,2,1,3,0]> (a) y = Exp(b) s = Squeeze(a) z = Softmax(s) }"""
    return Row(model(text), {"x": floats(2, 1, 3, 1, 2, 1, 2)}, equal())


@row
def an_extent_that_is_a_prime() -> Row:
    text = "g (float[7,13,31] x) => (float[31,7,13] y) { a = Softmax(x) b = Transpose <perm = [2,0,1]> (a) y = Neg(b) }"
    return Row(model(text), {"x": floats(7, 13, 31)}, equal())


@row
def integers_divided_by_zero_never_reach_a_kernel() -> Row:
    text = "g (int64[2] x) => (int64[2] y) { a = Neg(x) b = Mul(a, zero) c = Add(b, one) y = Div(a, c) }"
    return Row(model(text, zero=np.array(0), one=np.array(1)), {"x": integers(2)}, equal())


@row
def an_element_type_that_does_not_exist() -> Row:
    proto = model("g (float[4] x) => (float[4] y) { y = Neg(x) }")
    proto.graph.input[0].type.tensor_type.elem_type = 99
    return Row(proto, {}, error(3, "99", "x"))
