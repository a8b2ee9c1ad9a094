"""Convolutions and matrix products with constant weights, and how their weights take in an affine map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from korch_cli.algebra.affine import Affine, Lookup
from korch_cli.core.types import Array, DType, TensorType

_MOST_BYTES = 64 << 20
"""Larger weights are not rewritten: the output would have to hold them, and they would have to be held to do it."""


@dataclass(frozen=True, slots=True)
class Product:
    """A node with constant weights.

    Attributes:
        node: Conv, ConvTranspose, Gemm or MatMul.
        weights: float32 or float64.
        bias: for each output channel, None without; MatMul has no place for one.
        inputs: channels of the operand.
        outputs: channels of the result.
        axis: of the channels in both.
        rank: of both.
    """

    node: onnx.NodeProto
    weights: Array
    bias: Array | None
    inputs: int
    outputs: int
    axis: int
    rank: int

    def after(self, affine: Affine) -> tuple[Array, Array | None] | None:
        """Return weights and bias of the product followed by a map of its result, None where they cannot say it."""
        if self.node.op_type == "MatMul" and not affine.is_scale:
            return None
        scale = np.broadcast_to(affine.scale, self.outputs)
        weights = self.weights.astype(np.float64) * self._along_outputs(scale)
        if affine.is_scale and self.bias is None:
            return self._rounded(weights, None)
        bias = np.zeros(self.outputs) if self.bias is None else self.bias.astype(np.float64)
        return self._rounded(weights, bias * scale + affine.shift)

    def before(self, affine: Affine) -> tuple[Array, Array | None] | None:
        """Return weights and bias of the product of a mapped operand, None where they cannot say it.

        Where windows reach into the padding, which the map does not touch, a shift is no bias.
        """
        if self.node.op_type not in ("Conv", "Gemm", "MatMul"):
            return None
        if not affine.is_scale and (self.node.op_type == "MatMul" or _is_padded(self.node)):
            return None
        wide = self.weights.astype(np.float64)
        weights = wide * self._along_inputs(np.broadcast_to(affine.scale, self.inputs))
        if affine.is_scale:
            return self._rounded(weights, None if self.bias is None else self.bias.astype(np.float64))
        moved = wide * self._along_inputs(np.broadcast_to(affine.shift, self.inputs))
        bias = np.zeros(self.outputs) if self.bias is None else self.bias.astype(np.float64)
        return self._rounded(weights, bias + self._summed(moved))

    def _along_outputs(self, numbers: Array) -> Array:
        """Lay a number for each output channel along the weights."""
        spatial = (1,) * (self.weights.ndim - 2)
        match self.node.op_type:
            case "Conv":
                return numbers.reshape(-1, 1, *spatial)
            case "ConvTranspose":
                group = self.outputs // self.weights.shape[1]
                rows = numbers.reshape(group, 1, self.weights.shape[1])
                spread = np.broadcast_to(rows, (group, self.inputs // group, self.weights.shape[1]))
                return spread.reshape(self.inputs, self.weights.shape[1], *spatial)
        return numbers.reshape(-1, 1) if _is_transposed(self.node) else numbers

    def _along_inputs(self, numbers: Array) -> Array:
        """Lay a number for each input channel along the weights."""
        if self.node.op_type == "Conv":
            width = self.weights.shape[1]
            group = self.inputs // width
            rows = np.repeat(numbers.reshape(group, width), self.outputs // group, axis=0)
            return rows.reshape(self.outputs, width, *(1,) * (self.weights.ndim - 2))
        return numbers if _is_transposed(self.node) else numbers.reshape(-1, 1)

    def _summed(self, weights: Array) -> Array:
        if self.node.op_type == "Conv":
            return np.asarray(weights.sum(axis=tuple(range(1, weights.ndim))))
        return np.asarray(weights.sum(axis=1 if _is_transposed(self.node) else 0))

    def _rounded(self, weights: Array, bias: Array | None) -> tuple[Array, Array | None] | None:
        dtype = self.weights.dtype
        found = weights.astype(dtype), None if bias is None else bias.astype(dtype)
        finite = found[1] is None or bool(np.isfinite(found[1]).all())
        return found if finite and _leaves_room(found[0]) else None


def _leaves_room(weights: Array) -> bool:
    """Whether sums over these weights neither overflow nor lose digits where those of the original did not.

    Folding moves a factor from a sum to its terms: a factor near the largest number then makes terms infinite whose
    sum is not, or leaves inf - inf, and one near the smallest takes digits that a factor after it would show. No
    weights of a network come near either limit.
    """
    limits = np.finfo(weights.dtype)
    largest = float(np.abs(weights).max(initial=0))
    return largest == 0 or limits.tiny / limits.eps <= largest <= float(limits.max) ** 0.5


def read_product(node: onnx.NodeProto, constant: Lookup, types: Mapping[str, TensorType]) -> Product | None:
    """Return a node as a product whose weights are constant, None where it is none."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in _READERS:
        return None
    typed, operand = types.get(node.input[1]), types.get(node.input[0])
    if operand is None or node.output[0] not in types:
        return None
    # What was rewritten before has no type here, but it had to be small enough then.
    if typed is not None and (typed.size_bytes > _MOST_BYTES or typed.dtype not in (DType.F32, DType.F64)):
        return None
    weights = constant(node.input[1])
    if weights is None or not weights.size or weights.dtype not in (np.float32, np.float64):
        return None
    bias = None
    if len(node.input) > 2 and node.input[2]:
        bias = constant(node.input[2])
        if bias is None:
            return None
    return _READERS[node.op_type](node, weights, bias, operand.rank)


def _convolution(node: onnx.NodeProto, weights: Array, bias: Array | None, rank: int) -> Product | None:
    group = _attribute(node, "group", 1)
    if node.op_type == "Conv":
        return Product(node, weights, bias, weights.shape[1] * group, weights.shape[0], 1, rank)
    return Product(node, weights, bias, weights.shape[0], weights.shape[1] * group, 1, rank)


def _gemm(node: onnx.NodeProto, weights: Array, bias: Array | None, rank: int) -> Product | None:
    if _attribute(node, "alpha", 1.0) != 1 or _attribute(node, "beta", 1.0) != 1 or _attribute(node, "transA", 0):
        return None
    outputs, inputs = weights.shape if _is_transposed(node) else weights.shape[::-1]
    if bias is not None:
        if bias.size not in (1, outputs) or (bias.ndim == 2 and bias.shape[0] != 1):
            return None
        bias = np.broadcast_to(bias.reshape(-1), outputs)
    return Product(node, weights, bias, inputs, outputs, 1, rank)


def _matmul(node: onnx.NodeProto, weights: Array, bias: Array | None, rank: int) -> Product | None:
    if weights.ndim != 2 or rank < 2:
        return None
    return Product(node, weights, bias, weights.shape[0], weights.shape[1], rank - 1, rank)


_READERS = {"Conv": _convolution, "ConvTranspose": _convolution, "Gemm": _gemm, "MatMul": _matmul}


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    return next((onnx.helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def _is_transposed(node: onnx.NodeProto) -> bool:
    return node.op_type == "Gemm" and bool(_attribute(node, "transB", 0))


def _is_padded(node: onnx.NodeProto) -> bool:
    if node.op_type != "Conv":
        return False
    return any(_attribute(node, "pads", ())) or _attribute(node, "auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID")


def is_pointwise(node: onnx.NodeProto) -> bool:
    """Whether a Conv works on each position alone: width 1, no groups, no padding and no steps."""
    if _attribute(node, "group", 1) != 1 or _is_padded(node) or any(s != 1 for s in _attribute(node, "strides", ())):
        return False
    return all(extent == 1 for extent in _attribute(node, "kernel_shape", (0,)))
