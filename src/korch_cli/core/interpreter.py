"""What every primitive computes, in numpy: the reference for kernels, and the constant folder of fission.

Written to be checked by eye rather than to be fast. float16 and bfloat16 are computed in float32 and rounded once for
each primitive. With `widen`, every floating-point value is held and computed in float64 whatever its declared type;
only what that type has no finite number for is infinite, as it is to a kernel. That result is the oracle that kernels
are measured against.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from korch_cli.core.elementwise import FUNCTIONS
from korch_cli.core.graph import PrimitiveGraph
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
from korch_cli.core.types import Array, DType, TensorType

_Rule = Callable[[Any, list[Array], TensorType], Array]


def apply(op: Op, args: Sequence[Array], type: TensorType, *, widen: bool = False) -> Array:  # noqa: A002
    """Return the value of one primitive, of type `type`, on these operands.

    With `widen`, floating-point operands and results are float64 arrays; otherwise they have their declared types.

    Raises:
        ValueError: `op` is an Input or Opaque, which only a whole model can compute.
    """
    if isinstance(op, Constant):
        return _stored(op.array(), type.dtype, widen)
    rule = _RULES.get(op.__class__)
    if rule is None:
        raise ValueError(f"{op.__class__.__name__} is no primitive that the interpreter can compute")
    with np.errstate(all="ignore"):
        result = rule(op, [_computed(a) for a in args], type)
        return np.ascontiguousarray(_stored(result, type.dtype, widen)).reshape(type.shape)


def evaluate(graph: PrimitiveGraph, feeds: Mapping[int, Array], *, widen: bool = False) -> dict[int, Array]:
    """Return every value of `graph` by id.

    `feeds` gives the inputs; it may give other values too, such as those of opaque operators, which are then taken as
    they are. With `widen`, floats are float64 arrays throughout.

    Raises:
        ValueError: an input or an opaque value is not fed, or a fed array has another shape than its value.
    """
    found: dict[int, Array] = {}
    for value in graph.values:
        fed = feeds.get(value.id)
        if fed is not None:
            if fed.shape != value.type.shape:
                raise ValueError(f"{value.name} is {value.type}; it cannot be fed an array of shape {fed.shape}")
            found[value.id] = _stored(fed, value.type.dtype, widen)
        elif isinstance(value.op, Input | Opaque):
            raise ValueError(f"{value.name} is not fed")
        else:
            found[value.id] = apply(value.op, [found[a] for a in value.args], value.type, widen=widen)
    return found


def _stored(array: Array, dtype: DType, widen: bool) -> Array:
    """Return `array` in the type in which a value of `dtype` is held."""
    with np.errstate(all="ignore"):
        if not (widen and dtype.is_float):
            return np.asarray(array).astype(dtype.numpy, copy=False)
        wide = np.asarray(array).astype(np.float64, copy=False)
        beyond = np.isfinite(wide) & np.isinf(wide.astype(dtype.numpy))
        return np.where(beyond, np.copysign(np.inf, wide), wide) if beyond.any() else wide


def _computed(array: Array) -> Array:
    """Return `array` in the type in which it is computed with: float32 for the 16-bit floats."""
    narrow = array.dtype in (DType.F16.numpy, DType.BF16.numpy)
    return array.astype(np.float32) if narrow else array


def _elementwise(op: Elementwise, args: list[Array], _typed: TensorType) -> Array:
    return FUNCTIONS[op.function].apply(*args)


def _broadcast(_op: Broadcast, args: list[Array], typed: TensorType) -> Array:
    return np.broadcast_to(args[0], typed.shape)


def _reduce(op: Reduce, args: list[Array], _typed: TensorType) -> Array:
    (x,) = args
    if op.function == "mean":
        count = np.array(np.prod([x.shape[axis] for axis in op.axes], dtype=np.int64)).astype(x.dtype)
        return np.asarray(np.add.reduce(x, axis=op.axes, keepdims=True, dtype=x.dtype) / count)
    function = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[op.function]
    initial = None if x.size else _neutral(op.function, x.dtype)
    dtype = x.dtype if op.function in ("sum", "prod") else None
    return np.asarray(function.reduce(x, axis=op.axes, keepdims=True, dtype=dtype, initial=initial))


def _neutral(function: str, dtype: np.dtype[Any]) -> Any:
    """Return the value that a reduction of nothing gives."""
    if function in ("sum", "mean", "prod"):
        return dtype.type(1 if function == "prod" else 0)
    if dtype == np.bool_:
        return function == "min"
    if np.issubdtype(dtype, np.integer):
        return np.iinfo(dtype).min if function == "max" else np.iinfo(dtype).max
    return -np.inf if function == "max" else np.inf


def _window_reduce(op: WindowReduce, args: list[Array], typed: TensorType) -> Array:
    (x,) = args
    spatial = typed.shape[-len(op.window) :]
    combine = np.maximum if op.function == "max" else np.add
    padded = _surrounded(x, op, spatial, _neutral(op.function, x.dtype))
    total = np.full(typed.shape, _neutral(op.function, x.dtype), x.dtype)
    for part in _window_parts(padded, op.window, op.strides, op.dilations, spatial):
        total = combine(total, part)
    if op.function != "mean":
        return total
    # What counts is the operand's own positions, together with the declared padding where that is asked for.
    ones = np.ones(x.shape[-len(op.window) :], x.dtype)
    if op.count_padding:
        ones = np.pad(ones, list(zip(op.before, op.after, strict=True)), constant_values=1)
    before = (0,) * len(op.window) if op.count_padding else op.before
    counted = _surrounded(ones, op, spatial, 0, before)
    return np.asarray(total / sum(_window_parts(counted, op.window, op.strides, op.dilations, spatial)))


def _surrounded(
    x: Array, op: WindowReduce, spatial: tuple[int, ...], value: Any, before: tuple[int, ...] | None = None
) -> Array:
    """Return `x` padded with `value` so that every window lies inside."""
    before = op.before if before is None else before
    amounts = [(0, 0)] * (x.ndim - len(op.window))
    for axis, start in enumerate(before):
        reach = (spatial[axis] - 1) * op.strides[axis] + (op.window[axis] - 1) * op.dilations[axis] + 1
        amounts.append((start, max(0, reach - start - x.shape[axis - len(op.window)])))
    return np.pad(x, amounts, constant_values=value)


def _window_parts(
    padded: Array,
    window: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    spatial: tuple[int, ...],
) -> Iterator[Array]:
    """Yield for each position in the window, in row-major order, the elements that lie under it."""
    for offsets in itertools.product(*map(range, window)):
        places = [
            slice(offset * dilation, offset * dilation + (count - 1) * stride + 1 if count else 0, stride)
            for offset, dilation, stride, count in zip(offsets, dilations, strides, spatial, strict=True)
        ]
        yield padded[tuple([slice(None)] * (padded.ndim - len(places)) + places)]


def _transpose(op: Transpose, args: list[Array], _typed: TensorType) -> Array:
    return args[0].transpose(op.perm)


def _reshape(_op: Reshape, args: list[Array], typed: TensorType) -> Array:
    return args[0].reshape(typed.shape)


def _slice(op: Slice, args: list[Array], typed: TensorType) -> Array:
    picked = args[0]
    for axis, (start, step, count) in enumerate(zip(op.starts, op.steps, typed.shape, strict=True)):
        picked = picked.take(start + step * np.arange(count), axis=axis)
    return picked


def _pad(op: Pad, args: list[Array], typed: TensorType) -> Array:
    (x,) = args
    result = np.full(typed.shape, op.value, x.dtype)
    result[tuple(slice(start, start + extent) for start, extent in zip(op.before, x.shape, strict=True))] = x
    return result


def _concat(op: Concat, args: list[Array], _typed: TensorType) -> Array:
    return np.concatenate(args, axis=op.axis)


def _gather(op: Gather, args: list[Array], _typed: TensorType) -> Array:
    return args[0].take(np.array(op.indices, np.int64), axis=op.axis)


def _linear(op: Linear, args: list[Array], typed: TensorType) -> Array:
    if op.kind == "matmul":
        return np.asarray(np.matmul(args[0], args[1]))
    attributes: dict[str, Any] = dict(op.attributes)
    if op.kind == "conv_transpose":
        return _conv_transpose(args[0], args[1], typed, **attributes)
    return _conv(args[0], args[1], typed, **attributes)


def _conv(
    x: Array,
    w: Array,
    typed: TensorType,
    *,
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    before: tuple[int, ...],
    after: tuple[int, ...],
    group: int,
) -> Array:
    """Sum over the window's positions of one matrix product each: w[m, c] times x[c, pixels], for each group."""
    spatial, window = typed.shape[2:], w.shape[2:]
    padded = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)])
    weights = w.reshape(group, w.shape[0] // group, w.shape[1], -1)
    pixels = int(np.prod(spatial, dtype=np.int64))
    total = np.zeros((x.shape[0], group, w.shape[0] // group, pixels), x.dtype)
    for position, part in enumerate(_window_parts(padded, window, strides, dilations, spatial)):
        total += np.matmul(weights[..., position], part.reshape(x.shape[0], group, w.shape[1], pixels))
    return total.reshape(typed.shape)


def _conv_transpose(
    x: Array,
    w: Array,
    typed: TensorType,
    *,
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    before: tuple[int, ...],
    group: int,
    output_padding: tuple[int, ...],
    **_after: tuple[int, ...],
) -> Array:
    """Add one matrix product for each position of the window where that position lands in the result."""
    spatial, window = x.shape[2:], w.shape[2:]
    pixels = int(np.prod(spatial, dtype=np.int64))
    images = x.reshape(x.shape[0], group, x.shape[1] // group, pixels)
    weights = w.reshape(group, w.shape[0] // group, w.shape[1], -1).swapaxes(1, 2)
    full = [
        (extent - 1) * stride + (taps - 1) * dilation + 1 + max(extra, 0)
        for extent, stride, taps, dilation, extra in zip(
            spatial, strides, window, dilations, output_padding, strict=True
        )
    ]
    total = np.zeros((x.shape[0], w.shape[1] * group, *full), x.dtype)
    for position, part in enumerate(_window_parts(total, window, strides, dilations, spatial)):
        np.add(part, np.matmul(weights[..., position], images).reshape(part.shape), out=part)
    kept = [slice(start, start + extent) for start, extent in zip(before, typed.shape[2:], strict=True)]
    return total[(slice(None), slice(None), *kept)]


_RULES: dict[type, _Rule] = {
    Elementwise: _elementwise,
    Broadcast: _broadcast,
    Reduce: _reduce,
    WindowReduce: _window_reduce,
    Transpose: _transpose,
    Reshape: _reshape,
    Slice: _slice,
    Pad: _pad,
    Concat: _concat,
    Gather: _gather,
    Linear: _linear,
}
