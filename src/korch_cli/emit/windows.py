"""Reductions over windows as pooling operators, or as convolutions with ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.primitive import WindowReduce
from korch_cli.core.types import DType

if TYPE_CHECKING:
    from korch_cli.emit.primitives import FunctionBody

_MODERN_POOLING = 10
"""From this opset on pooling has dilations and ceil_mode."""
_DILATED_MEAN = 19
"""From this opset on AveragePool has dilations."""


def window_reduce(body: FunctionBody, value: Value, args: list[str], out: str) -> None:
    """Add the nodes of a reduction over windows.

    Raises:
        Refusal: no operator of this opset says it.
    """
    assert isinstance(value.op, WindowReduce)
    op = value.op
    (operand,) = body.graph.args(value)
    if operand.type.rank != len(op.window) + 2 or value.type.dtype not in (DType.F32, DType.F16):
        raise Refusal("Only windows over images of f32 or f16 have an operator.")
    needed = _reached(op, operand.type.shape, value.type.shape)
    common: dict[str, Any] = {"kernel_shape": list(op.window), "strides": list(op.strides)}
    if any(d != 1 for d in op.dilations):
        common["dilations"] = list(op.dilations)
    if op.function == "sum":
        channels = operand.type.shape[1]
        ones = body.constant(np.ones((channels, 1, *op.window), value.type.dtype.numpy))
        body.node("Conv", [*args, ones], out, pads=[*op.before, *needed], group=channels, **common)
        return
    if op.function == "mean" and "dilations" in common and body.opset < _DILATED_MEAN:
        raise Refusal(f"Opset {body.opset} has no mean over a dilated window.")
    if not op.count_padding and all(
        n < w for n, w in zip((*op.before, *needed), (*op.window, *op.window), strict=True)
    ):
        # Padding takes no part, so it may be just what the last window reaches.
        pads, ceil = [*op.before, *needed], 0
    else:
        pads, ceil = [*op.before, *op.after], int(any(n > a for n, a in zip(needed, op.after, strict=True)))
        if ceil and op.count_padding:
            raise Refusal("Runtimes disagree on a mean that counts padding with ceil_mode.")
    if body.opset < _MODERN_POOLING and (ceil or "dilations" in common):
        raise Refusal(f"Opset {body.opset} has no pooling with dilations or ceil_mode.")
    if ceil:
        common["ceil_mode"] = 1
    if op.function == "mean":
        common["count_include_pad"] = int(op.count_padding)
    body.node("MaxPool" if op.function == "max" else "AveragePool", args, out, pads=pads, **common)


def _reached(op: WindowReduce, operand: tuple[int, ...], result: tuple[int, ...]) -> list[int]:
    """Return for each axis of the window how many positions after the operand the last window reaches."""
    rank = len(op.window)
    found = []
    for axis in range(rank):
        span = (op.window[axis] - 1) * op.dilations[axis] + 1
        reach = (result[axis - rank] - 1) * op.strides[axis] + span
        found.append(max(0, reach - op.before[axis] - operand[axis - rank]))
    return found
