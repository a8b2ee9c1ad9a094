"""What fission declines, with a sentence, and what the graph looks like around it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from operator_case import (  # type: ignore[import-not-found]
    NEWEST,
    Case,
    Fixed,
    booleans,
    case,
    fixed,
    floats,
    integers,
    interpreted,
    positive,
    scalar,
    split,
    value_info,
)

from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.primitive import Constant, Elementwise, Input, Opaque, Reshape
from korch_cli.core.types import UNKNOWN, DType, TensorType
from korch_cli.fission.build import Builder
from korch_cli.fission.registry import LATEST

_X = floats(2, 3, 4)
_HEADS = (floats(2, 2, 3, 4),) * 3
_CHANNELS = tuple(positive(3) for _ in range(4))


def _refusal(each: Case, *results: np.ndarray) -> str:
    graph = split(each.proto(list(results)))
    assert all(isinstance(graph.values[v].op, Opaque) for v in graph.operator_outputs[0] if v >= 0)
    return str(graph.refusals[0])


_LONG = np.zeros((1 << 16) + 1, np.float32)
_DOUBLE = fixed(1, 1, 2, dtype=np.float32)
_REGION = fixed(0, 0, 0, 1, 1, 0.5, dtype=np.float32)
_CROP = {"coordinate_transformation_mode": "tf_crop_and_resize"}
_FIT = {"keep_aspect_ratio_policy": "shrink"}


def _resize(x: np.ndarray = _X, **attributes: object) -> Case:
    return replace(case("Resize", x, None, _DOUBLE, **attributes), version=19)


def _pool(x: np.ndarray = _X, **attributes: object) -> Case:
    return replace(case("MaxPool", x, **attributes), version=19)


_DECLINED = [
    (replace(case("Relu", _X, novelty=1), version=13), "attribute 'novelty' is not understood"),
    (replace(case("Conv", floats(1, 2, 5), floats(2, 2, 3), ceil_mode=1), version=11), "attribute 'ceil_mode'"),
    (replace(case("Relu", _X, _X), version=13), "input 1 ('x1') is not understood"),
    (replace(case("Relu", _X), version=5), "no fission of Relu at opset 5"),
    (replace(case("Relu", _X), version=LATEST[""] + 1), "is newer than the newest one known"),
    (replace(case("Gelu", _X, domain="com.microsoft"), version=2), "is newer than the newest one known"),
    (replace(case("Novelty", _X), version=13), "there is no fission of Novelty"),
    (replace(case("Novelty", _X, domain="com.microsoft"), version=1), "no fission of com.microsoft:Novelty"),
    (replace(case("Relu", None), version=13), "input 0 is missing"),
    (replace(case("Concat", _X), version=13), "it has no axis"),
    (replace(case("LeakyRelu", _X, alpha="steep"), version=13), "attribute 'alpha' is of an unexpected kind"),
    (replace(case("Add", _X, integers(4)), version=13), "different element types"),
    (replace(case("ReduceSum", _X, integers(1, low=0, high=2)), version=13), "input 1 ('x1') is not constant"),
    (replace(case("Reshape", _X, integers(2)), version=13), "input 1 ('x1') is not constant"),
    (replace(case("Slice", _X, fixed(0), integers(1)), version=13), "input 2 ('x2') is not constant"),
    (replace(case("Slice", _X, fixed(3), fixed(2**31 - 1), fixed(2), fixed(-1)), version=13), "read differently"),
    (replace(case("Gather", _X, integers(2)), version=13), "input 1 ('x1') is not constant"),
    (replace(case("Pad", _X, fixed(0, 0, 1, 0, 0, 1), floats()), version=13), "input 2 ('x2') is not constant"),
    (replace(case("Softmax", _X, axis=3), version=13), "there is no axis 3"),
    (replace(case("Softmax", _X, axis=-1), version=10), "a negative axis has no meaning at opset 10"),
    (replace(case("ReduceMax", _X, axes=[-1]), version=10), "negative axes have no meaning"),
    (replace(case("ReduceMax", _X, axes=[1, 1]), version=13), "repeat one"),
    (replace(case("ReduceMean", integers(2, 3), axes=[1]), version=13), "for integers is not specified"),
    (replace(case("ReduceL2", _X, noop_with_empty_axes=1), version=18), "depends on the version of the runtime"),
    (replace(case("Cast", _X, to=TensorProto.FLOAT8E5M2), version=19), "element type"),
    (replace(case("MaxPool", _X, kernel_shape=[2], storage_order=1), version=12), "storage order"),
    (replace(case("MaxPool", _X, kernel_shape=[9]), version=12), "larger than the padded operand"),
    (replace(case("MaxPool", _X, kernel_shape=[2, 2]), version=12), "does not fit the spatial axes"),
    (_pool(kernel_shape=[2], dilations=[2], auto_pad="SAME_UPPER"), "how it pads a dilated window"),
    (_pool(floats(1, 2, 9), kernel_shape=[1], strides=[3], auto_pad="SAME_LOWER"), "leave gaps"),
    (replace(case("Conv", floats(1, 2, 8), floats(1, 2, 1), strides=[4], auto_pad="SAME_UPPER"), version=11), "gaps"),
    (_pool(floats(1, 2, 1), kernel_shape=[2], strides=[3], pads=[1, 0], dilations=[3], ceil_mode=1), "holds none"),
    (replace(case("AveragePool", _X), version=19), "no kernel_shape"),
    (replace(case("AveragePool", _X, kernel_shape=[2], pads=[1, 1], auto_pad="SAME_UPPER"), version=19), "both pads"),
    (replace(case("AveragePool", _X, kernel_shape=[2], pads=[-1, 0]), version=19), "padding does not fit"),
    (replace(case("BatchNormalization", _X, *_CHANNELS, training_mode=1), version=15), "training mode"),
    (replace(case("BatchNormalization", _X, *_CHANNELS, outputs=5), version=9), "outputs of training"),
    (replace(case("Dropout", _X, scalar(0.5), scalar(True, np.bool_)), version=13), "training mode"),
    (replace(case("Dropout", _X, scalar(0.5), booleans()), version=13), "input 2 ('x2') is not constant"),
    (replace(case("LayerNormalization", _X, positive(4), stash_type=11), version=17), "not computed in float32"),
    (replace(case("GroupNormalization", _X, positive(2), positive(2), num_groups=2), version=20), "2 groups"),
    (replace(case("Gelu", _X, approximate="coarse"), version=20), "'coarse' is not known"),
    (replace(case("Celu", _X, alpha=0.0), version=12), "alpha is zero"),
    (replace(case("Split", _X, outputs=2, axis=1), version=13), "do not divide into 2 equal parts"),
    (replace(case("Split", _X, outputs=2, axis=2), version=18), "neither the sizes nor the number"),
    (replace(case("Split", _X, fixed(1, 1), outputs=2, axis=1), version=13), "do not divide into parts"),
    (replace(case("Reshape", _X, fixed(-1, 5)), version=13), "does not fit 24 elements"),
    (replace(case("Reshape", _X, fixed(-1, -1)), version=13), "has no meaning"),
    (replace(case("Squeeze", _X, fixed(1)), version=13), "has not the extent 1"),
    (replace(case("Transpose", _X, perm=[0, 0, 1]), version=13), "is no permutation"),
    (replace(case("Expand", _X, fixed(2, 5, 4)), version=13), "does not broadcast"),
    (replace(case("Gather", _X, fixed(4), axis=2), version=13), "an index leaves axis 2"),
    (replace(case("Tile", _X, fixed(2)), version=13), "repeats do not fit"),
    (replace(case("Tile", floats(60), fixed(2000)), version=13), "too long for a kernel"),
    (replace(case("Pad", _X, fixed(0, 0, 9, 0, 0, 0), mode="reflect"), version=13), "not understood for 9 and 0"),
    (replace(case("Pad", _X, fixed(0, 0, -1, 0, 0, 0), mode="edge"), version=13), "for padding alone"),
    (replace(case("Pad", _X, fixed(0, -2, 0, 0, -2, 0)), version=13), "cuts off more than there is"),
    (_resize(integers(2, 3, 4, dtype=np.int32), mode="linear"), "interpolated depends on the runtime"),
    (_resize(mode="linear", antialias=1), "filters what it shrinks"),
    (_resize(mode="linear", exclude_outside=1), "excludes what is outside"),
    (_resize(mode="lanczos"), "the mode 'lanczos' is not known"),
    (_resize(mode="linear", coordinate_transformation_mode="polar"), "'polar' is not understood"),
    (_resize(coordinate_transformation_mode="tf_crop_and_resize"), "no region of interest"),
    (replace(case("Resize", _X, _REGION, _DOUBLE, **_CROP), version=13), "the extent of a region that is scaled"),
    (replace(case("Resize", _X, None, None, fixed(2, 3, 8), **_FIT), version=19), "the policy 'shrink' is not known"),
    (replace(case("Upsample", _X, fixed(1, 1, 0.5, dtype=np.float32)), version=9), "that it can use"),
    (replace(case("Upsample", _X, _DOUBLE, mode="cubic"), version=9), "no cubic interpolation"),
    (replace(case("ArgMax", floats(2, 0), axis=1), version=13), "where there is no element"),
    (replace(case("ArgMax", booleans(3)), version=13), "have no order"),
    (replace(case("ArgMax", _X, axis=-1), version=10), "negative axis has no meaning"),
    (replace(case("OneHot", integers(3), integers(1), floats(2)), version=11), "input 1 ('x1') is not constant"),
    (replace(case("OneHot", integers(3), fixed(0), floats(2)), version=11), "not one positive number"),
    (replace(case("OneHot", integers(3), fixed(2), floats(3)), version=11), "its values are not two"),
    (replace(case("EyeLike", floats(3)), version=22), "is no matrix"),
    (replace(case("EyeLike", floats(3, 3), dtype=8), version=22), "element type is not supported"),
    (replace(case("EyeLike", np.zeros((1, 1 << 20), np.float32)), version=22), "too large"),
    (replace(case("Compress", _X, Fixed(np.ones((1, 1), bool))), version=11), "not one list"),
    (replace(case("CenterCropPad", _X, fixed(2)), version=18), "does not fit the operand"),
    (replace(case("LpPool", _X, kernel_shape=[2], p=0), version=18), "no norm of order 0"),
    (replace(case("GatherElements", _X, Fixed(np.zeros((2, 3), np.int64))), version=13), "another rank"),
    (replace(case("GatherElements", _X, Fixed(np.zeros((2, 3, 5), np.int64))), version=13), "beyond the operand"),
    (replace(case("GatherElements", _X, Fixed(np.full((2, 3, 4), 2))), version=13), "leaves an axis of 2"),
    (replace(case("GatherElements", _LONG, Fixed(np.zeros(_LONG.shape, np.int64))), version=13), "too long"),
    (replace(case("GatherND", _X, fixed(0, 0, 0, 0)), version=13), "tuples of indices do not fit"),
    (replace(case("GatherND", _X, fixed(0), batch_dims=1), version=13), "do not fit the batch axes"),
    (replace(case("GatherND", _X, scalar(0, np.int64)), version=13), "do not fit the batch axes"),
    (replace(case("ScatterElements", floats(5), fixed(1, 1), floats(2)), version=18), "whose order is not defined"),
    (
        replace(case("ScatterElements", floats(5), fixed(*[1] * 9), floats(9), reduction="add"), version=18),
        "which are too many",
    ),
    (replace(case("ScatterElements", floats(5), fixed(1, 2), floats(3)), version=18), "no update for each index"),
    (replace(case("ScatterElements", floats(5), fixed(1), integers(1)), version=18), "another element type"),
    (replace(case("ScatterElements", floats(5), fixed(1), floats(1), reduction="xor"), version=18), "'xor'"),
    (replace(case("ScatterND", _X, scalar(0, np.int64), floats(3, 4)), version=18), "are no tuples"),
    (replace(case("ScatterND", _X, fixed(0, 1), floats(3)), version=18), "no update for each index"),
    (replace(case("ReverseSequence", _X, fixed(1, 2)), version=10), "do not fit the batch axis"),
    (replace(case("ReverseSequence", _X, fixed(1, 2, 3)), version=10), "longer than the time axis"),
    (replace(case("CumSum", np.zeros((1, 5000), np.float32), fixed(1)), version=14), "too long for a kernel"),
    (replace(case("CumProd", np.zeros((1, 300), np.float32), fixed(1)), version=26), "too long for a kernel"),
    (replace(case("Col2Im", floats(1, 8, 9), fixed(4, 5), fixed(2, 2)), version=18), "there are not 12 blocks"),
    (replace(case("Col2Im", floats(1, 9, 4), fixed(3, 3), fixed(2, 2)), version=18), "do not fit the image"),
    (replace(case("Col2Im", floats(1, 1, 1), fixed(400, 400), fixed(1, 1)), version=18), "too long for a kernel"),
    (replace(case("AffineGrid", _X, fixed(2, 3, 4)), version=20), "no extents of the grid"),
    (replace(case("AffineGrid", _X, fixed(2, 3, 4, 5)), version=20), "are no matrices"),
    (replace(case("AffineGrid", floats(2, 2, 3), fixed(2, 3, 1, 5), align_corners=1), version=20), "both corners"),
    (replace(case("TensorScatter", _X, floats(2, 2, 4), fixed(1, 2)), version=24), "leaves the axis"),
    (replace(case("TensorScatter", _X, floats(2, 4, 4)), version=24), "does not fit the axis"),
    (replace(case("TensorScatter", _X, _X, fixed(0)), version=24), "does not fit the axis"),
    (replace(case("CumSum", _X, fixed(0, 1)), version=14), "has not one axis"),
    (replace(case("Gemm", _X, floats(4, 5)), version=13), "no matrices"),
    (replace(case("Conv", floats(1, 3, 5), floats(2, 2, 3)), version=11), "channels do not divide"),
    (replace(case("LpNormalization", _X, p=3), version=22), "the norm 3"),
    (replace(case("Mod", _X, _X), version=13), "no remainder with the sign of the divisor"),
    (replace(case("Attention", *[_X] * 3, q_num_heads=3, kv_num_heads=2), version=23), "divide into 3 heads"),
    (replace(case("Attention", *[_X] * 3, q_num_heads=2, kv_num_heads=4), version=23), "do not divide among"),
    (replace(case("Attention", *_HEADS, integers(3, 3)), version=23), "neither bool nor of the type"),
    (replace(case("Attention", *_HEADS, floats(3, 4)), version=23), "is not for 3 keys"),
    (replace(case("Attention", *_HEADS, outputs=4, qk_matmul_output_mode=4), version=23), "the mode 4"),
    (
        replace(case("Attention", *_HEADS, outputs=4, qk_matmul_output_mode=2, is_causal=1), version=23),
        "differ between runtimes",
    ),
    (replace(case("Attention", *_HEADS, scale=-1.0), version=23), "a negative scale or cap"),
    (replace(case("Attention", *_HEADS, softmax_precision=6), version=23), "in a type that is not supported"),
    (replace(case("NegativeLogLikelihoodLoss", _X, integers(2, 3)), version=13), "are no labels of"),
    (replace(case("NegativeLogLikelihoodLoss", _X, integers(2, 4), reduction="max"), version=13), "'max' is not"),
    (replace(case("Einsum", _X, equation="ij"), version=12), "is not for an operand of rank 3"),
    (replace(case("Einsum", _X, equation="ijk,k"), version=12), "does not fit its 1 operands"),
    (replace(case("Einsum", _X, equation="ijk->il"), version=12), "no operand has"),
    (replace(case("Einsum", _X, equation="iji"), version=12), "has the extents [2, 4]"),
    (replace(case("Einsum", _X, floats(5), equation="ijk,k"), version=12), "has the extents [4, 5]"),
    (replace(case("Einsum", _X, equation="...k->k"), version=12), "sums over an ellipsis"),
    (replace(case("ConvTranspose", _X, floats(3, 2, 2), strides=[3], auto_pad="SAME_UPPER"), version=11), "gaps"),
    (replace(case("ConvTranspose", _X, floats(3, 2, 2), group=2), version=11), "into 2 groups"),
    (replace(case("ConvTranspose", _X, floats(3, 2, 2), pads=[9, 9]), version=11), "nothing of its result"),
    (replace(case("RotaryEmbedding", _X, _X, _X), version=23), "divide into 0 heads"),
    (replace(case("RotaryEmbedding", *_HEADS), version=23), "are no angles of"),
    (
        replace(case("RotaryEmbedding", _HEADS[0], _X[0], _X[0], integers(2, 3)), version=23),
        "input 3 ('x3') is not constant",
    ),
    (
        replace(case("LinearAttention", *[floats(1, 9, 4)] * 3, q_num_heads=2, kv_num_heads=2), version=27),
        "too many steps",
    ),
    (
        replace(case("LinearAttention", *[floats(1, 1, 4)] * 3, q_num_heads=2, kv_num_heads=2), version=27),
        "has other operands",
    ),
    (replace(case("CausalConvWithState", _X, floats(3, 1, 2), activation="relu"), version=27), "'relu' is not known"),
    (
        replace(case("FusedConv", _X, floats(2, 3, 2), activation="Relu6", domain="com.microsoft"), version=1),
        "'Relu6' with 0 parameters",
    ),
    (
        replace(case("MultiHeadAttention", floats(2, 3, 2, 3, 4), num_heads=2, domain="com.microsoft"), version=1),
        "input 1 is missing",
    ),
    (
        replace(
            case("Attention", _X, floats(4, 12), None, integers(2), num_heads=2, domain="com.microsoft"), version=1
        ),
        "says lengths",
    ),
    (replace(case("BitShift", integers(3), integers(3), direction="UP"), version=11), "'UP' is not known"),
    (replace(case("Pow", integers(3), floats(1)), version=13), "depends on the exponent"),
]


@pytest.mark.parametrize(("each", "words"), _DECLINED, ids=lambda p: p.id if isinstance(p, Case) else None)
def test_an_operator_that_is_not_understood_stays_as_it_is(each: Case, words: str) -> None:
    assert words in _refusal(each, *[_X] * each.outputs)


def test_every_version_up_to_the_newest_definition_is_understood() -> None:
    assert not split(replace(case("Relu", _X), version=NEWEST).proto([_X])).refusals


def _model(
    nodes: list[onnx.NodeProto], outputs: list[onnx.ValueInfoProto], *inner: onnx.ValueInfoProto, **weights: np.ndarray
) -> PrimitiveGraph:
    given = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "graph", [value_info("x", _X)], outputs, given, value_info=inner)
    found = split(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert isinstance(found, PrimitiveGraph)
    return found


def test_strings_are_left_alone() -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    string = helper.make_tensor_value_info("x", TensorProto.STRING, [2])
    result = helper.make_tensor_value_info("y", TensorProto.STRING, [2])
    graph = helper.make_graph([node], "graph", [string], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert split(model).refusals == {0: "'x' holds strings"}


def test_what_has_no_static_shape_is_left_alone() -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["n"]), helper.make_node("Neg", ["n"], ["y"])]
    graph = _model(nodes, [helper.make_tensor_value_info("y", TensorProto.INT64, [3, None])])
    assert graph.refusals[1] == "the element type or shape of 'n' is not known before the model runs"
    assert [graph.values[v].type for v in graph.outputs] == [UNKNOWN]


def test_an_operator_with_a_body_is_left_alone_and_its_captures_are_kept() -> None:
    body = helper.make_graph(
        [helper.make_node("Neg", ["r"], ["b"])], "body", [], [helper.make_tensor_value_info("b", 1, _X.shape)]
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("If", ["flag"], ["y"], then_branch=body, else_branch=body),
    ]
    graph = _model(nodes, [value_info("y", _X)], value_info("r", _X), flag=np.array(True))
    assert graph.refusals == {1: "there is no fission of If"}
    (opaque,) = (v for v in graph.values if isinstance(v.op, Opaque))
    assert "r" in {graph.values[a].name for a in opaque.args}


def test_a_result_of_another_type_than_the_model_says_is_refused() -> None:
    assert "but the model says f32[2,3,5]" in _refusal(replace(case("Relu", _X), version=13), floats(2, 3, 5))


def test_a_refusal_leaves_nothing_behind() -> None:
    nodes = [
        helper.make_node("Elu", ["x"], ["a"]),
        helper.make_node("HardSwish", ["a"], ["b"], novelty=1),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    graph = _model(nodes, [value_info("y", _X)], value_info("a", _X), value_info("b", _X))
    assert list(graph.refusals) == [1]
    assert [v.op for v in graph.primitives() if v.operator == 1] == [Opaque(1, 0)]
    assert {v.name for v in graph.values} >= {"x", "a", "b", "y"}
    assert not any("b/" in v.name for v in graph.values)
    read = {arg for value in graph.values for arg in value.args} | set(graph.outputs)
    assert {v.id for v in graph.values} == read


def test_outputs_that_nothing_reads_are_not_computed() -> None:
    node = helper.make_node("LayerNormalization", ["x", "scale"], ["y", "mean", "inverse"])
    statistics = (value_info(name, floats(2, 3, 1)) for name in ("mean", "inverse"))
    graph = _model([node], [value_info("y", _X)], *statistics, scale=positive(4))
    assert not graph.refusals
    assert graph.operator_outputs[0][1:] == (-1, -1)


def test_a_mask_that_is_read_keeps_the_dropout_of_old() -> None:
    """Before version 12 a mask without training is not defined."""
    each = replace(case("Dropout", _X, outputs=2), version=10)
    assert _refusal(each, _X, _X > 0) == "output 1 ('y1') is not understood"


def test_indices_of_a_pool_that_are_read_keep_the_pool() -> None:
    node = helper.make_node("MaxPool", ["x"], ["y", "where"], kernel_shape=[2])
    pooled = floats(2, 3, 3)
    where = helper.make_tensor_value_info("where", TensorProto.INT64, pooled.shape)
    assert _model([node], [value_info("y", pooled), where]).refusals == {0: "output 1 ('where') is not understood"}


def test_an_output_that_is_an_input_is_a_copy() -> None:
    graph = _model([helper.make_node("Identity", ["x"], ["y"])], [value_info("y", _X)])
    (copy,) = graph.primitives()
    assert (copy.name, copy.op, graph.outputs) == ("y", Reshape(), (copy.id,))


def test_results_that_are_one_value_become_values_of_their_own() -> None:
    build = Builder(["x", "a", "b"])
    x = build.source("x", TensorType(DType.F32, (2,)), Input())
    mark = build.begin(0, "a")
    negative = build.elementwise("neg", x)
    first, second = build.finish(mark, {"a": negative, "b": negative})
    assert (first.name, first.op, first.args) == ("a", Elementwise("neg"), (x.id,))
    assert (second.name, second.op, second.args) == ("b", Reshape(), (first.id,))


def test_a_part_that_is_the_whole_is_a_copy() -> None:
    node = helper.make_node("Split", ["x", "sizes"], ["a", "b"], axis=0)
    graph = _model([node], [value_info("a", _X), value_info("b", _X[:0])], sizes=np.array([2, 0]))
    assert [graph.values[v].name for v in graph.outputs] == ["a", "b"]
    whole, rest = interpreted(graph, {"x": _X})
    np.testing.assert_array_equal(whole, _X)
    assert rest.shape == (0, 3, 4)


def test_names_of_inner_values_never_take_a_tensors_name() -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["y"]), helper.make_node("Relu", ["y"], ["y/max"])]
    graph = _model(nodes, [value_info("y/max", _X)], value_info("y", _X))
    names = [v.name for v in graph.values]
    assert len(set(names)) == len(names)
    assert graph.values[graph.outputs[0]].op == Elementwise("max")


def test_what_follows_from_constants_is_folded() -> None:
    nodes = [
        helper.make_node("BatchNormalization", ["x", "scale", "bias", "mean", "variance"], ["y"]),
    ]
    weights = {name: positive(3) for name in ("scale", "bias", "mean", "variance")}
    graph = _model(nodes, [value_info("y", _X)], **weights)
    assert [v.op for v in graph.primitives()] == [Elementwise("mul"), Elementwise("add")]
    assert not {v.name for v in graph.values} & weights.keys()


def test_equal_literals_are_one_value() -> None:
    nodes = [helper.make_node("HardSigmoid", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    graph = _model(nodes, [value_info("y", _X)], value_info("a", _X))
    zeros = [v for v in graph.values if isinstance(v.op, Constant) and v.op.literal == 0]
    assert len(zeros) == 1
