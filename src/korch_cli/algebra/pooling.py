"""Means over images."""

from __future__ import annotations

import numpy as np
import onnx

from korch_cli.algebra.matching import attribute
from korch_cli.algebra.rule import Kind, rule
from korch_cli.algebra.surgery import Surgery
from korch_cli.core.types import DType, TensorType

_FIRST_AXES_INPUT = 18


@rule(
    "mean of x over H and W = globally pooled x",
    Kind.EXACT,
    declines="A mean in half or double precision stays one: ONNX Runtime pools float32 alone.",
)
def pool_globally(surgery: Surgery) -> int:
    """Write GlobalAveragePool, of which ONNX Runtime has a blocked form."""
    count = 0
    for place, node in list(surgery.nodes()):
        if node.op_type != "ReduceMean" or node.domain or not surgery.holds(place, node):
            continue
        typed = surgery.types.get(node.input[0])
        result = surgery.types.get(node.output[0])
        if typed is None or result is None or typed.rank != 4 or typed.dtype is not DType.F32 or not typed.elements:
            continue
        if _axes(surgery, node) != {2, 3}:
            continue
        if result.rank == typed.rank:
            surgery.replace(place, [onnx.helper.make_node("GlobalAveragePool", [node.input[0]], [node.output[0]])])
        else:
            pooled = surgery.fresh(f"{node.output[0]}/pooled", TensorType(typed.dtype, (*typed.shape[:2], 1, 1)))
            shape = surgery.add_constant(f"{node.output[0]}/shape", np.array(result.shape, np.int64))
            pool = onnx.helper.make_node("GlobalAveragePool", [node.input[0]], [pooled])
            surgery.replace(place, [pool, onnx.helper.make_node("Reshape", [pooled, shape], [node.output[0]])])
        count += 1
    return count


def _axes(surgery: Surgery, node: onnx.NodeProto) -> set[int]:
    """Return the axes of the mean of four, counted from the first; none where they are not constant."""
    axes = attribute(node, "axes", ())
    if surgery.opset >= _FIRST_AXES_INPUT and len(node.input) > 1 and node.input[1]:
        array = surgery.constant(node.input[1])
        axes = () if array is None else array.reshape(-1).tolist()
    return {int(axis) % 4 for axis in axes}
