"""Files that are no models, and graphs that are not well-formed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

from korch_cli.core.errors import ExitCode, KorchError, ModelError, UsageError
from korch_cli.core.model import Bindings, Model
from korch_cli.core.types import DType
from korch_cli.load import load

Build = Callable[..., onnx.ModelProto]
Loader = Callable[..., Model]
NOTHING = Bindings({}, {})


def refused(loader: Loader, proto: onnx.ModelProto) -> ModelError:
    with pytest.raises(ModelError) as caught:
        loader(proto)
    assert caught.value.exit_code is ExitCode.BAD_MODEL
    return caught.value


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such model file") as caught:
        load(tmp_path / "absent.onnx", NOTHING)
    assert caught.value.exit_code is ExitCode.USAGE
    assert caught.value.where == str(tmp_path / "absent.onnx")


def test_a_folder_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="folder") as caught:
        load(tmp_path, NOTHING)
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 64, b"not a model, but text\n", onnx.ModelProto().SerializeToString()]
)
def test_bytes_that_are_no_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="no ONNX model") as caught:
        load(path, NOTHING)
    assert caught.value.exit_code is ExitCode.BAD_MODEL
    assert caught.value.where == str(path)


def test_the_file_name_does_not_choose_the_format(tmp_path: Path, build: Build) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(build([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, {"y": [2]}).SerializeToString())
    assert load(path, NOTHING).operators[0].op_type == "Relu"


def test_an_empty_graph(build: Build, loaded: Loader) -> None:
    assert "empty" in refused(loaded, build([], {"x": [2]}, {"x": [2]})).message


def test_a_model_that_imports_no_opset(build: Build, loaded: Loader) -> None:
    proto = build([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, {"y": [2]})
    del proto.opset_import[:]
    assert "opset" in refused(loaded, proto).message


def test_an_input_without_type(build: Build, loaded: Loader) -> None:
    proto = build([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, {"y": [2]})
    proto.graph.input[0].ClearField("type")
    assert "'x' has no type" in refused(loaded, proto).message


def test_an_input_without_element_type(build: Build, loaded: Loader) -> None:
    proto = build([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, {"y": [2]})
    proto.graph.input[0].type.tensor_type.elem_type = 0
    assert "'x' has no type" in refused(loaded, proto).message


def test_a_loop_names_a_node_in_it_and_its_tensor(build: Build, loaded: Loader) -> None:
    nodes = [
        helper.make_node("Relu", ["b"], ["y"], name="after"),
        helper.make_node("Add", ["x", "b"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
    ]
    error = refused(loaded, build(nodes, {"x": [2]}, {"y": [2]}))
    assert (error.message, error.where) in [
        ("the graph has a loop through tensor 'a'", "Add first"),
        ("the graph has a loop through tensor 'b'", "Relu second"),
    ]


def test_a_tensor_that_two_nodes_make(build: Build, loaded: Loader) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["y"], name="again")]
    error = refused(loaded, build(nodes, {"x": [2]}, {"y": [2]}))
    assert "'y' is defined twice" in error.message
    assert error.where == "Relu -> y; Abs again"


def test_a_node_that_makes_an_input(build: Build, loaded: Loader) -> None:
    error = refused(loaded, build([helper.make_node("Relu", ["x"], ["x"])], {"x": [2]}, {"x": [2]}))
    assert "'x' is defined twice" in error.message


def test_two_initializers_of_one_name(build: Build, loaded: Loader) -> None:
    proto = build([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [2]}, {"y": [2]}, {"w": np.ones(2, np.float32)})
    proto.graph.initializer.append(proto.graph.initializer[0])
    assert "'w' is defined twice" in refused(loaded, proto).message


def test_a_tensor_that_nothing_defines(build: Build, loaded: Loader) -> None:
    error = refused(loaded, build([helper.make_node("Add", ["x", "ghost"], ["y"])], {"x": [2]}, {"y": [2]}))
    assert "'ghost'" in error.message
    assert error.where == "Add -> y"


def test_a_graph_output_that_nothing_defines(build: Build, loaded: Loader) -> None:
    error = refused(loaded, build([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, {"z": [2]}))
    assert "output 'z'" in error.message


def test_a_subgraph_that_reads_what_nothing_defines(build: Build, loaded: Loader) -> None:
    out = helper.make_tensor_value_info("r", TensorProto.FLOAT, [2])
    branch = helper.make_graph([helper.make_node("Neg", ["ghost"], ["r"], name="inner")], "branch", [], [out])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    error = refused(loaded, build([node], {"c": (TensorProto.BOOL, [])}, {"y": [2]}))
    assert "'ghost'" in error.message
    assert error.where == "Neg inner"


def test_elements_that_do_not_fill_their_shape(build: Build, loaded: Loader) -> None:
    proto = build([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [2]}, {"y": [2]}, {"w": np.ones(2, np.float32)})
    proto.graph.initializer[0].dims[0] = 3
    error = refused(loaded, proto)
    assert "8 bytes do not fill the shape [3]" in error.message
    assert error.where == "w"


# ---- external data


def external(build: Build, location: str, **extent: Any) -> onnx.ModelProto:
    """x + w, with the four elements of w in another file."""
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    proto = build(nodes, {"x": [4]}, {"y": [4]}, {"w": np.arange(4, dtype=np.float32)})
    set_external_data(proto.graph.initializer[0], location, **extent)
    proto.graph.initializer[0].ClearField("raw_data")
    return proto


def test_external_data_is_read_when_asked_for(tmp_path: Path, build: Build, loaded: Loader) -> None:
    (tmp_path / "w.bin").write_bytes(b"skip" + np.arange(4, dtype=np.float32).tobytes() + b"rest")
    model = loaded(external(build, "w.bin", offset=4, length=16))
    (tmp_path / "w.bin").write_bytes(b"skip" + np.arange(10, 14, dtype=np.float32).tobytes())
    constant = model.constants["w"]
    assert (constant.dtype, constant.shape) == (DType.F32, (4,))
    np.testing.assert_array_equal(constant.array(), np.arange(10, 14, dtype=np.float32))


def test_external_data_stays_external(tmp_path: Path, build: Build, loaded: Loader) -> None:
    (tmp_path / "w.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    proto: Any = loaded(external(build, "w.bin")).proto
    (tensor,) = proto.graph.initializer
    assert tensor.data_location == TensorProto.EXTERNAL
    assert {e.key: e.value for e in tensor.external_data} == {"location": "w.bin"}


@pytest.mark.parametrize("location", ["/etc/hostname", "../w.bin", "sub/../w.bin", "..\\w.bin", "C:\\w.bin", ""])
def test_external_data_outside_of_the_folder(tmp_path: Path, build: Build, loaded: Loader, location: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(16))
    error = refused(loaded, external(build, location))
    assert f"{location!r} lies outside" in error.message
    assert error.where == "w"


def test_a_link_out_of_the_folder(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, build: Build, loaded: Loader
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "w.bin"
    elsewhere.write_bytes(bytes(16))
    (tmp_path / "w.bin").symlink_to(elsewhere)
    assert "lies outside" in refused(loaded, external(build, "w.bin")).message


def test_external_data_behind_a_hard_link(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, build: Build, loaded: Loader
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "w.bin"
    elsewhere.write_bytes(bytes(16))
    (tmp_path / "w.bin").hardlink_to(elsewhere)
    assert "hard link" in refused(loaded, external(build, "w.bin")).message


def test_a_missing_external_file(build: Build, loaded: Loader) -> None:
    error = refused(loaded, external(build, "absent.bin"))
    assert "'absent.bin'" in error.message
    assert error.where == "w"


@pytest.mark.parametrize("extent", [{}, {"offset": 8}, {"length": 8}])
def test_a_short_external_file(tmp_path: Path, build: Build, loaded: Loader, extent: dict[str, int]) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(20 if extent else 12))
    assert "needs 16 bytes" in refused(loaded, external(build, "w.bin", **extent)).message


def test_external_data_in_an_attribute_is_checked_too(build: Build, loaded: Loader) -> None:
    value = external(build, "../w.bin").graph.initializer[0]
    nodes = [helper.make_node("Constant", [], ["c"], value=value), helper.make_node("Add", ["x", "c"], ["y"])]
    assert "lies outside" in refused(loaded, build(nodes, {"x": [4]}, {"y": [4]})).message


def test_every_refusal_is_explained_in_one_string(build: Build, loaded: Loader) -> None:
    error: KorchError = refused(loaded, external(build, "../w.bin"))
    assert "(w)" in str(error)
    assert str(error).count("\n") == 1


_PLACES = ("input", "made", "node", "type", "domain", "dimension", "branch", "attribute", "function", "weight")


@pytest.mark.parametrize("place", _PLACES)
def test_a_name_that_is_no_text(tmp_path: Path, place: str) -> None:
    """Protobuf gives such a name as bytes."""
    name = {other: other for other in _PLACES} | {place: "ODDNAME"}
    make, info = helper.make_node, helper.make_tensor_value_info
    branches = [
        helper.make_graph([make(op, [name["made"]], [name["branch"]])], "b", [], [info(name["branch"], 1, None)])
        for op in ("Neg", "Abs")
    ]
    nodes = [
        make("Add", [name["input"], name["weight"]], [name["made"]], name=name["node"]),
        make("If", ["c"], ["e"], then_branch=branches[0], else_branch=branches[1]),
        make(name["type"], ["e"], ["h"], domain=name["domain"]),
        make("Bar", ["h"], ["y"], domain="own"),
    ]
    nodes[2].attribute.append(helper.make_attribute(name["attribute"], 1))
    opsets = [helper.make_opsetid(domain, version) for domain, version in (("", 17), ("own", 1), (name["domain"], 1))]
    body = [make("Exp", ["p"], [name["function"]]), make("Neg", [name["function"]], ["q"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [info(name["input"], 1, [name["dimension"]]), info("c", TensorProto.BOOL, [])],
        [info("y", 1, None)],
        [numpy_helper.from_array(np.ones(1, np.float32), name["weight"])],
    )
    function = helper.make_function("own", "Bar", ["p"], ["q"], body, opsets[:1])
    path = tmp_path / "m.onnx"
    content = helper.make_model(graph, opset_imports=opsets, functions=[function]).SerializeToString()
    bindings = Bindings({name["dimension"]: 2}, {})
    path.write_bytes(content)
    assert load(path, bindings).operators
    path.write_bytes(content.replace(b"ODDNAME", b"\xff\xfe\xe9\x80odd"))
    with pytest.raises(ModelError, match="no UTF-8 text") as caught:
        load(path, bindings)
    assert "odd" in str(caught.value.where)


@pytest.mark.parametrize("inside", [False, True])
def test_an_attribute_without_a_type(build: Build, loaded: Loader, inside: bool) -> None:
    softmax = helper.make_node("Softmax", ["x"], ["s"], axis=0)
    softmax.attribute[0].ClearField("type")
    node = softmax
    if inside:
        branch = helper.make_graph([softmax], "b", [], [helper.make_tensor_value_info("s", 1, None)])
        node = helper.make_node("If", ["c"], ["s"], then_branch=branch, else_branch=branch)
    proto = build([node, helper.make_node("Relu", ["s"], ["y"])], {"x": [2]}, {"y": [2]})
    if inside:
        proto.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    error = refused(loaded, proto)
    assert "'axis' has no type" in error.message
    assert "Softmax" in str(error.where)
