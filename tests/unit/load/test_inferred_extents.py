"""Extents that ONNX Runtime computes otherwise than onnx infers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from korch_cli.core.model import Model
from korch_cli.core.types import Array, DType, TensorType

Build = Callable[..., onnx.ModelProto]
Loader = Callable[..., Model]
Runner = Callable[..., list[Array]]


@pytest.mark.parametrize("op_type", ["AveragePool", "LpPool", "MaxPool"])
@pytest.mark.parametrize("opset", [18, 21, 22])
def test_pools_have_no_windows_that_begin_behind_the_operand(
    op_type: str, opset: int, build: Build, loaded: Loader, run: Runner
) -> None:
    # Before version 22 onnx counts them.
    pool = helper.make_node(op_type, ["x"], ["p"], kernel_shape=[2, 2], strides=[3, 4], ceil_mode=1)
    source = build([pool, helper.make_node("Relu", ["p"], ["y"])], {"x": [1, 2, 7, 8]}, {"y": None}, opset=opset)
    (expected,) = run(source, {"x": np.ones((1, 2, 7, 8), np.float32)})
    types = loaded(source).types
    assert types["p"] == types["y"] == TensorType(DType.F32, expected.shape) == TensorType(DType.F32, (1, 2, 3, 2))


@pytest.mark.parametrize(("axis", "shape"), [(None, (2,)), (0, (2, 4)), (-1, (3, 2))])
@pytest.mark.parametrize("beyond", [0, 9])
def test_a_constant_condition_says_how_much_it_keeps(
    axis: int | None, shape: tuple[int, ...], beyond: int, build: Build, loaded: Loader, run: Runner
) -> None:
    node = helper.make_node("Compress", ["x", "condition"], ["c"])
    if axis is not None:
        node.attribute.append(helper.make_attribute("axis", axis))
    end = {None: 12, 0: 3, -1: 4}[axis]
    # What lies beyond the end of the axis counts for nothing.
    condition = np.array([True, False, True] + [False] * (end - 3) + [True] * beyond)
    source = build([node, helper.make_node("Relu", ["c"], ["y"])], {"x": [3, 4]}, {"y": None}, {"condition": condition})
    model = loaded(source)
    (expected,) = run(source, {"x": np.ones((3, 4), np.float32)})
    assert model.types["c"] == model.types["y"] == TensorType(DType.F32, expected.shape) == TensorType(DType.F32, shape)


MICROSOFT: list[tuple[str, dict[str, Any], list[list[int]]]] = [
    ("FusedMatMul", {"alpha": 0.5}, [[2, 3, 4], [4, 5]]),
    ("FusedMatMul", {"transA": 1}, [[2, 4, 3], [2, 4, 5]]),
    ("FusedMatMul", {"transB": 1}, [[7, 1, 3, 4], [2, 5, 4]]),
    ("FusedMatMul", {"transA": 1, "transB": 1}, [[4, 3], [6, 5, 4]]),
    ("FusedMatMul", {}, [[4], [4, 5]]),
    ("FusedMatMul", {}, [[3, 4], [4]]),
    ("FusedMatMul", {"transBatchA": 1}, [[3, 2, 4], [2, 4, 5]]),
    ("TransposeMatMul", {"transB": 1}, [[2, 3, 4], [2, 5, 4]]),
    ("FusedConv", {"activation": "Relu", "strides": [2, 2]}, [[1, 3, 9, 8], [5, 3, 3, 3]]),
    ("FusedConv", {"activation": "Relu"}, [[1, 3, 9, 8], [5, 3, 3, 3], [5], [1, 5, 7, 6]]),
    ("FusedGemm", {"activation": "Relu", "transB": 1}, [[3, 4], [5, 4], [5]]),
    ("SkipLayerNormalization", {}, [[2, 3, 8], [2, 3, 8], [8]]),
    ("SkipSimplifiedLayerNormalization", {}, [[2, 3, 8], [2, 3, 8], [8]]),
    ("BiasGelu", {}, [[2, 3, 8], [8]]),
    ("FastGelu", {}, [[2, 3, 8]]),
    ("QuickGelu", {}, [[2, 3, 8]]),
    ("Gelu", {}, [[2, 3, 8]]),
    ("MultiHeadAttention", {"num_heads": 2}, [[2, 3, 8], [2, 5, 8], [2, 5, 8]]),
    ("MultiHeadAttention", {"num_heads": 2}, [[2, 3, 8], [2, 5, 8], [2, 5, 12]]),
    ("Attention", {"num_heads": 2}, [[2, 3, 8], [8, 24], [24]]),
    ("Attention", {"num_heads": 2}, [[2, 3, 8], [8, 36], [36]]),
    ("Attention", {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 12]}, [[2, 3, 8], [8, 28], [28]]),
    ("SimplifiedLayerNormalization", {}, [[2, 3, 8], [8]]),
]


@pytest.mark.parametrize("opset", [13, 18, 22])
@pytest.mark.parametrize(("op_type", "attributes", "shapes"), MICROSOFT)
def test_what_onnx_runtime_writes_has_a_type_without_being_told(
    op_type: str,
    attributes: dict[str, Any],
    shapes: list[list[int]],
    opset: int,
    build: Build,
    loaded: Loader,
    run: Runner,
) -> None:
    domain = "" if op_type == "SimplifiedLayerNormalization" else "com.microsoft"
    names = [f"x{i}" for i in range(len(shapes))]
    nodes = [
        helper.make_node(op_type, names, ["t"], domain=domain, **attributes),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    imports = [helper.make_opsetid("com.microsoft", 1)]
    source = build(nodes, dict(zip(names, shapes, strict=True)), {"y": None}, imports=imports, opset=opset)
    feeds = {name: np.ones(shape, np.float32) for name, shape in zip(names, shapes, strict=True)}
    (expected,) = run(source, feeds)
    types = loaded(source).types
    if "transBatchA" in attributes or "qkv_hidden_sizes" in attributes:
        # It is not said, or said rightly.
        assert types.get("y", TensorType(DType.F32, expected.shape)) == TensorType(DType.F32, expected.shape)
    else:
        assert types["t"] == types["y"] == TensorType(DType.F32, expected.shape)


def test_conditions_follow_one_another(build: Build, loaded: Loader) -> None:
    nodes = [
        helper.make_node("Compress", ["x", "some"], ["c"], axis=0),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Compress", ["r", "others"], ["y"], axis=0),
    ]
    conditions = {"some": np.array([True, False, True, True]), "others": np.array([False, True, True, True])}
    types = loaded(build(nodes, {"x": [4, 2]}, {"y": None}, conditions)).types
    assert types["r"] == TensorType(DType.F32, (3, 2))
    assert types["y"] == TensorType(DType.F32, (2, 2))


def test_nothing_is_known_of_what_a_condition_keeps_of_unknown_extents(
    build: Build, loaded: Loader, run: Runner
) -> None:
    """There may be fewer elements than the condition speaks of."""
    nodes = [
        helper.make_node("Unique", ["x"], ["u"]),
        helper.make_node("Compress", ["u", "condition"], ["c"], axis=0),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    source = build(nodes, {"x": [4]}, {"y": None}, {"condition": np.ones(4, bool)})
    assert run(source, {"x": np.ones(4, np.float32)})[0].shape == (1,)
    assert not {"u", "c", "y"} & loaded(source).types.keys()
