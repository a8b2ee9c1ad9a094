"""Rules about convolutions, with whatever attributes: what ONNX Runtime makes of the result without optimisations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from korch_cli.algebra import simplify
from korch_cli.algebra.families import entered
from korch_cli.core.model import Bindings
from korch_cli.core.types import Array
from korch_cli.load import load

RULES = {rule.apply.__name__: rule for rule in entered()}
HEAD = '<ir_version: 8, opset_import: ["": {}]>'
BODY = """<then_branch = t () => (float o) {{ o = ReduceMax<keepdims = 0>({0}) }},
    else_branch = e () => (float f) {{ f = ReduceMin<keepdims = 0>({0}) }}>"""
PARTS = """g (float[2, 16, 5, 6] x0, float[2, 16, 5, 6] x1, bool c) => (float[a, b, d, e] y{more}) {{
    joined = Concat<axis = 1>({operands}) y = Conv<{attributes}>(joined, w) {rest} }}"""
HEADS = """g (float[2, 6, 5, 6] x0, bool c) => (float[a, b, d, e] y, float[a, f, d, e] z{more}) {{
    y = Conv<{attributes}>(x0, w) z = Conv<{attributes}>(x0, {second}) {rest} }}"""
PHASES = """g (float[2, 3, 8, 8] x0, bool c) => (float[a, b, d, e] y{more}) {{
    joined = SpaceToDepth<blocksize = 2>(x0) y = Conv<{attributes}>(joined, w) {rest} }}"""
ATTRIBUTES = (
    "",
    "strides = [2, 1]",
    "strides = [2, 2], pads = [1, 0, 2, 1]",
    "pads = [0, 1, 0, 0]",
    'auto_pad = "VALID"',
    'auto_pad = "SAME_UPPER"',
    'auto_pad = "SAME_LOWER", strides = [2, 2]',
    "dilations = [2, 1]",
    "group = 2",
)
KINDS = {"convolve_parts": (PARTS, 32), "join_convolutions": (HEADS, 6), "convolve_with_steps": (PHASES, 12)}


def run(proto: onnx.ModelProto) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(3)
    feeds = {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in session.get_inputs() if i.name != "c"}
    if len(feeds) < len(session.get_inputs()):
        feeds["c"] = np.array(True)
    return [np.asarray(array) for array in session.run(None, feeds)]


def check(folder: Path, rule: str, text: str, kernel: int, group: int = 1, opset: int = 17) -> int:
    """Compare what a rule makes of a model with the model; return how often the rule was applied."""
    proto = parser.parse_model(HEAD.format(opset) + text)
    rng = np.random.default_rng(kernel)
    inputs = KINDS[rule][1] // group
    for name, outputs in (("w", 4), ("v", 2)):
        weights = rng.standard_normal((outputs, inputs, kernel, kernel)).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(weights, name))
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    found = simplify(load(path, Bindings({}, {})), chosen=[RULES[rule]])
    if found is None:
        return 0
    assert isinstance(found.proto, onnx.ModelProto)
    onnx.checker.check_model(found.proto, full_check=True)
    for got, expected in zip(run(found.proto), run(proto), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    return sum(count for _, count in found.applied)


def written(rule: str, attributes: str, *, second: str = "v", more: str = "", rest: str = "") -> str:
    form = {"operands": "x0, x1", "attributes": attributes, "second": second, "more": more, "rest": rest}
    return KINDS[rule][0].format(**form)


@pytest.mark.parametrize("kernel", [1, 2])
@pytest.mark.parametrize("attributes", ATTRIBUTES)
@pytest.mark.parametrize("rule", KINDS)
def test_attributes_of_convolutions(tmp_path: Path, rule: str, attributes: str, kernel: int) -> None:
    shape = f"kernel_shape = [{kernel}, {kernel}]"
    text = written(rule, f"{shape}, {attributes}" if attributes else shape)
    applied = check(tmp_path, rule, text, kernel, group=2 if "group" in attributes else 1)
    if not attributes:
        assert applied == (0 if rule == "convolve_parts" and kernel > 1 else 1)


@pytest.mark.parametrize("rule", KINDS)
def test_tensors_inside_that_others_read(tmp_path: Path, rule: str) -> None:
    """An output of the graph, a body, and a body in a body read what the rule might remove."""
    inside = "z" if rule == "join_convolutions" else "joined"
    deep = f"<then_branch = t () => (float o) {{ o = If(c) {BODY.format(inside)} }}, "
    deep += "else_branch = e () => (float f2) { f2 = ReduceMin<keepdims = 0>(x0) }>"
    deep = deep.replace("(float o) { o = If", "(float o3) { o3 = If")
    for more, rest in (
        (", float[2, 6, 5, 6] again", "again = Relu(x0)"),
        (", float r", f"r = If(c) {BODY.format(inside)}"),
        (", float r", f"r = If(c) {deep}"),
        (f", float[g, h, i, j] {inside}" if inside == "joined" else "", ""),
    ):
        check(tmp_path, rule, written(rule, "kernel_shape = [1, 1]", more=more, rest=rest), 1)


def test_weights_that_two_convolutions_share(tmp_path: Path) -> None:
    text = written("join_convolutions", "kernel_shape = [1, 1]", second="w")
    assert check(tmp_path, "join_convolutions", text, 1) == 1


def test_a_concatenation_of_a_tensor_with_itself(tmp_path: Path) -> None:
    text = written("convolve_parts", "kernel_shape = [1, 1]").replace("(x0, x1)", "(x0, x0)")
    assert check(tmp_path, "convolve_parts", text, 1) == 0


def test_parts_that_others_read_stay_in_one_convolution(tmp_path: Path) -> None:
    more = {"more": ", float[2, 16, 5, 6] again", "rest": "again = Relu(x1)"}
    assert check(tmp_path, "convolve_parts", written("convolve_parts", "kernel_shape = [1, 1]", **more), 1) == 0


@pytest.mark.parametrize("opset", [1, 2, 7, 11, 13, 18, 21])
def test_every_version_of_split(tmp_path: Path, opset: int) -> None:
    """ONNX Runtime has no Split of version 1."""
    applied = check(
        tmp_path, "join_convolutions", written("join_convolutions", "kernel_shape = [1, 1]"), 1, opset=opset
    )
    assert applied == (opset > 1)
