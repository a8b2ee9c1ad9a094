"""Operators that move elements: views, slices, joins, tables, and what makes tensors of nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from korch_cli.core.types import DType, broadcast_shapes
from tests.fuzz.operators import operator
from tests.fuzz.sketch import ANY, FLOATS, MOST_ELEMENTS, NUMBERS, Call, Sketch, Tensor, Unfit

_EDGE = 2**62


@operator("Transpose")
def _transpose(s: Sketch) -> Call:
    x = s.pick(ANY, range(6))
    return Call([x], {"perm": s.permutation(x.rank)} if s.chance(85) else {})


@operator("Reshape")
def _reshape(s: Sketch) -> Call:
    x = s.pick(ANY)
    target = list(x.shape)
    for _ in range(s.integer(1, 3)):
        _regroup(s, target)
    zero = s.opset >= 14 and s.chance(15)
    if not zero:
        target = [0 if i < x.rank and e == x.shape[i] and s.chance(20) else e for i, e in enumerate(target)]
        if target and x.array.size and s.chance(40):
            target[s.integer(0, len(target) - 1)] = -1
    return Call([x, s.positions(*target)], {"allowzero": 1} if zero else {})


def _regroup(s: Sketch, shape: list[int]) -> None:
    """Merge two neighbouring extents, split one, or put in a 1."""
    kind = s.choose(("merge", "split", "one"))
    if kind == "one" or not shape:
        shape.insert(s.integer(0, len(shape)), 1)
    elif kind == "merge" and len(shape) > 1:
        at = s.integer(0, len(shape) - 2)
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    else:
        at = s.integer(0, len(shape) - 1)
        factors = [f for f in range(1, shape[at] + 1) if shape[at] % f == 0]
        if factors:
            factor = s.choose(factors)
            shape[at : at + 1] = [factor, shape[at] // factor]


@operator("Flatten", since=9)
def _flatten(s: Sketch) -> Call:
    x = s.pick(ANY)
    return Call([x], {"axis": s.integer(0, x.rank)})


@operator("Squeeze", until=12)
@operator("Squeeze", since=13)
def _squeeze(s: Sketch) -> Call:
    x = s.pick(ANY, test=lambda t: 1 in t.shape)
    if s.chance(20):
        return Call([x])
    return _with_axes(s, x, s.subset([a for a, e in enumerate(x.shape) if e == 1]), 13)


@operator("Unsqueeze")
def _unsqueeze(s: Sketch) -> Call:
    x = s.pick(ANY, range(5))
    rank = x.rank + s.integer(1, 2)
    axes = s.permutation(rank)[: rank - x.rank]
    return _with_axes(s, x, axes, 13)


def _with_axes(s: Sketch, x: Tensor, axes: list[int], since: int, **attributes: Any) -> Call:
    """Give `axes` as an input from opset `since` on, as an attribute before."""
    if s.opset >= since:
        return Call([x, s.positions(*axes)], attributes)
    return Call([x], {"axes": axes, **attributes})


@operator("Slice", until=9)
def _slice_attributes(s: Sketch) -> Call:
    x = s.pick(ANY, range(1, 6))
    axes = s.subset(range(x.rank))
    starts = [s.integer(-x.shape[a], x.shape[a]) for a in axes]
    ends = [s.choose((s.integer(-x.shape[a], x.shape[a]), _EDGE)) for a in axes]
    return Call([x], {"starts": starts, "ends": ends, "axes": axes})


@operator("Slice", since=10)
def _slice(s: Sketch) -> Call:
    x = s.pick(ANY, range(1, 6))
    axes = s.subset(range(x.rank))
    dtype = s.choose((DType.I64, DType.I32))
    most = _EDGE if dtype is DType.I64 else 2**31 - 1
    steps = [s.choose((1, 1, 2, 3, -1, -2)) for _ in axes]
    starts, ends = [], []
    for axis, step in zip(axes, steps, strict=True):
        near = s.integer(0, x.shape[axis] // 2)
        first, last = (near, most) if step > 0 else (most, near)
        starts.append(first - x.shape[axis] if step > 0 and s.chance(30) else first)
        ends.append(last if step > 0 or s.chance(50) else -most)
    signed = [a - x.rank if s.chance(30) else a for a in axes]
    given = [starts, ends, *([signed, steps] if s.chance(80) or axes != list(range(len(axes))) else [])]
    return Call([x, *(s.positions(*numbers, dtype=dtype) for numbers in given)])


@operator("Pad", until=10)
def _pad_attributes(s: Sketch) -> Call:
    x = s.pick(FLOATS, range(1, 6))
    mode = s.choose(("constant", "constant", "edge", "reflect"))
    value = {"value": 1.5} if s.chance(50) else {}
    return Call([x], {"pads": _amounts(s, x, mode), "mode": mode, **value})


@operator("Pad", since=11)
def _pad(s: Sketch) -> Call:
    x = s.pick(NUMBERS if s.opset >= 13 else FLOATS, range(1, 6))
    mode = s.choose(("constant", "constant", "edge", "reflect", *(("wrap",) if s.opset >= 19 else ())))
    value = [s.fixed(np.array(s.integer(0, 3), x.dtype.numpy))] if s.chance(50) else []
    return Call([x, s.positions(*_amounts(s, x, mode)), *value], {"mode": mode})


def _amounts(s: Sketch, x: Tensor, mode: str) -> list[int]:
    amounts = []
    for extent in 2 * x.shape:
        most = min(3, max(0, extent - 1)) if mode != "constant" else 3
        least = -1 if mode == "constant" and extent > 2 and s.chance(20) else 0
        amounts.append(s.integer(least, most) if s.chance(50) else 0)
    return amounts


@operator("Concat")
def _concat(s: Sketch) -> Call:
    x = s.pick(ANY, range(1, 6))
    axis = s.integer(0, x.rank - 1)

    def beside(t: Tensor) -> bool:
        return t.rank == x.rank and t.shape[:axis] + t.shape[axis + 1 :] == x.shape[:axis] + x.shape[axis + 1 :]

    parts = [s.pick((x.dtype,), test=beside) for _ in range(s.integer(0, 2))]
    if s.chance(40) and x.dtype is not DType.BF16:
        parts.append(s.number(x.dtype, (*x.shape[:axis], s.integer(1, 3), *x.shape[axis + 1 :])))
    return Call([x, *parts], {"axis": axis - x.rank if s.opset >= 11 and s.chance(30) else axis})


@operator("Split")
def _split(s: Sketch) -> Call:
    x = s.pick(ANY, range(1, 6))
    axis = s.axis(x, signed=s.opset >= 11)
    extent = x.shape[axis]
    count = s.integer(1, 3)
    if s.chance(40) and extent % count == 0:
        return Call([x], {"axis": axis, **({"num_outputs": count} if s.opset >= 18 else {})}, count)
    cuts = sorted(s.integer(0, extent) for _ in range(count - 1))
    sizes = np.diff([0, *cuts, extent]).tolist()
    if s.opset >= 13:
        return Call([x, s.positions(*sizes)], {"axis": axis}, count)
    return Call([x], {"axis": axis, "split": sizes}, count)


def _indices(s: Sketch, extent: int, signed: bool, shape: tuple[int, ...] | None = None) -> Tensor:
    """Add indices of an axis; at times they are an input, and at times of rank 0 or 2."""
    if extent == 0:
        raise Unfit
    if shape is None:
        shape = s.choose(((), (1,), (3,), (5,), (2, 2)))
    count = int(np.prod(shape, dtype=np.int64))
    low = -extent if signed and s.chance(30) else 0
    found = np.array([s.integer(low, extent - 1) for _ in range(min(count, 40))], np.int64)
    array = np.resize(found, shape).astype(s.choose((np.int64, np.int32)))
    return s.table(array, given_percent=25)


@operator("Gather")
def _gather(s: Sketch) -> Call:
    x = s.pick(ANY, range(1, 6))
    axis = s.axis(x)
    return Call([x, _indices(s, x.shape[axis], s.opset >= 11)], {"axis": axis})


@operator("GatherElements", since=11)
def _gather_elements(s: Sketch) -> Call:
    x = s.pick(NUMBERS, range(1, 5))
    axis = s.axis(x)
    return Call([x, _indices(s, x.shape[axis], signed=True, shape=x.shape)], {"axis": axis})


@operator("GatherND", since=12)
def _gather_nd(s: Sketch) -> Call:
    x = s.pick(NUMBERS, range(1, 5))
    return Call([x, _indices(s, min(x.shape), signed=True, shape=(s.integer(1, 4), s.integer(1, x.rank)))])


@operator("ScatterElements", since=13)
def _scatter_elements(s: Sketch) -> Call:
    x = s.pick((DType.F32, DType.I64), range(1, 4))
    axis = s.axis(x)
    shape = tuple(1 if i == axis % x.rank else e for i, e in enumerate(x.shape))
    updates = s.number(x.dtype, shape)
    return Call([x, _indices(s, x.shape[axis], signed=True, shape=shape), updates], {"axis": axis})


@operator("Tile")
def _tile(s: Sketch) -> Call:
    x = s.pick(ANY, range(1, 6))
    return Call([x, s.positions(*(s.choose((1, 1, 1, 2, 3)) for _ in x.shape))])


@operator("Expand", since=8)
def _expand(s: Sketch) -> Call:
    x = s.pick(ANY)
    wanted = tuple(s.choose((e, 1)) if e != 1 else s.choose((1, 1, 2, 3)) for e in x.shape)
    wanted = (s.integer(1, 3), *wanted) if s.chance(30) else wanted[s.integer(0, len(wanted)) if s.chance(20) else 0 :]
    if np.prod(broadcast_shapes(wanted, x.shape)) > MOST_ELEMENTS:
        raise Unfit
    return Call([x, s.positions(*wanted)])


@operator("DepthToSpace SpaceToDepth", since=11)
def _blocks(s: Sketch) -> Call:
    return Call([s.pick((DType.F32,), (4,))], {"blocksize": 2})


@operator("DepthToSpace", since=11)
def _depth_to_space(s: Sketch) -> Call:
    return Call(
        [s.pick((DType.F32, DType.F64), (4,))], {"blocksize": s.choose((1, 2)), "mode": s.choose(("DCR", "CRD"))}
    )


@operator("Trilu", since=14)
def _trilu(s: Sketch) -> Call:
    x = s.pick((*NUMBERS, DType.BOOL), range(2, 6))
    return Call([x, *([s.fixed(np.array(s.integer(-3, 3)))] if s.chance(70) else [])], {"upper": s.integer(0, 1)})


@operator("Resize", since=11)
def _resize(s: Sketch) -> Call:
    x = s.pick((DType.F32,), (4,))
    mode = s.choose(("nearest", "linear"))
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": s.choose(("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")),
    }
    if mode == "nearest" and s.chance(60):
        attributes["nearest_mode"] = s.choose(("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"))
    if s.chance(50):
        scales = s.fixed(np.array([1, 1, s.choose((0.5, 2, 1.5)), s.choose((1, 2, 0.75))], np.float32))
        return Call([x, None if s.opset >= 13 else s.fixed(np.zeros(0, np.float32)), scales], attributes)
    empty = [None, None] if s.opset >= 13 else [s.fixed(np.zeros(0, np.float32)), s.fixed(np.zeros(0, np.float32))]
    return Call([x, *empty, s.positions(*x.shape[:2], s.integer(1, 9), s.integer(1, 9))], attributes)


@operator("Upsample", since=9, until=9)
def _upsample(s: Sketch) -> Call:
    x = s.pick((DType.F32,), (4,))
    scales = s.fixed(np.array([1, 1, s.choose((1, 2, 1.5)), s.choose((1, 2, 3))], np.float32))
    return Call([x, scales], {"mode": s.choose(("nearest", "linear"))})


@operator("ConstantOfShape", since=9)
def _constant_of_shape(s: Sketch) -> Call:
    x = s.pick(NUMBERS)
    dtype = s.choose((DType.F32, DType.I64, DType.BOOL, DType.F16))
    value = helper.make_tensor("value", dtype.onnx, [1], [1])
    return Call([s.positions(*x.shape)], {"value": value} if s.chance(70) else {})


@operator("Shape")
def _shape(s: Sketch) -> Call:
    return Call([s.pick(ANY)])


@operator("EyeLike", since=9)
def _eye_like(s: Sketch) -> Call:
    return Call([s.pick((DType.F32, DType.I64), (2,))])
