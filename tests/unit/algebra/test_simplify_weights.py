"""Affine maps go into weights where these can say them, and nowhere else; ONNX Runtime computes the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from korch_cli.algebra import simplify
from korch_cli.core.model import Bindings, Model
from korch_cli.core.types import Array
from korch_cli.load import load

F = np.float32
RNG = np.random.default_rng(0)


def drawn(*shape: int, dtype: Any = F) -> Array:
    return np.asarray(RNG.uniform(0.5, 1.5, shape)).astype(dtype)


def build(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, ...]],
    outputs: Sequence[str],
    weights: Mapping[str, Array],
    *,
    opset: int = 17,
    ir_version: int = 8,
    dtype: int = TensorProto.FLOAT,
    listed: Sequence[str] = (),
) -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    given = [info(name, dtype, shape) for name, shape in inputs.items()]
    given += [info(name, helper.np_dtype_to_tensor_dtype(weights[name].dtype), weights[name].shape) for name in listed]
    graph = helper.make_graph(
        nodes,
        "graph",
        given,
        [info(name, dtype, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def loaded(proto: onnx.ModelProto, folder: Path) -> Model:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return load(path, Bindings({}, {}))


def run(proto: object, feeds: Mapping[str, Array]) -> list[Array]:
    assert isinstance(proto, onnx.ModelProto)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, dict(feeds))]


def checked(proto: onnx.ModelProto, folder: Path) -> list[str]:
    """Simplify a model; return the types of the nodes that are left, after comparing what is computed."""
    model = loaded(proto, folder)
    found = simplify(model)
    if found is None:
        return [operator.op_type for operator in model.operators]
    assert isinstance(found.proto, onnx.ModelProto)
    onnx.checker.check_model(found.proto)
    feeds = {}
    for name in model.inputs:
        typed = model.types[name]
        feeds[name] = np.random.default_rng(1).standard_normal(typed.shape).astype(typed.dtype.numpy)
    for got, expected in zip(run(found.proto, feeds), run(model.proto, feeds), strict=True):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)
    return [node.op_type for node in found.proto.graph.node]


PRODUCTS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any], int, int]] = {
    "conv": ("Conv", (1, 4, 6, 5), (6, 4, 3, 2), {}, 4, 6),
    "conv of width 1": ("Conv", (2, 4, 6, 5), (6, 4, 1, 1), {}, 4, 6),
    "grouped conv": ("Conv", (1, 4, 6, 5), (6, 2, 3, 2), {"group": 2}, 4, 6),
    "depthwise conv": ("Conv", (1, 4, 6, 5), (8, 1, 3, 3), {"group": 4}, 4, 8),
    "conv in one dimension": ("Conv", (1, 4, 9), (3, 4, 3), {"strides": [2], "dilations": [2]}, 4, 3),
    "transposed conv": ("ConvTranspose", (1, 4, 5, 5), (4, 3, 2, 2), {}, 4, 3),
    "grouped transposed conv": ("ConvTranspose", (1, 4, 5, 5), (4, 3, 2, 2), {"group": 2}, 4, 6),
    "gemm": ("Gemm", (5, 4), (4, 6), {}, 4, 6),
    "transposed gemm": ("Gemm", (5, 4), (6, 4), {"transB": 1}, 4, 6),
    "matmul": ("MatMul", (5, 4), (4, 6), {}, 4, 6),
    "matmul of a stack": ("MatMul", (2, 3, 5, 4), (4, 6), {}, 4, 6),
}
MAPS: dict[str, tuple[str, bool]] = {
    "Mul": ("Mul", False),
    "Mul from the left": ("Mul", True),
    "Add": ("Add", False),
    "Add from the left": ("Add", True),
    "Sub": ("Sub", False),
    "Sub from the left": ("Sub", True),
    "Div": ("Div", False),
}


def coefficient(product: str, channels: int, form: str) -> Array:
    """One number, or one for each channel, so that it lies along the axis of the channels."""
    if form == "number":
        return drawn(1)
    rank = len(PRODUCTS[product][1])
    if PRODUCTS[product][0] in ("MatMul", "Gemm"):
        return drawn(channels)
    return drawn(channels, *(1,) * (rank - 2))


@pytest.mark.parametrize("form", ["number", "channels"])
@pytest.mark.parametrize("where", ["behind", "in front"])
@pytest.mark.parametrize("mapping", MAPS)
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("biased", [True, False])
def test_a_map_beside_a_product(
    tmp_path: Path, product: str, mapping: str, where: str, form: str, biased: bool
) -> None:
    op_type, shape, weights, attributes, inputs, outputs = PRODUCTS[product]
    function, flipped = MAPS[mapping]
    biased = biased and op_type != "MatMul"
    constants = {"w": drawn(*weights), "c": coefficient(product, outputs if where == "behind" else inputs, form)}
    operands = ["w"]
    if biased:
        constants["b"] = drawn(outputs)
        operands.append("b")
    first, last = ("x", "t") if where == "behind" else ("t", "y")
    node = helper.make_node(op_type, [first, *operands], [last], **attributes)
    source, target = ("t", "y") if where == "behind" else ("x", "t")
    beside = helper.make_node(function, ["c", source] if flipped else [source, "c"], [target])
    nodes = [node, beside] if where == "behind" else [beside, node]
    left = checked(build(nodes, {"x": shape}, ["y"], constants), tmp_path)
    shifts = function in ("Add", "Sub")
    impossible = (op_type == "MatMul" and shifts) or (op_type == "ConvTranspose" and where == "in front")
    assert left == ([n.op_type for n in nodes] if impossible else [op_type])


@pytest.mark.parametrize("product", [name for name in PRODUCTS if "conv" in name])
def test_batch_normalization_behind_a_convolution(tmp_path: Path, product: str) -> None:
    op_type, shape, weights, attributes, _, outputs = PRODUCTS[product]
    numbers = {name: drawn(outputs) for name in ("gamma", "beta", "mean", "var")}
    nodes = [
        helper.make_node(op_type, ["x", "w"], ["t"], **attributes),
        helper.make_node("BatchNormalization", ["t", *numbers], ["y"], epsilon=1e-3),
    ]
    assert checked(build(nodes, {"x": shape}, ["y"], {"w": drawn(*weights), **numbers}), tmp_path) == [op_type]


def test_batch_normalization_in_front_of_a_convolution(tmp_path: Path) -> None:
    numbers = {name: drawn(4) for name in ("gamma", "beta", "mean", "var")}
    nodes = [
        helper.make_node("BatchNormalization", ["x", *numbers], ["t"]),
        helper.make_node("Conv", ["t", "w"], ["y"]),
    ]
    proto = build(nodes, {"x": (1, 4, 5, 5)}, ["y"], {"w": drawn(3, 4, 2, 2), **numbers})
    assert checked(proto, tmp_path) == ["Conv"]


@pytest.mark.parametrize("padding", [{"pads": [1, 0, 0, 0]}, {"auto_pad": "SAME_UPPER"}])
@pytest.mark.parametrize(("function", "left"), [("Mul", ["Conv"]), ("Add", ["Add", "Conv"])])
def test_only_scales_cross_padding(tmp_path: Path, padding: dict[str, Any], function: str, left: list[str]) -> None:
    nodes = [helper.make_node(function, ["x", "c"], ["t"]), helper.make_node("Conv", ["t", "w"], ["y"], **padding)]
    proto = build(nodes, {"x": (1, 4, 5, 5)}, ["y"], {"w": drawn(3, 4, 2, 2), "c": drawn(1)})
    assert checked(proto, tmp_path) == left


def chain(*functions: str) -> list[onnx.NodeProto]:
    nodes = [helper.make_node("Conv", ["x", "w"], ["t0"])]
    for i, function in enumerate(functions):
        nodes.append(helper.make_node(function, [f"t{i}", f"c{i}"], [f"t{i + 1}"]))
    nodes.append(helper.make_node("Conv", [f"t{len(functions)}", "v"], ["y"]))
    return nodes


def test_whole_chains_disappear(tmp_path: Path) -> None:
    functions = ("Mul", "Add", "Sub", "Div", "Mul", "Add")
    constants = {"w": drawn(4, 3, 3, 3), "v": drawn(2, 4, 1, 1)} | {f"c{i}": drawn(1) for i in range(len(functions))}
    assert checked(build(chain(*functions), {"x": (1, 3, 6, 6)}, ["y"], constants), tmp_path) == ["Conv", "Conv"]


def test_weights_that_others_read_are_copied(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Mul", ["a", "c"], ["y"]),
        helper.make_node("Conv", ["x", "w"], ["z"]),
    ]
    proto = build(nodes, {"x": (1, 4, 5, 5)}, ["y", "z"], {"w": drawn(16, 4, 2, 2), "c": drawn(1)})
    assert checked(proto, tmp_path) == ["Conv", "Conv"]


def test_a_map_in_front_of_several_products(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Add", ["x", "c"], ["t"]),
        helper.make_node("Conv", ["t", "w"], ["y"]),
        helper.make_node("Conv", ["t", "v"], ["z"]),
    ]
    constants = {"w": drawn(3, 4, 2, 2), "v": drawn(2, 4, 1, 1), "c": drawn(4, 1, 1)}
    assert checked(build(nodes, {"x": (1, 4, 5, 5)}, ["y", "z"], constants), tmp_path) == ["Conv", "Conv"]


CONV = {"x": (1, 4, 5, 5)}
WEIGHTS = {"w": drawn(3, 4, 2, 2), "c": drawn(1)}
NOT_FOLDED: dict[str, onnx.ModelProto] = {
    "the product is an output": build(
        [helper.make_node("Conv", ["x", "w"], ["t"]), helper.make_node("Mul", ["t", "c"], ["y"])],
        CONV,
        ["y", "t"],
        WEIGHTS,
    ),
    "the product has another reader": build(
        [
            helper.make_node("Conv", ["x", "w"], ["t"]),
            helper.make_node("Mul", ["t", "c"], ["y"]),
            helper.make_node("Relu", ["t"], ["z"]),
        ],
        CONV,
        ["y", "z"],
        WEIGHTS,
    ),
    "the map has another reader": build(
        [
            helper.make_node("Mul", ["x", "c"], ["t"]),
            helper.make_node("Conv", ["t", "w"], ["y"]),
            helper.make_node("Relu", ["t"], ["z"]),
        ],
        CONV,
        ["y", "z"],
        WEIGHTS,
    ),
    "the map makes the tensor larger": build(
        [helper.make_node("Conv", ["x", "w"], ["t"]), helper.make_node("Mul", ["t", "c"], ["y"])],
        CONV,
        ["y"],
        {"w": drawn(1, 4, 2, 2), "c": drawn(3, 1, 1)},
    ),
    "the coefficients differ along an axis of the image": build(
        [helper.make_node("Conv", ["x", "w"], ["t"]), helper.make_node("Mul", ["t", "c"], ["y"])],
        CONV,
        ["y"],
        {"w": drawn(4, 4, 2, 2), "c": drawn(4)},
    ),
    "a division by zero": build(
        [helper.make_node("Conv", ["x", "w"], ["t"]), helper.make_node("Div", ["t", "c"], ["y"])],
        CONV,
        ["y"],
        {"w": drawn(3, 4, 2, 2), "c": np.zeros(1, F)},
    ),
    "a division of a constant": build(
        [helper.make_node("Conv", ["x", "w"], ["t"]), helper.make_node("Div", ["c", "t"], ["y"])], CONV, ["y"], WEIGHTS
    ),
    "the weights would overflow": build(
        [helper.make_node("Conv", ["x", "w"], ["t"]), helper.make_node("Mul", ["t", "c"], ["y"])],
        CONV,
        ["y"],
        {"w": drawn(3, 4, 2, 2) * F(1e30), "c": np.array([1e30], F)},
    ),
    "the weights can be replaced": build(
        [helper.make_node("Conv", ["x", "w"], ["t"]), helper.make_node("Mul", ["t", "c"], ["y"])],
        CONV,
        ["y"],
        WEIGHTS,
        listed=["w"],
    ),
    "the coefficient can be replaced": build(
        [helper.make_node("Conv", ["x", "w"], ["t"]), helper.make_node("Mul", ["t", "c"], ["y"])],
        CONV,
        ["y"],
        WEIGHTS,
        listed=["c"],
    ),
    "half precision": build(
        [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Mul", ["t", "c"], ["y"])],
        {"x": (3, 4)},
        ["y"],
        {"w": drawn(4, 2, dtype=np.float16), "c": drawn(1, dtype=np.float16)},
        dtype=TensorProto.FLOAT16,
    ),
    "a gemm that scales": build(
        [helper.make_node("Gemm", ["x", "w"], ["t"], alpha=2.0), helper.make_node("Mul", ["t", "c"], ["y"])],
        {"x": (3, 4)},
        ["y"],
        {"w": drawn(4, 2), "c": drawn(1)},
    ),
    "a product with itself": build(
        [helper.make_node("Mul", ["x", "x"], ["t"]), helper.make_node("Conv", ["t", "w"], ["y"])], CONV, ["y"], WEIGHTS
    ),
}


@pytest.mark.parametrize("name", NOT_FOLDED)
def test_what_weights_cannot_say_stays(tmp_path: Path, name: str) -> None:
    proto = NOT_FOLDED[name]
    assert checked(proto, tmp_path) == [node.op_type for node in proto.graph.node]


def test_a_branch_that_reads_the_product_keeps_it(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (bool k, float[1, 2, 3, 3] x) => (float[1, 2, 3, 3] y, float[1, 2, 3, 3] z)
        <float[2, 2, 1, 1] w = {1, 2, 3, 4}, float[1] c = {3}> {
          t = Conv(x, w)
          y = Mul(t, c)
          z = If(k) <then_branch = a () => (float[1, 2, 3, 3] p) { p = Neg(t) },
                     else_branch = b () => (float[1, 2, 3, 3] q) { q = Abs(t) }> }"""
    (tmp_path / "model.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    assert simplify(load(tmp_path / "model.onnx", Bindings({}, {}))) is None


@pytest.mark.parametrize("ir_version", [3, 4, 8])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_format_and_both_types(tmp_path: Path, ir_version: int, dtype: Any) -> None:
    constants = {"w": drawn(4, 2, dtype=dtype), "c": drawn(2, dtype=dtype)}
    listed = ["w", "c"] if ir_version == 3 else []
    nodes = [helper.make_node("Gemm", ["x", "w"], ["t"]), helper.make_node("Add", ["t", "c"], ["y"])]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = {"x": (3, 4)}
    proto = build(nodes, inputs, ["y"], constants, opset=11, ir_version=ir_version, dtype=element, listed=listed)
    assert checked(proto, tmp_path) == ["Gemm"]


def test_equal_models_are_simplified_equally(tmp_path: Path) -> None:
    constants = {"w": drawn(4, 3, 3, 3), "v": drawn(2, 4, 1, 1), "c0": drawn(1), "c1": drawn(1)}
    proto = build(chain("Mul", "Add"), {"x": (1, 3, 6, 6)}, ["y"], constants)
    first, second = (simplify(loaded(proto, tmp_path)) for _ in range(2))
    assert first is not None
    assert second is not None
    assert isinstance(first.proto, onnx.ModelProto)
    assert isinstance(second.proto, onnx.ModelProto)
    assert first.proto.SerializeToString(deterministic=True) == second.proto.SerializeToString(deterministic=True)
    assert [count for _, count in first.applied] == [2]
