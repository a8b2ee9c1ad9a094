"""The comparison of models with double precision."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from scripts.numerics import MOST, GatherElements, Row, error, line, widened, worst

THIRD = np.array(1 / 3, np.float32)


def evaluated(text: str, *arrays: np.ndarray) -> list[np.ndarray]:
    model = onnx.parser.parse_model(text)
    for i, array in enumerate(arrays):
        model.graph.initializer.append(numpy_helper.from_array(array, f"w{i}"))
    before = model.SerializeToString()
    found = ReferenceEvaluator(widened(model), new_ops=[GatherElements]).run(None, {"x": np.array([1.0, 2.0, 3.0])})
    assert model.SerializeToString() == before
    return list(found)


@pytest.mark.parametrize(
    "body",
    [
        "y = Mul (x, w0)",
        "t = Constant <value = float {0.33333334}> () y = Mul (x, t)",
        "t = Constant <value_float = 0.33333334> () y = Mul (x, t)",
        "i = Cast <to = 6> (x) f = Cast <to = 1> (i) y = Mul (f, w0)",
        "y = own.third (x)",
        "c = Constant <value_int = 1> () b = Cast <to = 9> (c) "
        "y = If (b) <then_branch = t () => (float[3] p) { p = Mul (x, w0) }, "
        "else_branch = e () => (float[3] q) { q = Identity (x) }>",
    ],
)
def test_everything_is_computed_in_double_precision(body: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17, "own" : 1]> g (float[3] x) => (float[3] y) {{ {body} }}
<domain: "own", opset_import: ["" : 17]> third (a) => (b) {{
  t = Constant <value = float {{0.33333334}}> ()
  b = Mul (a, t)
}}"""
    (y,) = evaluated(text, THIRD)
    assert y.dtype == np.float64
    np.testing.assert_allclose(y, np.array([1.0, 2.0, 3.0]) * float(THIRD), rtol=1e-15)


@pytest.mark.parametrize("opset", [9, 13, 17])
def test_normalization_has_the_means_that_it_is_given(opset: int) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]> g (float[3] x) => (float[1,3] y) {{
  s = Unsqueeze {"<axes = [0]> (x)" if opset < 13 else "(x, w4)"}
  y = BatchNormalization <momentum = 0.5> (s, w0, w1, w2, w3)
}}"""
    ones = np.ones(3, np.float32)
    (y,) = evaluated(text, ones, 0 * ones, 5 * ones, 4 * ones - np.float32(1e-5), np.array([0]))
    np.testing.assert_allclose(y, [[-2.0, -1.5, -1.0]], rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_elements_are_gathered_from_one_row_too(axis: int) -> None:
    data = np.array([[5.0, 6.0, 7.0]], np.float32)
    indices = np.zeros((1, 3), np.int64) if axis == 0 else np.array([[2, -1, 0, 1]])
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[3] x) => (float[1,n] y) {{
  y = GatherElements <axis = {axis}> (w0, w1)
}}"""
    (y,) = evaluated(text, data, indices)
    np.testing.assert_array_equal(y, data if axis == 0 else [[7.0, 7.0, 5.0, 6.0]])


def test_errors_are_relative_and_half_a_unit_at_least() -> None:
    reference = [np.array([3.0, 4.0])]
    assert error(reference, [np.array([3.0, 4.0], np.float32)]) == 2.0**-24
    assert error(reference, [np.array([3.0, 4.5], np.float32)]) == pytest.approx(0.1)
    assert error([*reference, np.zeros(2)], [np.array([3.0, 4.5]), np.zeros(2)]) == pytest.approx(0.1)
    assert error([np.zeros(2)], [np.array([0.0, 0.5])]) == 0.5


def test_the_worst_output_is_told_and_integers_are_left_out() -> None:
    wanted = [[np.array([1.0]), np.array([10]), np.array([1.0])]]
    runtime = [[np.array([1.001]), np.array([10]), np.array([1.01])]]
    korch = [[np.array([1.003]), np.array([99]), np.array([1.01])]]
    row = worst("m", ["a", "b", "c"], wanted, [runtime, korch])
    assert (row.name, row.output) == ("m", "a")
    assert row.ratio == pytest.approx(3.0)
    assert row.ratio > MOST
    assert "FAILED" in line(row)
    assert "FAILED" not in line(worst("m", ["a", "b", "c"], wanted, [korch, runtime]))
    assert line(Row("m", reason="unchanged")) == "| m | unchanged | | | |"
    assert worst("m", ["b"], [[np.array([1])]], [[[np.array([1])]], [[np.array([1])]]]).reason
