from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from korch_cli.core.check import check
from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.primitive import (
    Broadcast,
    Concat,
    Constant,
    Elementwise,
    Gather,
    Input,
    Linear,
    Op,
    Opaque,
    Pad,
    Reduce,
    Reshape,
    Slice,
    Transpose,
    WindowReduce,
)
from korch_cli.core.text import parse_graph, print_graph, print_op
from korch_cli.core.types import Array, DType, TensorType

CONV = (("after", (1, 1)), ("before", (0, 1)), ("dilations", (1, 1)), ("group", 2), ("strides", (2, 1)))
EVERY_OP: list[tuple[Op, str]] = [
    (Elementwise("add"), "elementwise add"),
    (Broadcast(), "broadcast"),
    (Reduce("max", (0, 2)), "reduce max axes=[0,2]"),
    (
        WindowReduce("mean", (3,), (2,), (1,), (1,), (0,), count_padding=True),
        "window_reduce mean window=[3] strides=[2] dilations=[1] before=[1] after=[0] count_padding=true",
    ),
    (Transpose((1, 0)), "transpose perm=[1,0]"),
    (Reshape(), "reshape"),
    (Slice((0, 3), (1, -1)), "slice starts=[0,3] steps=[1,-1]"),
    (Pad((0, 1), -math.inf), "pad before=[0,1] value=-Infinity"),
    (Concat(1), "concat axis=1"),
    (Gather(0, (2, 2, 0)), "gather axis=0 indices=[2,2,0]"),
    (Linear("matmul"), "linear matmul attributes={}"),
    (
        Linear("conv", CONV),
        'linear conv attributes={"after":[1,1],"before":[0,1],"dilations":[1,1],"group":2,"strides":[2,1]}',
    ),
    (Opaque(7, 1), "opaque operator=7 output=1"),
]


def scalar(array: Array) -> PrimitiveGraph:
    constant = Constant(array)
    return PrimitiveGraph((Value(0, "c", TensorType(constant.dtype, constant.shape), constant),), ())


def test_the_text_of_a_small_graph() -> None:
    f32 = DType.F32
    graph = PrimitiveGraph(
        (
            Value(0, "x", TensorType(f32, (2, 64)), Input()),
            Value(1, "w", TensorType(f32, (64,)), Constant(np.ones(64, np.float32))),
            Value(2, "eps", TensorType(f32, ()), Constant(np.array(1e-5, np.float32))),
            Value(3, 'a "strange" name\n%', TensorType(f32, (2, 1)), Reduce("sum", (1,)), (0,), 4),
            Value(4, "é/y", TensorType(f32, (2, 1)), Elementwise("add"), (3, 2), 4),
        ),
        (4, 0),
        {4: (4, -1), 2: ()},
        {5: 'it has a "body"'},
    )
    text = print_graph(graph)
    assert text.splitlines() == [
        '%0 "x" f32[2,64] = input',
        '%1 "w" f32[64] = const',
        '%2 "eps" f32[] = literal 1e-05',
        '%3 "a \\"strange\\" name\\n%" f32[2,1] = reduce sum axes=[1] (%0) @4',
        '%4 "\\u00e9/y" f32[2,1] = elementwise add (%3, %2) @4',
        "outputs (%4, %0)",
        "operator 2 = ()",
        "operator 4 = (%4, -)",
        'refusal 5 "it has a \\"body\\""',
    ]
    parsed = parse_graph(text)
    check(parsed)
    assert print_graph(parsed) == text
    assert [v for v in parsed.values if not isinstance(v.op, Constant)] == [graph.values[i] for i in (0, 3, 4)]
    assert (parsed.outputs, parsed.operator_outputs, parsed.refusals) == ((4, 0), {4: (4, -1), 2: ()}, graph.refusals)


@pytest.mark.parametrize(("op", "text"), EVERY_OP, ids=lambda entry: type(entry).__name__)
def test_every_primitive_prints_and_parses(op: Op, text: str) -> None:
    assert print_op(op) == text
    shape = TensorType(DType.F32, (2,))
    graph = PrimitiveGraph((Value(0, "x", shape, Input()), Value(1, "y", shape, op, (0, 0), 7)), (1,))
    assert parse_graph(print_graph(graph)) == graph


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array(0.1, np.float32), "0.1"),
        (np.array([[1e-12]], np.float32), "1e-12"),
        (np.array(-0.0, np.float64), "-0.0"),
        (np.array(math.nan, np.float32), "nan"),
        (np.array(-math.inf, np.float16), "-inf"),
        (np.array(65504, np.float16), "6.55e+04"),
        (np.array(0.1, ml_dtypes.bfloat16), "0.100098"),
        (np.array(2**62, np.int64), "4611686018427387904"),
        (np.array([-3], np.int32), "-3"),
        (np.array(True), "true"),
        (np.array(255, np.uint8), "255"),
    ],
)
def test_literals_keep_their_value_and_type(array: Array, text: str) -> None:
    printed = print_graph(scalar(array))
    assert f"= literal {text}\n" in printed
    op = parse_graph(printed).values[0].op
    assert isinstance(op, Constant)
    assert op.dtype is DType.from_numpy(array.dtype)
    assert op.shape == array.shape
    assert op.array().tobytes() == array.tobytes()


def test_every_float16_and_bfloat16_literal_survives() -> None:
    for dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        for bits in range(0, 2**16, 7):
            array = np.array(bits, np.uint16).view(dtype)
            with np.errstate(invalid="ignore"):
                if np.isnan(array):
                    continue
            op = parse_graph(print_graph(scalar(array))).values[0].op
            assert isinstance(op, Constant)
            assert op.array().tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_number_that_is_a_weight_stays_one(dtype: type) -> None:
    text = print_graph(scalar(np.array([0.123456789], dtype)))
    assert "= const\n" in text
    assert print_graph(parse_graph(text)) == text


def test_a_weight_becomes_zeros() -> None:
    op = parse_graph('%0 "w" i64[2,3] = const\noutputs ()\n').values[0].op
    assert isinstance(op, Constant)
    np.testing.assert_array_equal(op.array(), np.zeros((2, 3), np.int64))
    assert op.array().dtype == np.int64


def test_signed_zeros_of_padding_are_kept_apart() -> None:
    assert print_op(Pad((0,), 0.0)) != print_op(Pad((0,), -0.0))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("what is this", "a line starts with"),
        ('%0 "x" f32[2] input', "a value reads"),
        ('%0 "x" f99[2] = input', "f99"),
        ('%0 "x" f32[2] = divination (%0)', "divination"),
        ('%0 "x" f32[2] = concat (%0)', "axis"),
        ('%0 "x" f32[2] = literal yes', "yes"),
        ("operator 1 (%0)", "a line starts with"),
        ('%0 "x" f32[2] = concat axis=1] (%0)', "Extra data"),
    ],
)
def test_what_is_not_understood_is_named_by_its_line(line: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r"line 2 .*" + reason):
        parse_graph(f'%0 "x" f32[] = input\n{line}\noutputs (%0)\n')


def test_a_text_without_outputs_is_refused() -> None:
    with pytest.raises(ValueError, match="no line for the graph's outputs"):
        parse_graph('%0 "x" f32[] = input\n')
