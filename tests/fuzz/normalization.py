"""Normalization, which makes rounding errors larger where little is left of a number without its mean."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from korch_cli.core.types import Array

NORMALIZERS = (
    "MeanVarianceNormalization",
    "InstanceNormalization",
    "LayerNormalization",
    "SkipLayerNormalization",
    "GroupNormalization",
)
"""Operators that subtract a mean and divide by the deviation."""


def normalized(node: onnx.NodeProto, operands: Mapping[str, Array]) -> tuple[Array, tuple[int, ...]]:
    """Return the numbers that a node normalizes, in float64, and the axes along which it does."""
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    x = operands[node.input[0]].astype(np.float64)
    if node.op_type == "MeanVarianceNormalization":
        return x, tuple(given.get("axes", (0, 2, 3)))
    if node.op_type == "InstanceNormalization":
        return x, tuple(range(2, x.ndim))
    if node.op_type == "GroupNormalization":
        return x.reshape(x.shape[0], given["num_groups"], -1), (2,)
    if node.op_type == "SkipLayerNormalization":
        return x + operands[node.input[1]].astype(np.float64), (x.ndim - 1,)
    return x, tuple(range(given.get("axis", -1) % x.ndim, x.ndim))


def enlargement(node: onnx.NodeProto, operands: Mapping[str, Array]) -> Array:
    """Return by how much each element of the result exceeds what it would be with a mean of zero, times its scale.

    ONNX Runtime computes some as x * a + b, with one a and b a row, and rounds both products at their own size.
    """
    x, axes = normalized(node, operands)
    with np.errstate(all="ignore"):
        size, deviation = np.abs(x).max(axis=axes, keepdims=True, initial=0.0), x.std(axis=axes, keepdims=True)
        ratio = np.nan_to_num(size / deviation, nan=0.0, posinf=0.0)
    shape = operands[node.input[0]].shape
    return np.broadcast_to(ratio, x.shape).reshape(shape) * np.abs(_scale(node, operands, shape))


def _scale(node: onnx.NodeProto, operands: Mapping[str, Array], shape: tuple[int, ...]) -> Array:
    """What the result is multiplied by, in a shape that fits it."""
    slot = {"MeanVarianceNormalization": None, "SkipLayerNormalization": 2}.get(node.op_type, 1)
    if slot is None:
        return np.ones(())
    scale = operands[node.input[slot]].astype(np.float64)
    if node.op_type in ("InstanceNormalization", "GroupNormalization"):
        # Before version 21 there was one scale for each group.
        return np.repeat(scale, shape[1] // max(1, scale.size)).reshape(-1, *[1] * (len(shape) - 2))
    return scale
