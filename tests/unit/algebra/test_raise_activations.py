"""Written-out hard sigmoids and hard swishes are raised; what only looks like one is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

from korch_cli.algebra import simplify
from korch_cli.core.model import Bindings
from korch_cli.core.types import Array
from korch_cli.load import load

HEAD = '<ir_version: 8, opset_import: ["": 17]> g (float[3, 40] x) => (float[3, 40] y{more})'
CONSTANTS = "<float three = {3}, float zero = {0}, float six = {6}, float[1] sixth = {0.16666667}, float other = {5}>"
RAISED = {
    "hard swish, divided": "a = Add(x, three) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)",
    "hard swish, multiplied": "a = Add(three, x) c = Clip(a, zero, six) m = Mul(c, x) y = Mul(sixth, m)",
    "hard sigmoid, divided": "a = Add(x, three) c = Clip(a, zero, six) y = Div(c, six)",
    "hard swish with the gate divided": "a = Add(x, three) c = Clip(a, zero, six) d = Div(c, six) y = Mul(x, d)",
}
KEPT = {
    "another shift": "a = Add(x, other) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)",
    "another bound": "a = Add(x, three) c = Clip(a, zero, other) m = Mul(x, c) y = Div(m, six)",
    "no lower bound": "a = Add(x, three) c = Clip(a, , six) m = Mul(x, c) y = Div(m, six)",
    "another divisor": "a = Add(x, three) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, other)",
    "a division the other way": "a = Add(x, three) c = Clip(a, zero, six) m = Mul(x, c) y = Div(six, m)",
    "another factor": "b = Relu(x) a = Add(x, three) c = Clip(a, zero, six) m = Mul(b, c) y = Div(m, six)",
    "no division": "a = Add(x, three) c = Clip(a, zero, six) y = Mul(x, c)",
    "a difference": "a = Sub(x, three) c = Clip(a, zero, six) y = Div(c, six)",
}


def run(proto: object, feeds: dict[str, Array]) -> Array:
    assert isinstance(proto, onnx.ModelProto)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


def written(tmp_path: Path, body: str, more: str = "") -> Path:
    path = tmp_path / "model.onnx"
    head = HEAD.replace("{more}", more)
    path.write_bytes(parser.parse_model(f"{head} {CONSTANTS} {{ {body} }}").SerializeToString())
    return path


@pytest.mark.parametrize("name", RAISED)
def test_written_out_activations_are_raised(tmp_path: Path, name: str) -> None:
    model = load(written(tmp_path, RAISED[name]), Bindings({}, {}))
    found = simplify(model)
    assert found is not None
    assert isinstance(found.proto, onnx.ModelProto)
    left = [node.op_type for node in found.proto.graph.node]
    assert left == (["HardSigmoid", "Mul"] if "swish" in name else ["HardSigmoid"])
    x = np.linspace(-8, 8, 120, dtype=np.float32).reshape(3, 40)
    np.testing.assert_allclose(run(found.proto, {"x": x}), run(model.proto, {"x": x}), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", KEPT)
def test_what_only_looks_like_one_stays(tmp_path: Path, name: str) -> None:
    assert simplify(load(written(tmp_path, KEPT[name]), Bindings({}, {}))) is None


@pytest.mark.parametrize("inside", ["a", "c", "m"])
def test_what_something_else_reads_stays(tmp_path: Path, inside: str) -> None:
    body = RAISED["hard swish, divided"]
    for more, rest in ((f", float[3, 40] {inside}", ""), (", float[3, 40] z", f"z = Relu({inside})")):
        assert simplify(load(written(tmp_path, f"{body} {rest}", more), Bindings({}, {}))) is None


def test_bounds_that_are_attributes(tmp_path: Path) -> None:
    text = """<ir_version: 4, opset_import: ["": 9]> g (float[3, 40] x) => (float[3, 40] y)
        <float three = {3}, float six = {6}> {
          a = Add(x, three) c = Clip<min = 0.0, max = 6.0>(a) m = Mul(x, c) y = Div(m, six) }"""
    path = tmp_path / "model.onnx"
    path.write_bytes(parser.parse_model(text).SerializeToString())
    assert simplify(load(path, Bindings({}, {}))) is not None


@pytest.mark.parametrize(
    ("operand", "result", "three", "six"),
    [("float[4, 5]", "float[1, 4, 5]", "float[1, 1, 1]", "float"), ("float[4]", "float[1, 4]", "float", "float[1, 1]")],
)
@pytest.mark.parametrize("last", ["y = Div(c, six)", "m = Mul(x, c) y = Div(m, six)"])
def test_constants_that_add_axes_stay(
    tmp_path: Path, operand: str, result: str, three: str, six: str, last: str
) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]> g ({operand} x) => ({result} y)
        <{three} three = {{3}}, float zero = {{0}}, float most = {{6}}, {six} six = {{6}}> {{
          a = Add(x, three) c = Clip(a, zero, most) {last} }}"""
    path = tmp_path / "model.onnx"
    path.write_bytes(parser.parse_model(text).SerializeToString())
    assert simplify(load(path, Bindings({}, {}))) is None


@pytest.mark.parametrize("name", RAISED)
def test_types_that_have_no_hard_sigmoid_in_onnxruntime_stay(tmp_path: Path, name: str) -> None:
    head = HEAD.replace("{more}", "")
    text = f"{head} {CONSTANTS} {{ {RAISED[name]} }}".replace("float", "double")
    path = tmp_path / "model.onnx"
    path.write_bytes(parser.parse_model(text).SerializeToString())
    model = load(path, Bindings({}, {}))
    assert simplify(model) is None
    run(model.proto, {"x": np.ones((3, 40))})
