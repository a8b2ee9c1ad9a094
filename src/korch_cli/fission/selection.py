"""Operators that compare places with indices, or keep what a constant says: OneHot, EyeLike, Compress, cropping."""

from __future__ import annotations

import numpy as np

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.types import DType
from korch_cli.fission.build import FOLD_LIMIT_BYTES, Builder
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView, distinct_axes, normalized


@fission("OneHot", since=9, also=(11, 28))
def one_hot(op: OperatorView, build: Builder) -> Value:
    """Compare each index with the places of a new axis; an index below 0 counts from the back."""
    indices, depths, values = op.input(0), op.constant(1), op.input(2)
    if depths is None or depths.size != 1 or int(depths.reshape(-1)[0]) < 1:
        raise Refusal("its depth is not one positive number")
    if values.type.shape != (2,):
        raise Refusal("its values are not two")
    depth, rank = int(depths.reshape(-1)[0]), indices.type.rank + 1
    axis = normalized(op.integer("axis", -1), rank)
    shape = indices.type.shape
    wide = build.reshape(build.cast(indices, DType.I64), (*shape[:axis], 1, *shape[axis:]))
    wrapped = build.where(build.elementwise("less", wide, 0), build.add(wide, depth), wide)
    places = build.constant(np.arange(depth, dtype=np.int64).reshape(depth, *[1] * (rank - axis - 1)), "places")
    off, on = (build.reshape(build.slice(values, (i,), (1,), (1,)), ()) for i in (0, 1))
    return build.where(build.elementwise("equal", wrapped, places), on, off)


@fission("EyeLike", since=9, also=(22,))
def eye_like(op: OperatorView, build: Builder) -> Value:
    """Return ones on a diagonal of zeros; only the operand's shape matters."""
    x, offset, number = op.input(0), op.integer("k", 0), op.integer("dtype", 0)
    dtype = DType.from_onnx(number) if number else x.type.dtype
    if dtype is None or dtype is DType.STRING:
        raise Refusal("its element type is not supported")
    if x.type.rank != 2:
        raise Refusal(f"{x.type} is no matrix")
    if x.type.elements * dtype.size_bytes > FOLD_LIMIT_BYTES:
        raise Refusal("its result would be a constant that is too large")
    rows, columns = x.type.shape
    return build.constant(np.eye(rows, columns, offset, dtype=np.float32).astype(dtype.numpy), "eye")


@fission("Compress", since=9, also=(11, 28))
def compress(op: OperatorView, build: Builder) -> Value:
    """Keep the elements of one axis, or of the flattened operand, for which a constant condition holds."""
    x, condition = op.input(0), op.constant(1)
    if condition is None or condition.ndim != 1:
        raise Refusal("its condition is not one list")
    if op.has_attribute("axis"):
        axis = op.axis("axis", 0, x.type.rank, negative=op.version >= 11)
    else:
        x, axis = build.reshape(x, (x.type.elements,)), 0
    # What a condition says beyond the end of the axis counts for nothing.
    kept = np.flatnonzero(condition[: x.type.shape[axis]])
    return build.gather(x, axis, tuple(int(i) for i in kept))


@fission("CenterCropPad", since=18)
def center_crop_pad(op: OperatorView, build: Builder) -> Value:
    """Cut or pad each axis to a constant extent on both sides; what is odd goes after."""
    x, wanted, axes = op.input(0), op.constant_integers(1), op.integers("axes")
    over = tuple(range(x.type.rank)) if axes is None else distinct_axes(axes, x.type.rank)
    if wanted is None or len(wanted) != len(over) or min(wanted, default=0) < 0:
        raise Refusal("its shape does not fit the operand")
    starts, shape = [0] * x.type.rank, list(x.type.shape)
    before, after = [0] * x.type.rank, [0] * x.type.rank
    for axis, extent in zip(over, wanted, strict=True):
        missing = extent - x.type.shape[axis]
        if missing < 0:
            starts[axis], shape[axis] = -missing // 2, extent
        else:
            before[axis], after[axis] = missing // 2, missing - missing // 2
    kept = build.slice(x, tuple(starts), (1,) * x.type.rank, tuple(shape))
    return build.pad(kept, tuple(before), tuple(after), 0)
