"""Operators that stay opaque: control flow, data-dependent shapes, orders; korch works around them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from korch_cli.core.types import DType
from tests.fuzz.operators import operator
from tests.fuzz.running import value_info
from tests.fuzz.sketch import FLOATS, Call, Sketch, Tensor


@operator("TopK", since=11)
def _top_k(s: Sketch) -> Call:
    x = s.pick((DType.F32, DType.I64), range(1, 5), lambda t: t.array.size > 0)
    axis = s.axis(x)
    return Call([x, s.positions(s.integer(1, x.shape[axis]))], {"axis": axis, "largest": s.integer(0, 1)}, 2)


@operator("NonZero", since=9)
def _non_zero(s: Sketch) -> Call:
    return Call([s.pick((DType.F32, DType.BOOL, DType.I64), range(1, 5))])


@operator("CumSum", since=11)
def _cumsum(s: Sketch) -> Call:
    x = s.pick((DType.F32, DType.F64, DType.I32, DType.I64), range(1, 5))
    axis = s.fixed(np.array(s.axis(x), np.int64))
    return Call([x, axis], {"exclusive": s.integer(0, 1), "reverse": s.integer(0, 1)})


@operator("OneHot", since=11)
def _one_hot(s: Sketch) -> Call:
    x = s.pick((DType.I64, DType.I32, DType.F32), range(3))
    depth = s.fixed(np.array(s.integer(1, 6), np.int64))
    return Call([x, depth, s.fixed(np.array([0, s.integer(1, 5)], np.float32))], {"axis": s.choose((-1, 0))})


@operator("Unique", since=11)
def _unique(s: Sketch) -> Call:
    return Call([s.pick((DType.F32, DType.I64), range(1, 3))], {"sorted": 1}, s.choose((1, 4)))


@operator("Compress", since=11)
def _compress(s: Sketch) -> Call:
    x = s.pick((DType.F32,), range(1, 4))
    return Call([x, s.number(DType.BOOL, x.shape[:1])], {"axis": 0})


def _captured(node: onnx.NodeProto, of: Tensor, name: str) -> onnx.GraphProto:
    info = onnx.ValueInfoProto(name=node.output[0])
    info.type.tensor_type.elem_type = of.dtype.onnx
    return helper.make_graph([node], name, [], [info])


@operator("If", since=11)
def _if(s: Sketch) -> Call:
    x = s.pick(FLOATS)
    y = s.pick((x.dtype,))
    condition = s.fixed(np.array(s.chance(50))) if s.chance(30) else _flag(s)
    unary = ("Abs", "Neg", "Sigmoid", "Exp", "Identity")
    then = helper.make_node(s.choose(unary), [x.name], ["then out"])
    other = helper.make_node(s.choose(unary), [y.name], ["else out"])
    branches = {"then_branch": _captured(then, x, "then"), "else_branch": _captured(other, y, "else")}
    return Call([condition], branches)


def _flag(s: Sketch) -> Tensor:
    flags = [t for t in s.tensors if t.dtype is DType.BOOL and t.array.size == 1]
    return s.choose(flags) if flags else s.input(DType.BOOL, ())


@operator("Loop", since=11)
def _loop(s: Sketch) -> Call:
    x = s.pick((DType.F32,))
    y = s.pick((DType.F32,), test=lambda t: t.shape == x.shape)
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["carried", "shrink"], ["scaled"]),
            helper.make_node(s.choose(("Add", "Max", "Sub")), ["scaled", y.name], ["next"]),
            helper.make_node("Identity", ["going"], ["go on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            value_info("carried", x.array),
        ],
        [helper.make_tensor_value_info("go on", TensorProto.BOOL, []), value_info("next", x.array)],
        [numpy_helper.from_array(np.array(0.5, np.float32), "shrink")],
    )
    turns = s.fixed(np.array(s.integer(0, 3)))
    return Call([turns, s.fixed(np.array(True)), x], {"body": body})


@operator("Scan", since=11)
def _scan(s: Sketch) -> Call:
    x = s.pick((DType.F32,), range(1, 4), lambda t: t.array.size > 0)
    start = s.number(DType.F32, x.shape[1:])
    body = helper.make_graph(
        [helper.make_node("Add", ["state", "slice"], ["sum"]), helper.make_node("Tanh", ["sum"], ["result"])],
        "body",
        [value_info("state", start.array), value_info("slice", x.array[0])],
        [value_info("sum", start.array), value_info("result", start.array)],
    )
    return Call([start, x], {"body": body, "num_scan_inputs": 1}, 2)
