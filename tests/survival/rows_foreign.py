"""Rows about sequences, optional values, strings, randomness, and operators that korch knows nothing of."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper
from onnx.reference.op_run import OpRun
from survival_row import Outputs, Row, equal, error, floats, integers, model, opaque, row


@row
def a_sequence_that_is_split_and_indexed() -> Row:
    text = """g (float[4,3] x) => (float[2,3] y) {
        a = Relu(x) s = SplitToSequence(a, two) e = SequenceAt(s, last) y = Neg(e) }"""
    weights: dict[str, Any] = {"two": np.array(2), "last": np.array(-1)}
    return Row(model(text, **weights), {"x": floats(4, 3)}, opaque("SplitToSequence", "SequenceAt"))


@row
def a_sequence_as_input_and_output() -> Row:
    text = """g (float[2] x, seq(float[2]) s) => (seq(float[2]) t, float[2] y) {
        a = Relu(x) t = SequenceInsert(s, a) e = SequenceAt(s, zero) n = Neg(a) y = Add(e, n) }"""
    proto = model(text, zero=np.array(0))
    return Row(proto, {"x": floats(2), "s": [floats(2), floats(2, seed=1)]}, opaque("SequenceInsert", "SequenceAt"))


@row
def an_empty_sequence() -> Row:
    text = """g (float[2] x) => (int64 n, float[2] y) {
        s = SequenceEmpty() a = Exp(x) t = SequenceInsert(s, a) n = SequenceLength(t) y = Neg(a) }"""
    return Row(model(text), {"x": floats(2)}, opaque("SequenceEmpty", "SequenceInsert", "SequenceLength"))


@row
def a_sequence_through_a_loop() -> Row:
    text = """g (float[2] x, int64 n) => (float[M] y) {
        h = Exp(x) true = Constant <value = bool {1}> () s = SequenceConstruct(h)
        last = Loop(n, true, s) <body = b (int64 i, bool go, seq(float[2]) q) => (bool on, seq(float[2]) r) {
            on = Identity(go) r = SequenceInsert(q, h) }>
        y = ConcatFromSequence <axis = 0> (last)
    }"""
    feeds = {"x": floats(2), "n": np.array(2)}
    return Row(model(text), feeds, opaque("Loop", "SequenceConstruct", "ConcatFromSequence"))


@row
def an_optional_value() -> Row:
    text = """g (float[2] x) => (float[2] y, bool p) {
        a = Exp(x) o = Optional(a) p = OptionalHasElement(o) e = OptionalGetElement(o) n = Neg(a) y = Add(e, n) }"""
    return Row(model(text), {"x": floats(2)}, opaque("Optional", "OptionalHasElement", "OptionalGetElement"))


@row
def an_optional_input() -> Row:
    text = """g (float[2] x, optional(float[2]) o) => (float[2] y, bool p) {
        a = Exp(x) p = OptionalHasElement(o) y = Neg(a) }"""
    return Row(model(text), {"x": floats(2), "o": None}, opaque("OptionalHasElement"), data=("x", "o"))


@row
def strings_beside_numbers() -> Row:
    text = """g (float[2] x, string[2] w) => (string[2] s, bool[2] q, float[2] y) {
        s = Identity(w) q = Equal(w, k) a = Exp(x) y = Where(q, a, x) }"""
    proto = model(text, opset=19, k=np.array(["a", "c"], object))
    return Row(proto, {"x": floats(2), "w": np.array(["a", "b"], object)}, equal())


@row
def words_that_are_counted_and_looked_up() -> Row:
    text = """g (float[3] x, string[3] w) => (float[3] y) {
        i = ai.onnx.ml.LabelEncoder <keys_strings = ["a", "b"], values_floats = [1.5, 2.5], default_float = -1.0> (w)
        a = Exp(x) y = Mul(a, i) }"""
    feeds = {"x": floats(3), "w": np.array(["b", "z", "a"], object)}
    return Row(model(text, domains={"ai.onnx.ml": 2}), feeds, opaque("LabelEncoder"))


def _differs_from_zero(outputs: Outputs) -> None:
    assert np.abs(outputs[0]).max() > 1e-3


@row
def random_numbers_that_are_drawn_twice() -> Row:
    text = """g (float[4] x) => (float[4] y) {
        p = RandomNormal <shape = [4]> () q = RandomNormal <shape = [4]> () d = Sub(p, q)
        z = Mul(x, zero) y = Add(d, z) }"""
    proto = model(text, zero=np.float32(0))
    return Row(proto, {"x": floats(4)}, opaque("RandomNormal", "RandomNormal"), judge=_differs_from_zero)


@row
def random_numbers_like_constants() -> Row:
    text = """g (float[4] x) => (float[4] y) {
        p = RandomUniformLike(w) q = RandomUniformLike(w) d = Sub(p, q) z = Mul(x, zero) y = Add(d, z) }"""
    proto = model(text, zero=np.float32(0), w=floats(4))
    expected = opaque("RandomUniformLike", "RandomUniformLike")
    return Row(proto, {"x": floats(4)}, expected, judge=_differs_from_zero)


def _is_a_half_dropped(outputs: Outputs) -> None:
    values = set(np.unique(outputs[0]))
    assert values == {0.0, -2.0}


@row
def a_dropout_that_trains() -> Row:
    text = """g (float[64] x) => (float[64] y) {
        z = Mul(x, zero) a = Exp(z) d = Dropout(a, ratio, training) y = Neg(d) }"""
    proto = model(text, zero=np.float32(0), ratio=np.float32(0.5), training=np.array(True))
    return Row(proto, {"x": floats(64)}, opaque("Dropout"), judge=_is_a_half_dropped)


def _is_drawn_from_two(outputs: Outputs) -> None:
    assert set(np.unique(outputs[0])) == {-1.0, 0.0}


@row
def bernoulli_and_multinomial() -> Row:
    text = """g (float[1,64] x) => (float[1,64] y, int32[1,5] k) {
        s = Sigmoid(x) b = Bernoulli(s) y = Neg(b) l = Log(s) k = Multinomial <sample_size = 5> (l) }"""
    return Row(model(text), {"x": floats(1, 64)}, opaque("Bernoulli", "Multinomial"), judge=_is_drawn_from_two)


class Foo(OpRun):
    """An operator that neither onnx nor ONNX Runtime knows: twice its operand, in half as many rows."""

    op_domain = "my.domain"

    def _run(self, x: Any, factor: float = 2.0) -> tuple[Any]:
        return (np.asarray(x * np.float32(factor), np.float32)[: len(x) // 2],)


@row
def an_unknown_operator() -> Row:
    text = "g (float[4] x) => (float[N] y) { a = Relu(x) h = Exp(a) b = my.domain.Foo <factor = 3.0> (h) y = Neg(b) }"
    proto = model(text, domains={"my.domain": 1})
    return Row(proto, {"x": floats(4)}, opaque("Foo", "Neg"), new_ops=(Foo,), variants=("as is",))


@row
def an_unknown_operator_with_a_stated_type() -> Row:
    text = "g (float[4] x) => (float[2] y) { a = Relu(x) b = my.domain.Foo(a) c = Neg(b) y = Exp(c) }"
    proto = model(text, domains={"my.domain": 1})
    proto.graph.value_info.append(helper.make_tensor_value_info("b", 1, [2]))
    return Row(proto, {"x": floats(4)}, opaque("Foo"), new_ops=(Foo,), variants=("as is",))


@row
def an_operator_that_only_onnx_runtime_knows() -> Row:
    text = "g (float[3,3] x) => (float[3,3] y) { a = Abs(x) t = Add(a, i) b = com.microsoft.Inverse(t) y = Neg(b) }"
    proto = model(text, domains={"com.microsoft": 1}, i=np.eye(3, dtype=np.float32) * 9)
    return Row(proto, {"x": floats(3, 3)}, opaque("Inverse"), tolerance=1e-4)


@row
def an_unknown_operator_in_a_known_domain() -> Row:
    text = "g (float[4] x) => (float[4] y) { a = Relu(x) h = Exp(a) y = Wobble(h) }"
    return Row(model(text), {"x": floats(4)}, error(3, "Wobble"))


@row
def a_domain_that_is_not_imported() -> Row:
    text = "g (float[4] x) => (float[4] y) { a = Relu(x) y = my.domain.Foo(a) }"
    return Row(model(text), {"x": floats(4)}, error(3, "my.domain"))


@row
def quantized_operators() -> Row:
    text = """g (float[2,4] x) => (float[2,4] y) {
        a = Relu(x) q = QuantizeLinear(a, s, z) d = DequantizeLinear(q, s, z) m = MatMul(d, w)
        n = QuantizeLinear(m, s, z) e = DequantizeLinear(n, s, z) y = Neg(e) }"""
    proto = model(text, s=np.float32(0.05), z=np.uint8(3), w=floats(4, 4))
    expected = opaque("QuantizeLinear", "QuantizeLinear", "DequantizeLinear", "DequantizeLinear")
    return Row(proto, {"x": floats(2, 4)}, expected)


@row
def recurrent_layers() -> Row:
    text = """g (float[5,2,3] x) => (float[5,1,2,4] y, float[1,2,4] c) {
        a = Exp(x) o, h, k = LSTM <hidden_size = 4> (a, w, r, b, , h0) y = Neg(o) c = Abs(k) }"""
    weights: dict[str, Any] = {"w": floats(1, 16, 3), "r": floats(1, 16, 4), "b": floats(1, 32), "h0": floats(1, 2, 4)}
    return Row(model(text, **weights), {"x": floats(5, 2, 3)}, opaque("LSTM"))


@row
def shapes_that_depend_on_values() -> Row:
    text = """g (float[3,4] x) => (int64[2,N] i, float[M] u, float[3,4] y) {
        a = Relu(x) i = NonZero(a) u = Unique(a) b = Exp(a) y = Neg(b) }"""
    return Row(model(text), {"x": floats(3, 4)}, opaque("NonZero", "Unique"))


@row
def a_sort_between_two_chains() -> Row:
    text = """g (float[2,6] x) => (float[2,3] y, int64[2,3] i) {
        a = Exp(x) b = Neg(a) v, i = TopK(b, k) c = Abs(v) y = Sqrt(c) }"""
    return Row(model(text, k=np.array([3])), {"x": floats(2, 6)}, opaque("TopK"))


@row
def boxes_that_suppress_each_other() -> Row:
    text = """g (float[1,6,4] x, float[1,2,6] s) => (int64[N,3] y, float[1,2,6] p) {
        b = Abs(x) p = Sigmoid(s) y = NonMaxSuppression(b, p, k, t) }"""
    weights: dict[str, Any] = {"k": np.array([3]), "t": np.array([0.5], np.float32)}
    feeds = {"x": floats(1, 6, 4), "s": floats(1, 2, 6)}
    return Row(model(text, **weights), feeds, opaque("NonMaxSuppression"), data=("x", "s"))


@row
def indices_that_come_from_outside() -> Row:
    text = """g (float[5,3] x, int64[4] i) => (float[4,3] y, float[5,3] z) {
        a = Exp(x) b = Gather(a, i) y = Neg(b) u = Unsqueeze(i, one) n = Shape(b) c = Expand(u, n)
        d = ScatterElements <axis = 0, reduction = "add"> (a, c, b) z = Abs(d) }"""
    feeds = {"x": floats(5, 3), "i": integers(4, low=-5, high=5)}
    return Row(model(text, opset=18, one=np.array([1])), feeds, equal())


def _unfed(kind: str, nodes: str, **weights: Any) -> Row:
    """An input for which `korch optimize` has no values to compare the outputs on."""
    text = f"g ({kind} odd, float[2] x) => (float[2] y) {{ {nodes} a = Exp(x) y = Neg(a) }}"
    return Row(model(text, opset=21, ir=10, **weights), {}, error(3, "odd", "cannot be fed"))


@row
def a_sequence_that_cannot_be_fed() -> Row:
    return _unfed("seq(float[2])", "e = SequenceAt(odd, zero)", zero=np.array(0))


@row
def an_optional_value_that_cannot_be_fed() -> Row:
    return _unfed("optional(float[2])", "p = OptionalHasElement(odd)")


@row
def an_eight_bit_float_that_cannot_be_fed() -> Row:
    return _unfed("float8e4m3fn[2]", "c = Cast <to = 1> (odd)")


@row
def a_four_bit_integer_that_cannot_be_fed() -> Row:
    return _unfed("int4[2]", "c = Cast <to = 1> (odd)")


@row
def a_complex_number_that_cannot_be_fed() -> Row:
    return _unfed("complex64[2]", "c = Identity(odd)")


def _wrong(text: str, *words: str) -> Row:
    """A model that ONNX Runtime refuses, for a reason that korch passes on."""
    return Row(model(text), {}, error(3, "ONNX Runtime", *words))


@row
def operands_of_two_types() -> Row:
    return _wrong("g (float[4] x, int64[4] z) => (float[4] y) { y = Add(x, z) }", "Add")


@row
def operands_that_do_not_fit() -> Row:
    return _wrong("g (float[4] x, float[3] z) => (float[4] y) { y = Add(x, z) }", "Add", "dimensions")


@row
def too_few_operands() -> Row:
    return _wrong("g (float[4] x) => (float[4] y) { y = Add(x) }", "Add")


@row
def an_axis_that_is_not_there() -> Row:
    return _wrong("g (float[4] x) => (float[4] y) { y = Softmax <axis = 7> (x) }", "axis")


@row
def an_output_of_another_type_than_stated() -> Row:
    return _wrong("g (float[4] x) => (int64[4] y) { a = Neg(x) y = Exp(a) }", "y")
