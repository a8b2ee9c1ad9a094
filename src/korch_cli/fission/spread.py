"""Operators whose geometry is constant and whose values are spread over a larger result: Col2Im and AffineGrid."""

from __future__ import annotations

import itertools
import math

import numpy as np

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.types import Array
from korch_cli.fission.build import Builder
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView

_MOST_PARTS = 32
"""A block of more elements would make an expression that is too long for one kernel."""


@fission("Col2Im", since=18)
def col2im(op: OperatorView, build: Builder) -> Value:
    """Add up overlapping blocks: for each position within a block, that element of all blocks at its place."""
    x, image, block = op.input(0), op.constant_integers(1), op.constant_integers(2)
    if image is None or block is None or x.type.rank != 3:
        raise Refusal("it says no extents of the image or of a block")
    rank, ones = len(image), (1,) * len(image)
    strides, dilations = op.integers("strides") or ones, op.integers("dilations") or ones
    pads = op.integers("pads") or (0,) * 2 * rank
    parts = math.prod(block)
    lengths = {len(image), len(block), len(strides), len(dilations), len(pads) // 2}
    if len(lengths) != 1 or min(image + block + strides + dilations) < 1 or min(pads) < 0 or x.type.shape[1] % parts:
        raise Refusal("its blocks do not fit the image")
    if parts > _MOST_PARTS:
        raise Refusal(f"a block of {parts} elements is too large for a kernel")
    axes = [_Axis(*numbers) for numbers in zip(image, block, strides, dilations, pads[:rank], pads[rank:], strict=True)]
    counts = tuple(axis.count for axis in axes)
    if min(counts) < 1 or math.prod(counts) != x.type.shape[2]:
        raise Refusal(f"there are not {math.prod(counts)} blocks")
    n, channels = x.type.shape[0], x.type.shape[1] // parts
    split = build.reshape(x, (n, channels, parts, *counts))
    total: Value | None = None
    for number, offsets in enumerate(itertools.product(*map(range, block))):
        starts, shape = (0, 0, number, *[0] * rank), (n, channels, 1, *counts)
        part = build.reshape(build.slice(split, starts, (1,) * (rank + 3), shape), (n, channels, *counts))
        for i, (axis, offset) in enumerate(zip(axes, offsets, strict=True)):
            part = axis.placed(build, part, i + 2, offset)
        total = part if total is None else build.add(total, part)
    assert total is not None
    return total


class _Axis:
    """One spatial axis: how blocks lie on the image."""

    def __init__(self, image: int, block: int, stride: int, dilation: int, before: int, after: int) -> None:
        self.image, self.stride, self.dilation, self.before = image, stride, dilation, before
        self.count = (image + before + after - dilation * (block - 1) - 1) // stride + 1

    def placed(self, build: Builder, part: Value, axis: int, offset: int) -> Value:
        """Spread the elements of all blocks at `offset` over `axis`, with zeros between them."""
        shape, rank = part.type.shape, part.type.rank
        if self.stride > 1:
            apart = build.reshape(part, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
            gaps = tuple(self.stride - 1 if i == axis + 1 else 0 for i in range(rank + 1))
            apart = build.pad(apart, (0,) * (rank + 1), gaps, 0)
            part = build.reshape(apart, (*shape[:axis], self.count * self.stride, *shape[axis + 1 :]))
        # What is kept lies inside the image; behind the last element there are only zeros.
        first = offset * self.dilation - self.before
        low = max(0, -first)
        high = min((self.count - 1) * self.stride + 1, self.image - first)
        if high <= low:
            low, high, first = 0, 0, 0
        kept = (*shape[:axis], high - low, *shape[axis + 1 :])
        start = tuple(low if i == axis and high > low else 0 for i in range(rank))
        part = build.slice(part, start, (1,) * rank, kept)
        before = tuple(first + low if i == axis else 0 for i in range(rank))
        after = tuple(self.image - first - high if i == axis else 0 for i in range(rank))
        return build.pad(part, before, after, 0)


@fission("AffineGrid", since=20)
def affine_grid(op: OperatorView, build: Builder) -> Value:
    """Apply matrices to constant positions: each column times its coordinate, and the last one as it is."""
    theta, size, aligned = op.input(0), op.constant_integers(1), op.integer("align_corners", 0) != 0
    if size is None or len(size) not in (4, 5) or min(size) < 1:
        raise Refusal("it says no extents of the grid")
    if aligned and 1 in size[2:]:
        raise Refusal("runtimes disagree on where a single position lies that is both corners")
    rank = len(size) - 2
    if theta.type.shape != (size[0], rank, rank + 1):
        raise Refusal(f"{theta.type} are no matrices for a grid of rank {rank}")
    columns = [build.slice(theta, (0, 0, i), (1, 1, 1), (size[0], rank, 1)) for i in range(rank + 1)]
    shape = (size[0], *[1] * rank, rank)
    total = build.reshape(columns[rank], shape)
    for i in reversed(range(rank)):
        # The first coordinate is that of the last axis.
        places = _places(size[-1 - i], aligned).astype(theta.type.dtype.numpy)
        along = build.constant(places.reshape(-1, *[1] * (i + 1)), "coordinates")
        total = build.add(build.mul(build.reshape(columns[i], shape), along), total)
    return build.broadcast(total, (size[0], *size[2:], rank))


def _places(count: int, aligned: bool) -> Array:
    """Return `count` positions from -1 to 1: those of the centres of pixels, or if `aligned` of their corners too."""
    if aligned:
        return np.linspace(-1, 1, count)
    return np.asarray((2 * np.arange(count) + 1) / count - 1)
