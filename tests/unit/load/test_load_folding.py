"""What constants and static shapes alone decide is computed once, as ONNX Runtime would, and no file grows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from korch_cli.core.model import Model
from korch_cli.core.types import Array, DType, TensorType
from korch_cli.load import fold as folding
from korch_cli.load.evaluate import FOLDABLE

Build = Callable[..., onnx.ModelProto]
Loader = Callable[..., Model]
Runner = Callable[..., list[Array]]

F = np.float32
I = np.int64  # noqa: E741 - beside F


def f(*values: float) -> Array:
    return np.array(values, F)


def i(*values: int) -> Array:
    return np.array(values, I)


GRID = np.arange(-6, 6, dtype=F).reshape(3, 4) / 4
POSITIVE = np.abs(GRID) + F(0.5)
COUNT = np.arange(12, dtype=I).reshape(3, 4)

FOLDED: list[tuple[str, list[Any], dict[str, Any], int]] = [
    ("Abs", [GRID], {}, 17),
    ("Add", [GRID, f(1, 2, 3, 4)], {}, 17),
    ("And", [GRID > 0, GRID < 1], {}, 17),
    ("Cast", [GRID], {"to": TensorProto.INT64}, 17),
    ("Cast", [GRID], {"to": TensorProto.BOOL}, 17),
    ("Cast", [GRID], {"to": TensorProto.FLOAT16}, 17),
    ("Cast", [COUNT], {"to": TensorProto.FLOAT}, 17),
    ("Cast", [COUNT - 5], {"to": TensorProto.UINT8}, 17),
    ("Ceil", [GRID], {}, 17),
    ("Clip", [GRID, F(-0.5), F(0.5)], {}, 17),
    ("Clip", [GRID], {"min": -0.5, "max": 0.5}, 10),
    ("Compress", [GRID, np.array([True, False, True])], {"axis": 0}, 17),
    ("Concat", [COUNT, COUNT], {"axis": -1}, 17),
    ("ConstantOfShape", [i(2, 3)], {}, 17),
    ("ConstantOfShape", [i(2, 3)], {"value": helper.make_tensor("v", TensorProto.INT64, [1], [7])}, 17),
    ("Cos", [GRID], {}, 17),
    ("CumSum", [GRID, I(1)], {"exclusive": 1, "reverse": 1}, 17),
    ("Div", [GRID, POSITIVE], {}, 17),
    ("Div", [COUNT, i(2, 3, 4, 5)], {}, 17),
    ("Equal", [COUNT, i(0, 1, 2, 3)], {}, 17),
    ("Exp", [GRID], {}, 17),
    ("Expand", [i(1, 2, 3).reshape(3, 1), i(2, 1, 4)], {}, 17),
    ("Flatten", [COUNT.reshape(3, 2, 2)], {"axis": 2}, 17),
    ("Floor", [GRID], {}, 17),
    ("Gather", [COUNT, i(-1, 0)], {"axis": 1}, 17),
    ("Gather", [i(4, 5, 6), I(-2)], {}, 17),
    ("GatherElements", [COUNT, np.zeros((3, 2), I) - 1], {"axis": 1}, 17),
    ("GatherND", [COUNT, np.array([[0, 1], [2, -1]])], {}, 17),
    ("Greater", [GRID, F(0)], {}, 17),
    ("GreaterOrEqual", [GRID, F(0)], {}, 17),
    ("Identity", [GRID], {}, 17),
    ("Less", [GRID, F(0)], {}, 17),
    ("LessOrEqual", [GRID, F(0)], {}, 17),
    ("Log", [POSITIVE], {}, 17),
    ("Max", [GRID, F(0), -GRID], {}, 17),
    ("Min", [COUNT, i(5)], {}, 17),
    ("Mod", [COUNT, I(5)], {}, 17),
    ("Mul", [GRID, GRID], {}, 17),
    ("Neg", [COUNT], {}, 17),
    ("NonZero", [GRID], {}, 17),
    ("Not", [GRID > 0], {}, 17),
    ("Or", [GRID > 0, GRID < -1], {}, 17),
    ("Pad", [GRID, i(0, 1, 1, 0), F(9)], {}, 17),
    ("Pad", [GRID, i(0, 1, 1, 0)], {"mode": "reflect"}, 17),
    ("Pad", [GRID], {"pads": [0, 1, 1, 0]}, 10),
    ("Pow", [POSITIVE, F(1.5)], {}, 17),
    ("Pow", [COUNT, i(2)], {}, 17),
    ("Range", [I(3), I(-4), I(-2)], {}, 17),
    ("Range", [F(0), F(1), F(0.25)], {}, 17),
    ("Reciprocal", [POSITIVE], {}, 17),
    ("ReduceMax", [GRID], {"axes": [1]}, 17),
    ("ReduceMean", [GRID], {"axes": [0], "keepdims": 0}, 17),
    ("ReduceMin", [GRID], {}, 17),
    ("ReduceProd", [i(2, 3, 4)], {"keepdims": 0}, 17),
    ("ReduceSum", [COUNT, i(1)], {"keepdims": 0}, 17),
    ("ReduceSum", [COUNT], {"noop_with_empty_axes": 1}, 17),
    ("ReduceSum", [COUNT], {"axes": [1]}, 11),
    ("Relu", [GRID], {}, 17),
    ("Reshape", [COUNT, i(0, -1, 2)], {}, 17),
    ("Round", [np.arange(-3, 4, dtype=F) / 2], {}, 17),
    ("ScatterElements", [COUNT, np.zeros((1, 4), I), np.full((1, 4), 9)], {}, 17),
    ("ScatterND", [COUNT, np.array([[1]]), np.full((1, 4), 9)], {}, 17),
    ("Sign", [GRID], {}, 17),
    ("Sin", [GRID], {}, 17),
    ("Slice", [COUNT, i(-1), i(-100), i(1), i(-2)], {}, 17),
    ("Slice", [COUNT], {"starts": [1], "ends": [2**62], "axes": [0]}, 9),
    ("Sqrt", [POSITIVE], {}, 17),
    ("Squeeze", [COUNT.reshape(3, 1, 4, 1), i(-1)], {}, 17),
    ("Squeeze", [COUNT.reshape(3, 1, 4, 1)], {}, 17),
    ("Squeeze", [COUNT.reshape(3, 1, 4)], {"axes": [1]}, 11),
    ("Sub", [COUNT, i(3)], {}, 17),
    ("Sum", [GRID, GRID, f(1, 2, 3, 4)], {}, 17),
    ("Tile", [COUNT, i(2, 1)], {}, 17),
    ("Transpose", [COUNT], {}, 17),
    ("Transpose", [COUNT.reshape(3, 2, 2)], {"perm": [1, 2, 0]}, 17),
    ("Trilu", [COUNT, I(-1)], {"upper": 0}, 17),
    ("Unsqueeze", [i(1, 2), i(-1, 0)], {}, 17),
    ("Unsqueeze", [i(1, 2)], {"axes": [0]}, 11),
    ("Where", [GRID > 0, GRID, F(-1)], {}, 17),
    ("Xor", [GRID > 0, GRID < 1], {}, 17),
]


def on_constants(build: Build, op_type: str, arrays: list[Array], attributes: dict[str, Any], opset: int) -> Any:
    """A node on constants, between them and an output that a graph input keeps from being constant."""
    names = [f"c{n}" for n in range(len(arrays))]
    nodes = [
        helper.make_node(op_type, names, ["folded"], **attributes),
        helper.make_node("Identity", ["folded"], ["y"]),
        helper.make_node("Relu", ["x"], ["z"]),
    ]
    proto = build(nodes, {"x": [1]}, {}, dict(zip(names, map(np.asarray, arrays), strict=True)), opset=opset)
    proto.graph.output.extend(
        [onnx.ValueInfoProto(name="y"), helper.make_tensor_value_info("z", TensorProto.FLOAT, [1])]
    )
    return proto


@pytest.mark.parametrize(("op_type", "arrays", "attributes", "opset"), FOLDED)
def test_folding_agrees_with_onnx_runtime(
    build: Build, loaded: Loader, run: Runner, op_type: str, arrays: list[Array], attributes: dict[str, Any], opset: int
) -> None:
    source = on_constants(build, op_type, arrays, attributes, opset)
    model = loaded(source)
    assert [operator.op_type for operator in model.operators] == ["Identity", "Relu"]
    expected = run(source, {"x": f(1)})[0]
    found = model.constants["folded"].array()
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_array_equal(run(model.proto, {"x": f(1)})[0], found)


def test_every_foldable_operator_is_compared() -> None:
    assert {case[0] for case in FOLDED} | {"Shape", "Size", "Split"} == FOLDABLE


def test_several_outputs_fold(build: Build, loaded: Loader, run: Runner) -> None:
    nodes = [
        helper.make_node("Split", ["c"], ["p", "q"], axis=0),
        helper.make_node("Add", ["x", "p"], ["s"]),
        helper.make_node("Sub", ["s", "q"], ["y"]),
    ]
    source = build(nodes, {"x": [2]}, {"y": [2]}, {"c": f(1, 2, 3, 4)}, opset=13)
    model = loaded(source)
    assert [operator.op_type for operator in model.operators] == ["Add", "Sub"]
    np.testing.assert_array_equal(run(model.proto, {"x": f(5, 6)})[0], run(source, {"x": f(5, 6)})[0])


@pytest.mark.parametrize(
    ("op_type", "arrays", "attributes"),
    [
        ("Div", [i(-7), i(2)], {}),
        ("Div", [i(7), i(0)], {}),
        ("Mod", [i(-7), i(2)], {}),
        ("Cast", [f(300)], {"to": TensorProto.UINT8}),
        ("Cast", [f(np.nan)], {"to": TensorProto.INT32}),
        ("Cast", [f(2.0**63)], {"to": TensorProto.INT64}),
        ("Cast", [f(1e6)], {"to": TensorProto.FLOAT16}),
        ("Exp", [f(1000)], {}),
        ("Log", [f(0)], {}),
        ("Sqrt", [f(-1)], {}),
    ],
)
def test_what_machines_disagree_about_stays(
    build: Build, loaded: Loader, op_type: str, arrays: list[Array], attributes: dict[str, Any]
) -> None:
    assert op_type in [o.op_type for o in loaded(on_constants(build, op_type, arrays, attributes, 17)).operators]


@pytest.mark.parametrize(
    ("op_type", "arrays", "attributes"),
    [
        ("RandomNormalLike", [f(1, 2)], {}),
        ("RandomUniformLike", [f(1, 2)], {}),
        ("Bernoulli", [f(0.5, 0.5)], {}),
        ("Multinomial", [f(0.5, 0.5).reshape(1, 2)], {"sample_size": 3}),
        ("Dropout", [f(1, 2), F(0.5), np.True_], {}),
        ("DequantizeLinear", [np.array([1, 2], np.int8), F(0.5), np.int8(0)], {}),
    ],
)
def test_random_and_quantized_operators_stay(
    build: Build, loaded: Loader, op_type: str, arrays: list[Array], attributes: dict[str, Any]
) -> None:
    assert op_type in [o.op_type for o in loaded(on_constants(build, op_type, arrays, attributes, 17)).operators]


def test_random_operators_without_inputs_stay(build: Build, loaded: Loader) -> None:
    nodes = [helper.make_node("RandomNormal", [], ["r"], shape=[2]), helper.make_node("Add", ["x", "r"], ["y"])]
    model = loaded(build(nodes, {"x": [2]}, {"y": [2]}))
    assert [operator.op_type for operator in model.operators] == ["RandomNormal", "Add"]


def test_a_node_that_cannot_be_evaluated_stays(build: Build, loaded: Loader) -> None:
    source = on_constants(build, "Reshape", [f(1, 2, 3), i(2, 2)], {}, 17)
    assert [o.op_type for o in loaded(source).operators] == ["Reshape", "Identity", "Relu"]


def test_operators_of_other_domains_stay(build: Build, loaded: Loader) -> None:
    nodes = [
        helper.make_node("Abs", ["c"], ["a"], domain="com.example"),
        helper.make_node("Add", ["x", "a"], ["y"]),
    ]
    imports = [helper.make_opsetid("com.example", 1)]
    model = loaded(build(nodes, {"x": [2]}, {"y": [2]}, {"c": f(1, 2)}, imports=imports))
    assert [operator.domain for operator in model.operators] == ["com.example", ""]


def test_attribute_broadcasting_is_left_alone(build: Build, loaded: Loader) -> None:
    nodes = [
        helper.make_node("Add", ["c", "d"], ["a"], broadcast=1, axis=0),
        helper.make_node("Add", ["x", "a"], ["y"]),
    ]
    source = build(nodes, {"x": [2, 2]}, {"y": [2, 2]}, {"c": np.ones((2, 2), F), "d": f(1, 2)}, opset=6)
    assert len(loaded(source).operators) == 2


# ---- shape arithmetic


def test_a_shape_subgraph_folds_and_makes_shapes_static(build: Build, loaded: Loader, run: Runner) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "first"], ["n1"]),
        helper.make_node("Concat", ["n1", "minus"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["r"]),
        helper.make_node("Shape", ["r"], ["rs"], start=1),
        helper.make_node(
            "ConstantOfShape", ["rs"], ["ones"], value=helper.make_tensor("v", TensorProto.FLOAT, [1], [1])
        ),
        helper.make_node("Range", ["start", "n", "step"], ["range"]),
        helper.make_node("Cast", ["range"], ["steps"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["steps", "last"], ["column"]),
        helper.make_node("Add", ["r", "ones"], ["sum"]),
        helper.make_node("Mul", ["sum", "column"], ["y"]),
    ]
    weights = {"zero": I(0), "first": i(0), "last": i(1), "minus": i(-1), "start": I(0), "step": I(1)}
    source = build(nodes, {"x": ["batch", 3, 5]}, {"y": ["batch", "k"]}, {k: np.asarray(v) for k, v in weights.items()})
    model = loaded(source, dims={"batch": 4})
    assert [operator.op_type for operator in model.operators] == ["Reshape", "Add", "Mul"]
    assert model.types["y"] == TensorType(DType.F32, (4, 15))
    assert model.notes[-1] == "Folded into constants: 9 nodes."
    assert set(model.constants) == {"target", "ones", "column"}
    feeds = {"x": np.random.default_rng(1).standard_normal((4, 3, 5)).astype(F)}
    np.testing.assert_array_equal(run(model.proto, feeds)[0], run(source, feeds)[0])


def test_the_size_of_a_tensor_folds(build: Build, loaded: Loader) -> None:
    nodes = [
        helper.make_node("Size", ["x"], ["n"]),
        helper.make_node("Cast", ["n"], ["m"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["x", "m"], ["y"]),
    ]
    assert loaded(build(nodes, {"x": [2, 3]}, {"y": [2, 3]})).constants["m"].array() == 6


def test_a_shape_that_depends_on_data_stays(build: Build, loaded: Loader) -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["n"]), helper.make_node("Shape", ["n"], ["y"])]
    model = loaded(build(nodes, {"x": [3]}, {"y": (TensorProto.INT64, [2])}))
    assert [operator.op_type for operator in model.operators] == ["NonZero", "Shape"]
    assert "n" not in model.types
    assert model.types["y"] == TensorType(DType.I64, (2,))


def test_nodes_that_make_graph_outputs_stay(build: Build, loaded: Loader, run: Runner) -> None:
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Relu", ["x"], ["y"])]
    source = build(nodes, {"x": [2, 3]}, {"s": (TensorProto.INT64, [2]), "y": [2, 3]})
    model = loaded(source)
    assert model.outputs == ("s", "y")
    assert [operator.op_type for operator in model.operators] == ["Shape", "Relu"]


# ---- the size of the file


def test_a_large_result_of_small_constants_stays(build: Build, loaded: Loader) -> None:
    nodes = [helper.make_node("Expand", ["c", "shape"], ["wide"]), helper.make_node("Add", ["x", "wide"], ["y"])]
    source = build(nodes, {"x": [64, 64]}, {"y": [64, 64]}, {"c": f(3), "shape": i(64, 64)})
    model = loaded(source)
    assert [operator.op_type for operator in model.operators] == ["Expand", "Add"]
    assert set(model.constants) == {"c", "shape"}


def test_a_huge_result_is_never_computed(build: Build, loaded: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []
    monkeypatch.setattr(folding, "evaluate", lambda node, *_: computed.append(node.op_type))
    nodes = [helper.make_node("ConstantOfShape", ["shape"], ["wide"]), helper.make_node("Add", ["x", "wide"], ["y"])]
    model = loaded(build(nodes, {"x": [1]}, {"y": None}, {"shape": i(1 << 20, 1 << 20)}))
    assert [operator.op_type for operator in model.operators] == ["ConstantOfShape", "Add"]
    assert computed == []


@pytest.mark.parametrize("wrong", [np.zeros(2), np.zeros((1, 2), F), np.array(["a", "b"], object)])
def test_a_result_of_another_type_than_inferred_is_not_trusted(
    build: Build, loaded: Loader, monkeypatch: pytest.MonkeyPatch, wrong: Array
) -> None:
    monkeypatch.setattr(folding, "evaluate", lambda node, *_: {node.output[0]: wrong})
    nodes = [helper.make_node("Abs", ["c"], ["a"]), helper.make_node("Add", ["x", "a"], ["y"])]
    model = loaded(build(nodes, {"x": [2]}, {"y": [2]}, {"c": f(1, 2)}))
    assert [operator.op_type for operator in model.operators] == ["Abs", "Add"]


def test_a_large_constant_is_replaced_by_its_transpose(build: Build, loaded: Loader, run: Runner) -> None:
    weights = {"w": np.random.default_rng(2).standard_normal((64, 40)).astype(F)}
    nodes = [helper.make_node("Transpose", ["w"], ["t"]), helper.make_node("MatMul", ["x", "t"], ["y"])]
    source = build(nodes, {"x": [2, 40]}, {"y": [2, 64]}, weights)
    model = loaded(source)
    assert [operator.op_type for operator in model.operators] == ["MatMul"]
    assert set(model.constants) == {"t"}
    feeds = {"x": np.ones((2, 40), F)}
    np.testing.assert_array_equal(run(model.proto, feeds)[0], run(source, feeds)[0])


def test_a_large_constant_that_others_read_is_not_doubled(build: Build, loaded: Loader) -> None:
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"]),
        helper.make_node("MatMul", ["x", "t"], ["h"]),
        helper.make_node("MatMul", ["h", "w"], ["y"]),
    ]
    model = loaded(build(nodes, {"x": [2, 40]}, {"y": [2, 40]}, {"w": np.ones((64, 40), F)}))
    assert [operator.op_type for operator in model.operators] == ["Transpose", "MatMul", "MatMul"]


def test_a_widening_cast_of_weights_stays(build: Build, loaded: Loader) -> None:
    nodes = [
        helper.make_node("Cast", ["w"], ["v"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "v"], ["y"]),
    ]
    model = loaded(build(nodes, {"x": [2, 64]}, {"y": [2, 64]}, {"w": np.ones((64, 64), np.float16)}))
    assert [operator.op_type for operator in model.operators] == ["Cast", "MatMul"]
