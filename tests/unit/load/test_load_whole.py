"""Models as they are in their files: what reduction begins with, and what `korch inspect` says of a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from korch_cli.core.errors import UsageError
from korch_cli.core.model import Bindings
from korch_cli.core.types import DType, TensorType
from korch_cli.load import describe_file, read_whole

_NONE = Bindings({}, {})
_SYMBOLIC = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] x) => (float[n, 4] y) <float[n, 4] c> {
    two = Constant<value: tensor = float {2}>() a = Mul(x, two) shape = Shape(a) b = Reshape(a, shape)
    c = Relu(b) dead = Neg(c) y = Tanh(c) }"""


def _write(path: Path, text: str) -> Path:
    onnx.save_model(onnx.parser.parse_model(text), path)
    return path


def _proto(proto: object) -> onnx.ModelProto:
    assert isinstance(proto, onnx.ModelProto)
    return proto


def test_without_bindings_nothing_changes(tmp_path: Path) -> None:
    path = _write(tmp_path / "m.onnx", _SYMBOLIC)
    whole = read_whole(path, _NONE)
    assert _proto(whole.proto) == onnx.load_model(str(path))
    assert whole.static == {}
    # A dimension without a number is a dimension all the same.
    typed = whole.types["a"]
    assert isinstance(typed, onnx.TypeProto)
    assert [d.dim_param or d.dim_value for d in typed.tensor_type.shape.dim] == ["n", 4]
    assert whole.constants.keys() == {"two"}
    assert whole.constants["two"].array() == 2


def test_bindings_reach_whatever_the_file_states(tmp_path: Path) -> None:
    whole = read_whole(_write(tmp_path / "m.onnx", _SYMBOLIC), Bindings({"n": 3}, {}))
    graph = _proto(whole.proto).graph
    for info in (*graph.input, *graph.output, *graph.value_info):
        assert [d.dim_value for d in info.type.tensor_type.shape.dim] == [3, 4], info.name
    assert [node.op_type for node in graph.node].count("Constant") == 1
    assert len(graph.node) == 7
    assert whole.static["b"] == TensorType(DType.F32, (3, 4))
    # What follows from shapes is known once they are.
    assert whole.constants["shape"].array().tolist() == [3, 4]


def test_bindings_that_do_not_fit_are_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        read_whole(_write(tmp_path / "m.onnx", _SYMBOLIC), Bindings({"m": 3}, {}))


def test_nodes_are_sorted(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(_SYMBOLIC)
    nodes = list(proto.graph.node)[::-1]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    onnx.save_model(proto, tmp_path / "m.onnx")
    outputs = [node.output[0] for node in _proto(read_whole(tmp_path / "m.onnx", _NONE).proto).graph.node]
    assert outputs.index("a") < outputs.index("shape") < outputs.index("b") < outputs.index("y")


def test_what_cannot_be_loaded_is_read_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in loading is something to report too."""

    def broken(path: Path, bindings: Bindings) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("korch_cli.load.whole.load", broken)
    whole = read_whole(_write(tmp_path / "m.onnx", _SYMBOLIC), Bindings({"n": 3}, {}))
    assert "a" in whole.types
    assert whole.constants.keys() == {"two"}


def test_a_file_is_described_without_being_changed(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 17, "korch.a" : 1, "local" : 2],
                 producer_name: "p", producer_version: "3">
      g (float[4] x, bool flag) => (float[4] y) <float[4] w = {1, 2, 3, 4}> {
        a = korch.a.k_one(x, w) b = korch.a.k_one(a, w) c = korch.a.k_two(b)
        d = If(flag) < then_branch = yes () => (float[4] t) <float[4] inner = {1, 2, 3, 4}> { t = Add(c, inner) },
                       else_branch = no () => (float[4] e) { e = Neg(c) } >
        five = Constant<value: tensor = int64[2] {1, 2}>()
        y = Tanh(d) }
      <domain: "korch.a", opset_import: ["" : 17]> k_one (v, u) => (r) { r = Add(v, u) }
      <domain: "korch.a", opset_import: ["" : 17]> k_two (v) => (r) { r = Neg(v) }"""
    found = describe_file(_write(tmp_path / "m.onnx", text))
    assert (found.producer, found.ir_version, found.nodes, found.functions) == ("p 3", 9, 6, 2)
    assert found.opsets == {"ai.onnx": 17, "korch.a": 1, "local": 2}
    assert found.kernels == {"korch.a": {"k_one": 2, "k_two": 1}}
    # The weight, the one inside a branch, and the constant.
    assert (found.tensors, found.size_bytes) == (3, 16 + 16 + 16)
    assert found.external == ()


def test_types_that_korch_has_no_name_for_are_counted_by_what_they_take(tmp_path: Path) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT8E4M3FN, dims=[64], raw_data=bytes(64))
    info = helper.make_tensor_value_info
    node = helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)
    more = helper.make_node("Add", ["y", "x"], ["z"])
    outputs = [info("z", TensorProto.FLOAT, [64])]
    graph = helper.make_graph([node, more], "g", [info("x", TensorProto.FLOAT, [64])], outputs, [tensor])
    path = tmp_path / "m.onnx"
    onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), path)
    assert describe_file(path).size_bytes == 64
    weight = numpy_helper.from_array(np.zeros(4, np.float32), "v")
    graph.initializer.append(weight)
    onnx.save_model(helper.make_model(graph), path, save_as_external_data=True, location="d", size_threshold=0)
    found = describe_file(path)
    assert found.size_bytes == 64 + 16
    assert [(e.name, e.tensors, e.size_bytes) for e in found.external] == [("d", 2, 80)]
