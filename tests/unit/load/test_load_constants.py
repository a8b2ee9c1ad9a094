"""Constant nodes, dead ones, and constants of element types that korch lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from korch_cli.core.model import Model
from korch_cli.core.types import Array, DType, TensorType

Build = Callable[..., onnx.ModelProto]
Loader = Callable[..., Model]
Runner = Callable[..., list[Array]]

F = np.float32


def f(*values: float) -> Array:
    return np.array(values, F)


def i(*values: int) -> Array:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"value": helper.make_tensor("v", TensorProto.INT32, [2], [1, 2])}, np.array([1, 2], np.int32)),
        ({"value_float": 1.5}, np.array(1.5, F)),
        ({"value_floats": [1.5, 2.5]}, f(1.5, 2.5)),
        ({"value_int": 3}, np.array(3)),
        ({"value_ints": [3, 4]}, i(3, 4)),
        ({"value_string": "a"}, np.array("a", object)),
        ({"value_strings": ["a", "b"]}, np.array(["a", "b"], object)),
    ],
)
def test_constant_nodes_become_initializers(
    build: Build, loaded: Loader, run: Runner, attributes: dict[str, Any], expected: Array
) -> None:
    nodes = [helper.make_node("Constant", [], ["c"], **attributes), helper.make_node("Relu", ["x"], ["y"])]
    source = build(nodes, {"x": [1]}, {"y": [1]})
    source.graph.output.append(onnx.ValueInfoProto(name="c"))
    source.graph.output[1].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(expected.dtype)
    model = loaded(source)
    assert [operator.op_type for operator in model.operators] == ["Relu"]
    found = model.constants["c"].array()
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    assert run(model.proto, {"x": f(1)})[1].tolist() == run(source, {"x": f(1)})[1].tolist() == expected.tolist()


def test_sparse_constants_stay_nodes(build: Build, loaded: Loader) -> None:
    values = helper.make_tensor("v", TensorProto.FLOAT, [1], [5])
    indices = helper.make_tensor("n", TensorProto.INT64, [1], [2])
    sparse = helper.make_sparse_tensor(values, indices, [4])
    nodes = [helper.make_node("Constant", [], ["c"], sparse_value=sparse), helper.make_node("Add", ["x", "c"], ["y"])]
    model = loaded(build(nodes, {"x": [4]}, {"y": [4]}))
    assert [operator.op_type for operator in model.operators] == ["Constant", "Add"]
    assert "c" not in model.constants


def test_dead_nodes_and_initializers_are_removed(build: Build, loaded: Loader) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["dead"]),
        helper.make_node("Dropout", ["dead"], ["deader", ""]),
        helper.make_node("Clip", ["x", "", "high"], ["y"]),
    ]
    # The omitted input of Clip is not the omitted output of Dropout.
    model = loaded(build(nodes, {"x": [2], "high": []}, {"y": [2]}, {"w": f(1, 2)}))
    assert [operator.op_type for operator in model.operators] == ["Clip"]
    proto: Any = model.proto
    assert not proto.graph.initializer
    assert model.constants == {}


def test_element_types_that_korch_lacks_are_absent(build: Build, loaded: Loader) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale"], ["v"]),
        helper.make_node("Add", ["x", "v"], ["y"]),
    ]
    source = build(nodes, {"x": [2]}, {"y": [2]}, {"scale": np.asarray(F(0.5))}, opset=21, ir_version=10)
    source.graph.initializer.append(helper.make_tensor("w", TensorProto.INT4, [2], [1, -2]))
    model = loaded(source)
    assert "w" not in model.types
    assert set(model.constants) == {"scale"}
    assert model.types["v"] == TensorType(DType.F32, (2,))
