"""Names that are taken, coefficients that are no numbers, and weights without elements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

from korch_cli.algebra import simplify
from korch_cli.core.model import Bindings, Model
from korch_cli.load import load

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
PRODUCT = "<float[2, 2] w = {1, 2, 3, 4}, float d = {2}> { a = MatMul(x, w) y = Mul(a, d)"
INNER = """z = If(c) <then_branch = t () => (float[3, 2] o) { "w/folded" = Neg(x) o = Relu("w/folded") },
    else_branch = e () => (float[3, 2] o2) { o2 = Identity(x) }>"""
TAKEN = {
    "in a body": f"g (float[3, 2] x, bool c) => (float[3, 2] y, float[3, 2] z) {PRODUCT} {INNER} }}",
    "by an input that nothing reads": f'g (float[3, 2] x, float[3] "w/folded") => (float[3, 2] y) {PRODUCT} }}',
}
NORMALIZED = """g (float[1, 2, 5] x) => (float[1, 2, 5] y) <float[2, 2, 1] w = {{1, 2, 3, 4}}, float[2] s = {{1, 2}},
    float[2] v = {{{}}}> {{ a = Conv(x, w) y = BatchNormalization<epsilon = 0.0>(a, s, s, s, v) }}"""
SCALED = """g (double[1, 2, 5] x) => (double[1, 2, 5] y) <double[2, 2, 1] w = {{0, 2, 3, 4}}, double d = {{{}}}>
    {{ a = Conv(x, w) y = {}(a, d) }}"""
NO_NUMBERS = {
    "a negative variance": NORMALIZED.format("-1, 1"),
    "no variance": NORMALIZED.format("0, 1"),
    "an infinite factor": SCALED.format("inf", "Mul"),
    "a factor that is no number": SCALED.format("nan", "Mul"),
    "a factor that overflows": SCALED.format("1e308", "Mul"),
    "a divisor whose inverse overflows": SCALED.format("1e-320", "Div"),
    "an infinite sum": SCALED.format("-inf", "Add"),
    "a factor near the largest number": SCALED.format("1e307", "Mul"),
    "a factor whose weights leave no room for sums": SCALED.format("1e160", "Mul"),
    "a factor near the smallest number": SCALED.format("1e-307", "Mul"),
    "a divisor near the largest number": SCALED.format("1e307", "Div"),
}
EMPTY = {
    "transposed convolution": """g (float[1, 2, 5] x) => (float[1, 0, 5] y) <float[2, 0, 1] w = {}, float d = {2}>
        { a = ConvTranspose(x, w) y = Mul(a, d) }""",
    "product": """g (float[3, 2] x) => (float[3, 0] y) <float[2, 0] w = {}, float d = {2}>
        { a = MatMul(x, w) y = Mul(a, d) }""",
}


def loaded(text: str, folder: Path) -> Model:
    path = folder / "model.onnx"
    path.write_bytes(parser.parse_model(HEAD + text).SerializeToString())
    return load(path, Bindings({}, {}))


@pytest.mark.parametrize("name", TAKEN)
def test_new_names_are_new_everywhere(tmp_path: Path, name: str) -> None:
    model = loaded(TAKEN[name], tmp_path)
    found = simplify(model)
    assert found is not None
    results = []
    for proto in (model.proto, found.proto):
        assert isinstance(proto, onnx.ModelProto)
        onnx.checker.check_model(proto)
        session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        types = {"tensor(float)": np.float32, "tensor(bool)": np.bool_}
        results.append(session.run(None, {i.name: np.ones(i.shape, types[i.type]) for i in session.get_inputs()}))
    for got, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", NO_NUMBERS)
def test_what_is_not_finite_stays_and_nothing_warns(tmp_path: Path, name: str) -> None:
    assert simplify(loaded(NO_NUMBERS[name], tmp_path)) is None


@pytest.mark.parametrize("name", EMPTY)
def test_weights_without_elements_stay(tmp_path: Path, name: str) -> None:
    assert simplify(loaded(EMPTY[name], tmp_path)) is None
