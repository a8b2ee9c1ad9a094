"""Sums and products of what comes before each element of an axis."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.primitive import WindowReduce
from korch_cli.fission.build import Builder
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView, normalized

_LONGEST = 1 << 12
"""A kernel adds the whole prefix anew for every element; on a longer axis that is hopeless."""
_LONGEST_PRODUCT = 1 << 8
"""A product needs a mask of this extent squared."""


@fission("CumSum", since=11, also=(14,))
def cumulative_sum(op: OperatorView, build: Builder) -> Value:
    """Add up an axis from the front, or in `reverse` from the back, with or without the element itself."""

    def prefix(x: Value) -> Value:
        extent = x.type.shape[-1]
        if extent > _LONGEST:
            raise Refusal(f"prefixes of {extent} elements are too long for a kernel")
        window = WindowReduce("sum", (extent,), (1,), (1,), (extent - 1,), (0,))
        return build.window_reduce(window, x, (extent,))

    return _along_last_axis(op, build, prefix, 0)


@fission("CumProd", since=26)
def cumulative_product(op: OperatorView, build: Builder) -> Value:
    """Multiply an axis from the front, or in `reverse` from the back, with or without the element itself."""

    def prefix(x: Value) -> Value:
        extent, rank = x.type.shape[-1], x.type.rank
        if extent > _LONGEST_PRODUCT:
            raise Refusal(f"prefixes of {extent} elements are too long for a kernel")
        mask = build.constant(np.tri(extent, dtype=np.bool_), "prefixes")
        rows = build.reshape(x, (*x.type.shape[:-1], 1, extent))
        return build.reshape(build.reduce("prod", build.where(mask, rows, 1), (rank,)), x.type.shape)

    return _along_last_axis(op, build, prefix, 1)


def _along_last_axis(op: OperatorView, build: Builder, prefix: Callable[[Value], Value], neutral: int) -> Value:
    """Move the axis to the end, turn it around if `reverse`, and shift it by one element if `exclusive`."""
    x, axes = op.input(0), op.constant_integers(1)
    if axes is None or len(axes) != 1:
        raise Refusal("it has not one axis")
    axis, rank = normalized(axes[0], x.type.rank), x.type.rank
    reverse, exclusive = op.integer("reverse", 0) != 0, op.integer("exclusive", 0) != 0
    if x.type.elements == 0:
        return x
    perm = (*(i for i in range(rank) if i != axis), axis)
    rows = build.wide(_turned(build, build.transpose(x, perm), reverse))
    if exclusive:
        shape = (*rows.type.shape[:-1], rows.type.shape[-1] - 1)
        kept = build.slice(rows, (0,) * rank, (1,) * rank, shape)
        rows = build.pad(kept, (*[0] * (rank - 1), 1), (0,) * rank, neutral)
    result = _turned(build, build.cast(prefix(rows), x.type.dtype), reverse)
    return build.transpose(result, tuple(perm.index(i) for i in range(rank)))


def _turned(build: Builder, x: Value, reverse: bool) -> Value:
    if not reverse:
        return x
    starts, steps = (0,) * (x.type.rank - 1), (1,) * (x.type.rank - 1)
    return build.slice(x, (*starts, x.type.shape[-1] - 1), (*steps, -1), x.type.shape)
