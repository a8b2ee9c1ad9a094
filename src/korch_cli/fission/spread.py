"""Operators whose geometry is constant and whose values are spread over a larger result: Col2Im and AffineGrid."""

from __future__ import annotations

import itertools
import math

import numpy as np

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.types import Array
from korch_cli.fission.build import TABLE_LIMIT, Builder
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView


@fission("Col2Im", since=18)
def col2im(op: OperatorView, build: Builder) -> Value:
    """Add up overlapping blocks: gather the elements that lie on each place of the image, and zeros, and sum them."""
    x, image, block = op.input(0), op.constant_integers(1), op.constant_integers(2)
    if image is None or block is None or x.type.rank != 3:
        raise Refusal("it says no extents of the image or of a block")
    rank, ones = len(image), (1,) * len(image)
    strides, dilations = op.integers("strides") or ones, op.integers("dilations") or ones
    pads = op.integers("pads") or (0,) * 2 * rank
    parts, pixels = math.prod(block), math.prod(image)
    lengths = {len(image), len(block), len(strides), len(dilations), len(pads) // 2}
    if len(lengths) != 1 or min(image + block + strides + dilations) < 1 or min(pads) < 0 or x.type.shape[1] % parts:
        raise Refusal("its blocks do not fit the image")
    if pixels > TABLE_LIMIT:
        raise Refusal(f"a table of {pixels} places is too long for a kernel")
    axes = [_covering(*a) for a in zip(image, block, strides, dilations, pads[:rank], pads[rank:], strict=True)]
    counts = tuple(count for count, _ in axes)
    blocks = math.prod(counts)
    if min(counts) < 1 or blocks != x.type.shape[2]:
        raise Refusal(f"there are not {blocks} blocks")
    lying = [_elements(pairs, block, counts) for pairs in itertools.product(*(covering for _, covering in axes))]
    depth = max(1, *map(len, lying))
    table = [here[i] if i < len(here) else parts * blocks for i in range(depth) for here in lying]
    n, channels = x.type.shape[0], x.type.shape[1] // parts
    flat = build.pad(build.reshape(x, (n, channels, parts * blocks)), (0, 0, 0), (0, 0, 1), 0)
    layers = build.reshape(build.gather(flat, 2, tuple(table)), (n, channels, depth, pixels))
    total = build.reduce("sum", layers, (2,)) if depth > 1 else layers
    return build.reshape(total, (n, channels, *image))


def _covering(
    image: int, block: int, stride: int, dilation: int, before: int, after: int
) -> tuple[int, list[list[tuple[int, int]]]]:
    """Return how many blocks an axis has, and for each of its places which elements of which blocks lie there."""
    count = (image + before + after - dilation * (block - 1) - 1) // stride + 1
    covering: list[list[tuple[int, int]]] = [[] for _ in range(image)]
    for offset in range(block):
        for number in range(count):
            place = number * stride + offset * dilation - before
            if 0 <= place < image:
                covering[place].append((offset, number))
    return count, covering


def _elements(pairs: tuple[list[tuple[int, int]], ...], block: tuple[int, ...], counts: tuple[int, ...]) -> list[int]:
    """Return the elements of the operand that lie on one place of the image, where `pairs` lie along each axis."""
    found = []
    for combination in itertools.product(*pairs):
        element = 0
        for position, extents in enumerate((block, counts)):
            for pair, extent in zip(combination, extents, strict=True):
                element = element * extent + pair[position]
        found.append(element)
    return sorted(found)


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
