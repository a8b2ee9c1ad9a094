"""Affine maps with constant coefficients: y = scale * x + shift, each one number, or one for each channel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx

from korch_cli.core.types import Array

Lookup = Callable[[str], Array | None]
"""Gives the elements of a tensor that is constant, None for any other."""


@dataclass(frozen=True, slots=True)
class Affine:
    """What a node does to the one operand that is not constant.

    Attributes:
        operand: the tensor it maps.
        scale: float64, of shape [1] or [channels].
        shift: the same.
    """

    operand: str
    scale: Array
    shift: Array

    @property
    def is_shift(self) -> bool:
        """Whether it only adds."""
        return bool(np.all(self.scale == 1))

    @property
    def is_scale(self) -> bool:
        """Whether it only multiplies."""
        return bool(np.all(self.shift == 0))


def may_be_affine(node: onnx.NodeProto) -> bool:
    """Whether it is worth reading constants to find out."""
    return node.op_type in ("Add", "BatchNormalization", "Div", "Mul", "Sub")


def read_affine(node: onnx.NodeProto, constant: Lookup, channels: int, axis: int, rank: int) -> Affine | None:
    """Return a node as an affine map of a tensor of `rank` with `channels` along `axis`, None where it is not one.

    Mul, Add, Sub and Div by constants, and BatchNormalization in inference.
    """
    if node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type == "BatchNormalization":
        return _normalization(node, constant, channels, axis)
    if node.op_type not in ("Add", "Div", "Mul", "Sub") or len(node.input) != 2 or node.attribute:
        return None
    left, right = constant(node.input[0]), constant(node.input[1])
    if (left is None) == (right is None):
        return None
    if left is None:
        assert right is not None
        value, operand, flipped = right, node.input[0], False
    else:
        value, operand, flipped = left, node.input[1], True
    number = _per_channel(value, channels, axis, rank)
    if number is None:
        return None
    one, zero = np.ones(1), np.zeros(1)
    match node.op_type:
        case "Mul":
            return Affine(operand, number, zero)
        case "Add":
            return Affine(operand, one, number)
        case "Sub":
            return Affine(operand, -one if flipped else one, number if flipped else -number)
    return None if flipped or not np.all(number) else Affine(operand, 1 / number, zero)


def _normalization(node: onnx.NodeProto, constant: Lookup, channels: int, axis: int) -> Affine | None:
    if axis != 1 or len(node.input) != 5 or len([name for name in node.output if name]) != 1:
        return None
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if attributes.get("training_mode", 0) or attributes.get("spatial", 1) != 1:
        return None
    values = [constant(name) for name in node.input[1:]]
    if any(value is None or value.shape != (channels,) for value in values):
        return None
    gamma, beta, mean, variance = (np.asarray(value, np.float64) for value in values)
    scale = gamma / np.sqrt(variance + np.float32(attributes.get("epsilon", 1e-5)))
    return Affine(node.input[0], scale, beta - mean * scale)


def _per_channel(value: Array, channels: int, axis: int, rank: int) -> Array | None:
    """Return [1] or [channels] numbers if a constant has one for all elements, or one for each channel."""
    if value.dtype.kind != "f" or value.ndim > rank:
        return None
    if value.size == 1:
        return value.astype(np.float64).reshape(1)
    shape = (1,) * (rank - value.ndim) + value.shape
    if shape[axis] != channels or any(extent != 1 for i, extent in enumerate(shape) if i != axis):
        return None
    return value.astype(np.float64).reshape(channels)
