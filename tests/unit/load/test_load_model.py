"""What a loaded model says, and what of the file survives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from korch_cli.core.errors import ModelError
from korch_cli.core.model import Model
from korch_cli.core.types import Array, DType, TensorType
from korch_cli.load.structure import sorted_nodes

Build = Callable[..., onnx.ModelProto]
Loader = Callable[..., Model]
Runner = Callable[..., list[Array]]


def assert_aligned(model: Model) -> None:
    """Operators and nodes of the proto correspond one to one."""
    proto: Any = model.proto
    assert [o.index for o in model.operators] == list(range(len(proto.graph.node)))
    assert [o.name for o in model.operators] == [node.name for node in proto.graph.node]
    assert [o.outputs for o in model.operators] == [tuple(node.output) for node in proto.graph.node]


# ---- order and names


def test_nodes_are_sorted_and_otherwise_keep_their_order(build: Build, loaded: Loader) -> None:
    nodes = [
        helper.make_node("Add", ["a", "b"], ["y"], name="last"),
        helper.make_node("Abs", ["x"], ["b"], name="one"),
        helper.make_node("Neg", ["x"], ["a"], name="two"),
    ]
    model = loaded(build(nodes, {"x": [2]}, {"y": [2]}))
    assert [operator.name for operator in model.operators] == ["one", "two", "last"]
    assert_aligned(model)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.permutations(range(9)), st.lists(st.integers(0, 7), min_size=16, max_size=16))
def test_sorting_is_topological_and_idempotent(order: list[int], picks: list[int]) -> None:
    # Node n reads two tensors among x and the outputs of nodes before it.
    nodes = [
        helper.make_node("Add", [f"t{min(p, n)}" for p in (picks[n], picks[-n - 1])], [f"t{n + 1}"]) for n in range(9)
    ]
    x = helper.make_tensor_value_info("t0", TensorProto.FLOAT, [1])
    shuffled = helper.make_graph([nodes[n] for n in order], "g", [x], [])
    seen = {"t0"}
    result = sorted_nodes(shuffled)
    for node in result:
        assert seen.issuperset(node.input)
        seen.update(node.output)
    assert len(result) == len(nodes)
    again = sorted_nodes(helper.make_graph(result, "g", [x], []))
    assert [node.output[0] for node in again] == [node.output[0] for node in result]


def test_a_subgraph_makes_its_node_wait(build: Build, loaded: Loader, run: Runner) -> None:
    out = helper.make_tensor_value_info("r", TensorProto.FLOAT, [2])
    then = helper.make_graph([helper.make_node("Neg", ["late"], ["r"])], "then", [], [out])
    other = helper.make_graph([helper.make_node("Abs", ["late"], ["r"])], "else", [], [out])
    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        helper.make_node("Floor", ["x"], ["late"]),
    ]
    source = build(nodes, {"c": (TensorProto.BOOL, []), "x": [2]}, {"y": [2]})
    model = loaded(source)
    assert [operator.op_type for operator in model.operators] == ["Floor", "If"]
    assert model.operators[1].captures == ("late",)
    assert isinstance(model.operators[1].attributes["then_branch"], onnx.GraphProto)
    feeds = {"c": np.array(True), "x": np.array([1.5, 2.5], np.float32)}
    np.testing.assert_array_equal(run(model.proto, feeds)[0], [-1, -2])


def test_captures_reach_through_nested_subgraphs(build: Build, loaded: Loader) -> None:
    out = helper.make_tensor_value_info("r", TensorProto.FLOAT, [2])
    inner_nodes = [helper.make_node("Add", ["outer", "local"], ["r"])]
    inner = helper.make_graph(inner_nodes, "inner", [], [out])
    middle_nodes = [
        helper.make_node("Add", ["kept", "w"], ["local"]),
        helper.make_node("If", ["c"], ["m"], then_branch=inner, else_branch=inner),
    ]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2], [1, 2])
    middle = helper.make_graph(
        middle_nodes, "middle", [], [helper.make_tensor_value_info("m", TensorProto.FLOAT, [2])], [weight]
    )
    nodes = [
        helper.make_node("Abs", ["x"], ["outer"]),
        helper.make_node("Neg", ["x"], ["kept"]),
        helper.make_node("If", ["c"], ["y"], then_branch=middle, else_branch=middle),
    ]
    model = loaded(build(nodes, {"c": (TensorProto.BOOL, []), "x": [2]}, {"y": [2]}))
    assert set(model.operators[2].captures) == {"outer", "kept", "c"}
    # Abs and Neg are alive, though no node of the main graph names what they make.
    assert len(model.operators) == 3


def test_names_are_kept_and_made_unique(build: Build, loaded: Loader) -> None:
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="same"),
        helper.make_node("Abs", ["a"], ["b"]),
        helper.make_node("Abs", ["b"], ["c"], name="same"),
        helper.make_node("Abs", ["c"], ["y"], name="same_1"),
    ]
    model = loaded(build(nodes, {"x": [2]}, {"y": [2]}))
    names = [operator.name for operator in model.operators]
    assert (names[0], names[3]) == ("same", "same_1")
    assert len({*names, ""}) == 5
    assert_aligned(model)


# ---- attributes and domains


def test_attributes_are_decoded(build: Build, loaded: Loader) -> None:
    tensor = onnx.numpy_helper.from_array(np.arange(4, dtype=np.float32).reshape(2, 2))
    node = helper.make_node(
        "Custom", ["x"], ["y"], domain="com.example",
        one=1, half=0.5, text="abc", ints=[1, 2], floats=[0.5], texts=["a", "b"], tensor=tensor, tensors=[tensor],
        graph=helper.make_graph([], "inside", [], []), kind=helper.make_tensor_type_proto(TensorProto.FLOAT, [2]),
    )  # fmt: skip
    model = loaded(build([node], {"x": [2]}, {"y": [2]}, imports=[helper.make_opsetid("com.example", 3)]))
    operator = model.operators[0]
    found: Any = dict(operator.attributes)
    np.testing.assert_array_equal(found.pop("tensor"), [[0, 1], [2, 3]])
    np.testing.assert_array_equal(found.pop("tensors")[0], [[0, 1], [2, 3]])
    assert found.pop("graph").name == "inside"
    assert isinstance(found.pop("kind"), onnx.TypeProto)
    assert found == {"one": 1, "half": 0.5, "text": "abc", "ints": (1, 2), "floats": (0.5,), "texts": ("a", "b")}
    assert (operator.domain, operator.version) == ("com.example", 3)


def test_a_tensor_attribute_may_be_external(tmp_path: Path, build: Build, loaded: Loader) -> None:
    (tmp_path / "v.bin").write_bytes(np.array([7, 8], np.float32).tobytes())
    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="v.bin")
    node = helper.make_node("Custom", ["x"], ["y"], domain="com.example", value=tensor)
    model = loaded(build([node], {"x": [2]}, {"y": [2]}, imports=[helper.make_opsetid("com.example", 1)]))
    np.testing.assert_array_equal(model.operators[0].attributes["value"], [7, 8])


def test_both_names_of_the_default_domain_are_one(build: Build, loaded: Loader) -> None:
    proto = build([helper.make_node("Relu", ["x"], ["y"], domain="ai.onnx")], {"x": [2]}, {"y": [2]})
    proto.opset_import[0].domain = "ai.onnx"
    model = loaded(proto)
    assert model.operators[0].domain == ""
    assert model.operators[0].version == 17
    assert model.opsets == {"": 17}


# ---- what survives


def test_what_the_file_says_of_itself_survives(build: Build, loaded: Loader) -> None:
    source = build(
        [helper.make_node("Add", ["x", "w"], ["t"]), helper.make_node("Gemm", ["z", "t"], ["y"])],
        {"z": [2, 2], "x": ["n", 2]},
        {"y": [2, 2], "t": ["n", 2]},
        {"w": np.ones((2, 2), np.float32)},
        opset=15,
        ir_version=7,
        imports=[helper.make_opsetid("com.example", 2)],
        producer_name="tool",
        doc_string="of the model",
    )
    source.metadata_props.add(key="author", value="somebody")
    source.graph.doc_string = "of the graph"
    source.graph.node[0].doc_string = "of the node"
    source.graph.input[0].doc_string = "of the input"
    model = loaded(source, dims={"n": 2})
    proto: Any = model.proto
    assert model.inputs == ("z", "x")
    assert model.outputs == ("y", "t")
    assert [i.name for i in proto.graph.input] == ["z", "x"]
    assert [o.type.tensor_type.elem_type for o in proto.graph.output] == [TensorProto.FLOAT] * 2
    assert (model.ir_version, proto.ir_version, proto.producer_name) == (7, 7, "tool")
    assert model.opsets == {"": 15, "com.example": 2}
    assert (proto.doc_string, proto.graph.doc_string, proto.graph.name) == ("of the model", "of the graph", "graph")
    assert (proto.graph.node[0].doc_string, proto.graph.input[0].doc_string) == ("of the node", "of the input")
    assert [(p.key, p.value) for p in proto.metadata_props] == [("author", "somebody")]
    assert [tensor.name for tensor in proto.graph.initializer] == ["w"]
    onnx.checker.check_model(proto, full_check=True)


def test_an_output_may_be_an_input(build: Build, loaded: Loader) -> None:
    model = loaded(
        build([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n"]}, {"y": ["n"], "x": ["n"]}), dims={"n": 3}
    )
    proto: Any = model.proto
    assert [o.type.tensor_type.shape.dim[0].dim_value for o in proto.graph.output] == [3, 3]


# ---- functions


def functional(build: Build, function_opset: int = 17) -> onnx.ModelProto:
    """y = scale(scale(x)), where scale is a function with a constant in it; a second function is never called."""
    body = [
        helper.make_node("Constant", [], ["two"], value_floats=[2.0]),
        helper.make_node("Mul", ["a", "two"], ["b"]),
    ]
    opsets = [helper.make_opsetid("", function_opset)]
    scale = helper.make_function("local", "Scale", ["a"], ["b"], body, opsets)
    unused = helper.make_function("local", "Unused", ["a"], ["b"], body, opsets)
    nodes = [
        helper.make_node("Scale", ["x"], ["t"], domain="local"),
        helper.make_node("Scale", ["t"], ["y"], domain="local"),
    ]
    imports = [helper.make_opsetid("local", 1)]
    proto = build(nodes, {"x": [2]}, {"y": [2]}, imports=imports, functions=[scale, unused])
    proto.metadata_props.add(key="author", value="somebody")
    return proto


def test_functions_are_inlined(build: Build, loaded: Loader, run: Runner) -> None:
    source = functional(build)
    model = loaded(source)
    proto: Any = model.proto
    assert [operator.op_type for operator in model.operators] == ["Mul", "Mul"]
    assert not proto.functions
    assert model.notes == ("Model-local functions were inlined: Scale.",)
    assert [p.key for p in proto.metadata_props] == ["author"]
    feeds = {"x": np.array([1, -3], np.float32)}
    np.testing.assert_array_equal(run(proto, feeds)[0], run(source, feeds)[0])
    assert_aligned(model)


def test_functions_of_another_opset_stay(build: Build, loaded: Loader) -> None:
    model = loaded(functional(build, function_opset=13))
    assert [operator.op_type for operator in model.operators] == ["Scale", "Scale"]
    assert model.notes == ()


def test_a_function_that_calls_itself(build: Build, loaded: Loader) -> None:
    proto = functional(build)
    proto.functions[0].node.append(helper.make_node("Scale", ["b"], ["c"], domain="local"))
    with pytest.raises(ModelError, match="Scale"):
        loaded(proto)


# ---- types


def custom(build: Build, dims: Any) -> onnx.ModelProto:
    """A node that nobody knows, and one after it that everybody does."""
    nodes = [helper.make_node("Custom", ["x"], ["t"], domain="com.example"), helper.make_node("Relu", ["t"], ["y"])]
    return build(nodes, {"x": dims}, {"y": None}, imports=[helper.make_opsetid("com.example", 1)])


def test_what_cannot_be_inferred_is_absent(build: Build, loaded: Loader) -> None:
    model = loaded(custom(build, [2]))
    assert set(model.types) == {"x"}


def test_what_the_file_states_counts_where_inference_is_silent(build: Build, loaded: Loader) -> None:
    proto = custom(build, ["n"])
    proto.graph.value_info.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, [5]))
    model = loaded(proto, dims={"n": 2})
    assert model.types["t"] == model.types["y"] == TensorType(DType.F32, (5,))


def test_an_operator_that_cannot_be_inferred_leaves_the_rest_alone(build: Build, loaded: Loader) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["bad"]),
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Relu", ["bad"], ["z"]),
    ]
    model = loaded(build(nodes, {"x": [2, 3]}, {"y": None, "z": None}))
    assert model.types["y"].shape == (2, 3)
    assert "z" not in model.types


def test_operators_of_onnx_runtime_pass_types_on(build: Build, loaded: Loader) -> None:
    nodes = [
        helper.make_node("Gelu", ["x"], ["g"], domain="com.microsoft"),
        helper.make_node("SkipLayerNormalization", ["g", "x", "w"], ["n", "", "", "s"], domain="com.microsoft"),
        helper.make_node("Add", ["n", "s"], ["y"]),
    ]
    imports = [helper.make_opsetid("com.microsoft", 1)]
    weights = {"w": np.ones(4, np.float32)}
    model = loaded(build(nodes, {"x": ["n", 3, 4]}, {"y": None}, weights, imports=imports), dims={"n": 2})
    assert {model.types[name] for name in ("g", "n", "s", "y")} == {TensorType(DType.F32, (2, 3, 4))}
    assert [operator.op_type for operator in model.operators] == ["Gelu", "SkipLayerNormalization", "Add"]


def test_types_are_those_that_onnx_runtime_computes(build: Build, loaded: Loader, run: Runner) -> None:
    # onnx infers two-sided spectra here, ONNX Runtime makes one-sided ones.
    source = build(
        [helper.make_node("STFT", ["x", "step", "", "length"], ["s"]), helper.make_node("Abs", ["s"], ["y"])],
        {"x": [1, 128, 1]},
        {"y": None},
        {"step": np.array(8), "length": np.array(16)},
    )
    model = loaded(source)
    (expected,) = run(source, {"x": np.ones((1, 128, 1), np.float32)})
    assert "s" not in model.types
    assert model.types.get("y") in (None, TensorType(DType.F32, expected.shape))


def test_sequences_have_no_type(build: Build, loaded: Loader) -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"]),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
    ]
    model = loaded(build(nodes, {"x": [2]}, {"y": None}))
    assert "s" not in model.types
    assert [operator.op_type for operator in model.operators] == ["SequenceConstruct", "ConcatFromSequence"]


def test_half_precision_weights_are_constants(build: Build, loaded: Loader) -> None:
    source = build(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        {"x": (TensorProto.BFLOAT16, [2])},
        {"y": (TensorProto.BFLOAT16, [2])},
    )
    source.graph.initializer.append(helper.make_tensor("w", TensorProto.BFLOAT16, [2], [1.5, -2.0]))
    constant = loaded(source).constants["w"]
    assert constant.dtype is DType.BF16
    assert constant.array().dtype == DType.BF16.numpy
    np.testing.assert_array_equal(constant.array().astype(np.float32), [1.5, -2.0])


def test_outputs_keep_the_shape_that_the_file_states_where_inference_finds_none(build: Build, loaded: Loader) -> None:
    """A loop may change the shape of what it carries, so inference says nothing; without a shape a file is invalid."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Add", ["v", "v"], ["v2"]), helper.make_node("Identity", ["go"], ["go2"])],
        "body",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("v", TensorProto.FLOAT, [2, 3])],
        [info("go2", TensorProto.BOOL, []), info("v2", TensorProto.FLOAT, [2, 3])],
    )
    nodes = [
        helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body),
        helper.make_node("Odd", ["x"], ["z"], domain="custom"),
    ]
    weights = {"trips": np.array(3, np.int64)}
    imports = [helper.make_opsetid("custom", 1)]
    outputs = {"y": [2, 3], "z": ["rows", 3]}
    model = loaded(build(nodes, {"x": [2, 3]}, outputs, weights, imports=imports))
    proto: Any = model.proto
    onnx.checker.check_model(proto)
    assert all(output.type.tensor_type.HasField("shape") for output in proto.graph.output)
    assert model.types["y"] == TensorType(DType.F32, (2, 3))
    assert "z" not in model.types
