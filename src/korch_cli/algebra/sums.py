"""Sums that ONNX Runtime is kept from fusing with what follows."""

from __future__ import annotations

import onnx

from korch_cli.algebra.rule import Kind, rule
from korch_cli.algebra.surgery import Surgery
from korch_cli.core.types import DType

_RANKS = (2, 3)
"""Of what ONNX Runtime fuses."""


@rule(
    "normalize(x + y) = normalize(sum(x, y))",
    Kind.EXACT,
    declines="Sums that something else reads too, of two tensors of different shapes, of an element type other than "
    "float32, or with other than two or three axes stay as they are: ONNX Runtime does not fuse them.",
)
def sum_in_front_of_normalization(surgery: Surgery) -> int:
    """Write Sum for an Add in front of a LayerNormalization.

    ONNX Runtime fuses the two into SkipLayerNormalization, whose kernel for the CPU takes several times as long as
    both; Sum of two tensors is the same addition, and is left alone.
    """
    count = 0
    for place, node in list(surgery.nodes()):
        if node.op_type == "Add" and not node.domain and _is_normalized(surgery, node):
            surgery.replace(place, [onnx.helper.make_node("Sum", list(node.input), list(node.output))])
            count += 1
    return count


def _is_normalized(surgery: Surgery, node: onnx.NodeProto) -> bool:
    result = node.output[0]
    typed = surgery.types.get(result)
    if typed is None or typed.dtype is not DType.F32 or typed.rank not in _RANKS:
        return False
    place = surgery.only_reader(result)
    if place is None or any(not surgery.alike(name, result) for name in node.input):
        return False
    reader = surgery.node(place)
    return reader.op_type == "LayerNormalization" and not reader.domain and reader.input[0] == result
