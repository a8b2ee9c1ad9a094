"""Where the largest or smallest element of an axis lies: ArgMax, ArgMin and Hardmax.

The runtime scans an axis from its first element and moves on to an element only if that compares as better. So a NaN is
passed over, except as the first element, which then stays. (Over a whole tensor, and in long rows of Hardmax, it
compares vector lanes instead: what it says there of rows with NaN has no meaning, and is not followed.)
"""

from __future__ import annotations

import math

import numpy as np

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.types import DType
from korch_cli.fission.build import Builder
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView


@fission("ArgMax", since=1, also=(11, 12, 13))
@fission("ArgMin", since=1, also=(11, 12, 13))
def arg_extreme(op: OperatorView, build: Builder) -> Value:
    """Return where an axis has its extreme: the first place, or since version 12 the last one if asked for."""
    x = op.input(0)
    axis = op.axis("axis", 0, x.type.rank, negative=op.version >= 11)
    last = op.integer("select_last_index", 0) != 0
    if x.type.shape[axis] == 0:
        raise Refusal("it looks for an extreme where there is no element")
    found = _extreme_index(build, x, axis, op.op_type == "ArgMax", last=last, unordered=0)
    if op.integer("keepdims", 1):
        return found
    return build.reshape(found, (*x.type.shape[:axis], *x.type.shape[axis + 1 :]))


@fission("Hardmax", since=13)
def hardmax(op: OperatorView, build: Builder) -> Value:
    """Return 1 for the first maximum along one axis and 0 elsewhere."""
    x = op.input(0)
    return _hardmax(build, x, op.axis("axis", -1, x.type.rank))


@fission("Hardmax", since=1, until=12, also=(11,))
def hardmax_flattened(op: OperatorView, build: Builder) -> Value:
    """Return 1 for the first maximum over the axes from `axis` on together, and 0 elsewhere."""
    x = op.input(0)
    axis = op.axis("axis", 1, x.type.rank, negative=op.version >= 11)
    rows = build.reshape(x, (math.prod(x.type.shape[:axis]), math.prod(x.type.shape[axis:])))
    return build.reshape(_hardmax(build, rows, 1), x.type.shape)


def _hardmax(build: Builder, x: Value, axis: int) -> Value:
    """Where the first element is NaN, nothing equals the maximum, and every element is 0."""
    if x.type.shape[axis] == 0:
        return x
    found = _extreme_index(build, x, axis, True, last=False, unordered=x.type.shape[axis])
    chosen = build.elementwise("equal", _places(build, x, axis), found)
    return build.cast(chosen, x.type.dtype)


def _places(build: Builder, x: Value, axis: int) -> Value:
    """The number of each element along `axis`, which broadcasts to the shape of x."""
    extent = x.type.shape[axis]
    numbers = np.arange(extent, dtype=np.int64).reshape(extent, *[1] * (x.type.rank - axis - 1))
    return build.constant(numbers, "places")


def _extreme_index(build: Builder, x: Value, axis: int, largest: bool, *, last: bool, unordered: int) -> Value:
    """Return the place of the extreme along `axis`, whose extent becomes 1; `unordered` where the first is NaN."""
    extent, function = x.type.shape[axis], "max" if largest else "min"
    ordered = x
    if x.type.dtype.is_float:
        ordered = build.where(build.elementwise("equal", x, x), x, -math.inf if largest else math.inf)
    if x.type.dtype is DType.BOOL:
        raise Refusal("truth values have no order")
    equal = build.elementwise("equal", x, build.reduce(function, ordered, (axis,)))
    places = _places(build, x, axis)
    if last:
        found = build.reduce("max", build.where(equal, places, -1), (axis,))
    else:
        found = build.reduce("min", build.where(equal, places, extent), (axis,))
    if not x.type.dtype.is_float:
        return found
    shape = tuple(1 if i == axis else e for i, e in enumerate(x.type.shape))
    first = build.slice(x, (0,) * x.type.rank, (1,) * x.type.rank, shape)
    return build.where(build.elementwise("equal", first, first), found, unordered)
