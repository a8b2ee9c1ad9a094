"""What ONNX Runtime computes in its blocked layout."""

from __future__ import annotations

import onnx

from korch_cli.algebra.matching import attribute
from korch_cli.algebra.surgery import Surgery

BLOCK = 16
"""Channels in a block where blocks are largest; what works on blocked tensors wants whole ones."""
_NEIGHBOURS = ("AveragePool", "BatchNormalization", "Conv", "GlobalAveragePool", "MaxPool")
_BETWEEN = ("Add", "Div", "HardSigmoid", "HardSwish", "LeakyRelu", "Mul", "Relu", "Sigmoid", "Tanh")
_STEPS = 4


def reads_blocked(node: onnx.NodeProto) -> bool:
    """Whether a node surely works on a blocked operand: one of convolutions' company, or an enlargement by copies."""
    if node.op_type == "Resize":
        modes = [attribute(node, name, b"") for name in ("mode", "coordinate_transformation_mode", "nearest_mode")]
        return modes == [b"nearest", b"asymmetric", b"floor"]
    return node.op_type in _NEIGHBOURS and not node.domain


def comes_from_convolution(surgery: Surgery, name: str) -> bool:
    """Whether a tensor was made by a convolution or pooling, with activations between."""
    for _ in range(_STEPS):
        node = surgery.made_by(name, *_NEIGHBOURS, *_BETWEEN)
        if node is None:
            return False
        if node.op_type in _NEIGHBOURS:
            return True
        name = next((i for i in node.input if not surgery.is_constant(i)), "")
    return False
