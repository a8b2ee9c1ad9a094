"""Reductions over windows as pooling operators, as convolutions with ones, or as cumulative sums."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.primitive import WindowReduce
from korch_cli.core.types import Array, DType

if TYPE_CHECKING:
    from korch_cli.emit.primitives import FunctionBody

_WIDE_POOLING = 8
"""Before this opset ONNX Runtime pools f32 alone."""
_MODERN_POOLING = 10
"""From this opset on pooling has dilations and ceil_mode."""
_PREFIX_SUM = 11
"""The opset that brought CumSum."""
_BYTES = 12
"""From this opset on MaxPool takes 8-bit integers."""
_DILATED_MEAN = 19
"""From this opset on AveragePool has dilations."""

_ADDED = (DType.F32, DType.F64, DType.I32, DType.I64)
"""What CumSum adds up."""


def window_reduce(body: FunctionBody, value: Value, args: list[str], out: str) -> None:
    """Add the nodes of a reduction over windows.

    Raises:
        Refusal: no operator of this opset says it.
    """
    assert isinstance(value.op, WindowReduce)
    op, dtype = value.op, value.type.dtype
    (operand,) = body.graph.args(value)
    if 0 in operand.type.shape or 0 in value.type.shape:
        raise Refusal("There are no windows over nothing.")
    held = _held_in(op.function, dtype, body.opset)
    if held is not DType.F32 and body.opset < _WIDE_POOLING:
        raise Refusal(f"ONNX Runtime has no windows over {dtype.text} at opset {body.opset}.")
    tensor, result = args[0], out
    if held is not dtype:
        tensor, result = body.cast(tensor, held, f"{out}_arg"), f"{result}_wide"
    prefixes = _is_prefix_sum(op, operand, value)
    if op.function != "max" and held not in (_ADDED if prefixes else (DType.F32,)):
        raise Refusal(f"ONNX Runtime has no windows over {dtype.text}.")
    if prefixes:
        _prefix_sum(body, value.type.rank, tensor, result)
    else:
        _over_images(body, value, held, tensor, result)
    if held is not dtype:
        body.cast(result, dtype, out)


def _held_in(function: str, dtype: DType, opset: int) -> DType:
    """Return the type to compute in: ONNX Runtime has no kernels for some types, where a wider one gives the same."""
    if dtype in (DType.F16, DType.BF16):
        return DType.F32
    if function != "max" or dtype is DType.F64:
        return dtype
    if dtype in (DType.I8, DType.U8):
        return dtype if opset >= _BYTES else DType.F32
    if dtype in (DType.I16, DType.U16):
        return DType.F32
    if dtype in (DType.I32, DType.U32):
        return DType.F64
    if dtype is not DType.F32:
        raise Refusal(f"ONNX Runtime has no windows over {dtype.text}.")
    return dtype


def _over_images(body: FunctionBody, value: Value, held: DType, tensor: str, out: str) -> None:
    """Add the nodes of a reduction of which the operand's axes without a window count as those of images."""
    assert isinstance(value.op, WindowReduce)
    op, rank = value.op, len(value.op.window)
    (operand,) = body.graph.args(value)
    shape = operand.type.shape
    if len(shape) == rank + 2:
        _of_images(body, op, shape, value.type.shape, held, tensor, out)
        return
    channels, spatial = prod(shape[:-rank]), value.type.shape[-rank:]
    images, result = (1, channels, *shape[-rank:]), (1, channels, *spatial)
    tensor = body.node("Reshape", [tensor, body.integers(images)], f"{out}_images")
    _of_images(body, op, images, result, held, tensor, f"{out}_reduced")
    body.node("Reshape", [f"{out}_reduced", body.integers(value.type.shape)], out)


def _of_images(
    body: FunctionBody,
    op: WindowReduce,
    operand: tuple[int, ...],
    result: tuple[int, ...],
    held: DType,
    tensor: str,
    out: str,
) -> None:
    """Add the nodes of a reduction over windows of images."""
    needed = _reached(op, operand, result)
    common: dict[str, Any] = {"kernel_shape": list(op.window), "strides": list(op.strides)}
    if any(d != 1 for d in op.dilations):
        common["dilations"] = list(op.dilations)
    unpadded = not op.count_padding and all(
        n < w for n, w in zip((*op.before, *needed), (*op.window, *op.window), strict=True)
    )
    # Where padding takes no part, it may be just what the last window reaches.
    after, ceil = (
        (needed, 0) if unpadded else (op.after, int(any(n > a for n, a in zip(needed, op.after, strict=True))))
    )
    # Runtimes disagree on a mean that counts padding with ceil_mode.
    unsayable = (ceil and op.count_padding) or ("dilations" in common and body.opset < _DILATED_MEAN)
    if op.function == "sum" or (op.function == "mean" and unsayable):
        ones = body.constant(np.ones((operand[1], 1, *op.window), held.numpy))
        total = out if op.function == "sum" else f"{out}_sum"
        body.node("Conv", [tensor, ones], total, pads=[*op.before, *needed], group=operand[1], **common)
        if op.function == "mean":
            body.node("Div", [total, body.constant(_counts(op, operand, result).astype(held.numpy))], out)
        return
    if body.opset < _MODERN_POOLING and (ceil or "dilations" in common):
        raise Refusal(f"Opset {body.opset} has no pooling with dilations or ceil_mode.")
    if ceil:
        common["ceil_mode"] = 1
    if op.function == "mean":
        common["count_include_pad"] = int(op.count_padding)
    body.node("MaxPool" if op.function == "max" else "AveragePool", [tensor], out, pads=[*op.before, *after], **common)


def _is_prefix_sum(op: WindowReduce, operand: Value, value: Value) -> bool:
    """Whether each element is the sum of the last axis up to it."""
    moves_by_one = op.strides == op.dilations == (1,)
    whole = op.window[0] >= operand.type.shape[-1] and op.window == (op.before[0] + 1,)
    return op.function == "sum" and moves_by_one and whole and operand.type == value.type


def _prefix_sum(body: FunctionBody, rank: int, tensor: str, out: str) -> None:
    if body.opset < _PREFIX_SUM:
        raise Refusal(f"Opset {body.opset} has no sums of prefixes.")
    body.node("CumSum", [tensor, body.constant(np.array(rank - 1))], out)


def _reached(op: WindowReduce, operand: tuple[int, ...], result: tuple[int, ...]) -> tuple[int, ...]:
    """Return for each axis of the window how many positions after the operand the last window reaches."""
    rank = len(op.window)
    found = []
    for axis in range(rank):
        span = (op.window[axis] - 1) * op.dilations[axis] + 1
        reach = (result[axis - rank] - 1) * op.strides[axis] + span
        found.append(max(0, reach - op.before[axis] - operand[axis - rank]))
    return tuple(found)


def _counts(op: WindowReduce, operand: tuple[int, ...], result: tuple[int, ...]) -> Array:
    """Return the number of positions under each window that a mean divides by."""
    rank = len(op.window)
    counts = np.ones((1,) * rank)
    for axis in range(rank):
        first = np.arange(result[axis - rank]) * op.strides[axis] - op.before[axis]
        places = first[:, None] + np.arange(op.window[axis]) * op.dilations[axis]
        low = -op.before[axis] if op.count_padding else 0
        high = operand[axis - rank] + (op.after[axis] if op.count_padding else 0)
        along = ((places >= low) & (places < high)).sum(axis=1)
        counts = counts * along.reshape(-1, *[1] * (rank - axis - 1))
    return counts
