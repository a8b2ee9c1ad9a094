"""Operators that only move or rename elements: shapes, transpositions, and those that do nothing."""

from __future__ import annotations

import math

import numpy as np

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.types import DType
from korch_cli.fission.build import Builder
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView, distinct_axes


@fission("Identity", since=1, also=(13, 14, 16, 19, 21, 23, 24, 25))
def identity(op: OperatorView, _build: Builder) -> Value:
    """Return the operand."""
    return op.input(0)


@fission("Dropout", since=7, until=11, also=(10,))
def dropout_inference(op: OperatorView, _build: Builder) -> Value:
    """Return the operand; the driver refuses a mask that is read."""
    op.ignore("ratio")
    return op.input(0)


@fission("Dropout", since=12, also=(13, 22))
def dropout(op: OperatorView, build: Builder) -> tuple[Value, Value | None]:
    """Return the operand, and a mask that keeps everything; refuses training."""
    x, training = op.input(0), op.constant_integers(2)
    if training is not None and any(training):
        raise Refusal("it is in training mode")
    op.ignore("seed")
    op.ignore_input(1)
    return x, build.broadcast(build.literal(True, DType.BOOL), x.type.shape) if op.wants(1) else None


@fission("Transpose", since=1, also=(13, 21, 23, 24, 25))
def transpose(op: OperatorView, build: Builder) -> Value:
    """Permute the axes; without a permutation reverse them."""
    x = op.input(0)
    perm = op.integers("perm")
    return build.transpose(x, tuple(reversed(range(x.type.rank))) if perm is None else perm)


@fission("Reshape", since=5, also=(13, 14, 19, 21, 23, 24, 25))
def reshape(op: OperatorView, build: Builder) -> Value:
    """Keep the order of the elements under another shape."""
    x, wanted = op.input(0), op.constant_integers(1)
    if wanted is None:
        raise Refusal("it has no shape")
    keep_zero = op.integer("allowzero", 0) != 0
    return build.reshape(x, _resolved(x.type.shape, wanted, keep_zero=keep_zero))


def _resolved(shape: tuple[int, ...], wanted: tuple[int, ...], *, keep_zero: bool) -> tuple[int, ...]:
    """Return `wanted` with its zeros copied from `shape` (unless they are meant) and its -1 computed."""
    resolved = list(wanted)
    for axis, extent in enumerate(wanted):
        if extent == 0 and not keep_zero:
            if axis >= len(shape):
                raise Refusal(f"its shape copies axis {axis}, which the operand has not")
            resolved[axis] = shape[axis]
    if min(resolved, default=0) < -1 or resolved.count(-1) > 1:
        raise Refusal(f"the shape {list(wanted)} has no meaning")
    if -1 in resolved:
        others = -math.prod(resolved)
        if others == 0 or math.prod(shape) % others:
            raise Refusal(f"the shape {list(wanted)} does not fit {math.prod(shape)} elements")
        resolved[resolved.index(-1)] = math.prod(shape) // others
    return tuple(resolved)


@fission("Flatten", since=1, also=(9, 11, 13, 21, 23, 24, 25))
def flatten(op: OperatorView, build: Builder) -> Value:
    """Make a matrix of the axes before `axis` and those from it on."""
    x, axis = op.input(0), op.integer("axis", 1)
    if not (0 if op.version < 11 else -x.type.rank) <= axis <= x.type.rank:
        raise Refusal(f"there is no axis {axis} in a tensor of rank {x.type.rank}")
    axis = axis + x.type.rank if axis < 0 else axis
    return build.reshape(x, (math.prod(x.type.shape[:axis]), math.prod(x.type.shape[axis:])))


@fission("Squeeze", since=1, until=12, also=(11,))
def squeeze_attribute(op: OperatorView, build: Builder) -> Value:
    """Drop the axes of an attribute."""
    return _squeezed(build, op.input(0), op.integers("axes"))


@fission("Squeeze", since=13, also=(21, 23, 24, 25))
def squeeze(op: OperatorView, build: Builder) -> Value:
    """Drop the axes of a constant input."""
    return _squeezed(build, op.input(0), op.constant_integers(1))


def _squeezed(build: Builder, x: Value, axes: tuple[int, ...] | None) -> Value:
    if axes is None:
        axes = tuple(axis for axis, extent in enumerate(x.type.shape) if extent == 1)
    dropped = distinct_axes(axes, x.type.rank)
    if any(x.type.shape[axis] != 1 for axis in dropped):
        raise Refusal(f"an axis of {axes} has not the extent 1 in {x.type}")
    return build.reshape(x, tuple(e for axis, e in enumerate(x.type.shape) if axis not in dropped))


@fission("Unsqueeze", since=1, until=12, also=(11,))
def unsqueeze_attribute(op: OperatorView, build: Builder) -> Value:
    """Insert the axes of an attribute."""
    return _unsqueezed(build, op.input(0), op.integers("axes"))


@fission("Unsqueeze", since=13, also=(21, 23, 24, 25))
def unsqueeze(op: OperatorView, build: Builder) -> Value:
    """Insert the axes of a constant input."""
    return _unsqueezed(build, op.input(0), op.constant_integers(1))


def _unsqueezed(build: Builder, x: Value, axes: tuple[int, ...] | None) -> Value:
    if axes is None:
        raise Refusal("it has no axes")
    rank = x.type.rank + len(axes)
    inserted = distinct_axes(axes, rank)
    extents = iter(x.type.shape)
    return build.reshape(x, tuple(1 if axis in inserted else next(extents) for axis in range(rank)))


@fission("Expand", since=8, also=(13,))
def expand(op: OperatorView, build: Builder) -> Value:
    """Broadcast to a constant shape; an extent 1 there keeps the operand's."""
    x, wanted = op.input(0), op.constant_integers(1)
    if wanted is None:
        raise Refusal("it has no shape")
    rank = max(x.type.rank, len(wanted))
    own, other = ((1,) * (rank - len(s)) + tuple(s) for s in (x.type.shape, wanted))
    return build.broadcast(x, tuple(a if b == 1 else b for a, b in zip(own, other, strict=True)))


@fission("ConstantOfShape", since=9, also=(20, 21, 23, 24, 25))
def constant_of_shape(op: OperatorView, build: Builder) -> Value:
    """Broadcast one number to a constant shape."""
    wanted, value = op.constant_integers(0), op.tensor("value")
    if wanted is None:
        raise Refusal("it has no shape")
    filler = np.zeros(1, np.float32) if value is None else value
    dtype = DType.from_numpy(filler.dtype)
    if dtype is None or filler.size != 1:
        raise Refusal("its value is not one number of a supported element type")
    return build.broadcast(build.literal(filler.reshape(()).item(), dtype), wanted)


@fission("DepthToSpace", since=1, also=(11, 13, 28))
def depth_to_space(op: OperatorView, build: Builder) -> Value:
    """Move channels into blocks of pixels; `mode` (since version 11) says in which order channels are divided."""
    x, block, mode = op.input(0), op.integer("blocksize", 0), op.text("mode", "DCR")
    if x.type.rank != 4 or block < 1 or x.type.shape[1] % (block * block):
        raise Refusal(f"the channels of {x.type} do not divide into blocks of {block} by {block}")
    if mode not in ("DCR", "CRD"):
        raise Refusal(f"the mode {mode!r} is not known")
    n, c, h, w = x.type.shape
    depth = c // (block * block)
    if mode == "DCR":
        split, perm = (n, block, block, depth, h, w), (0, 3, 4, 1, 5, 2)
    else:
        split, perm = (n, depth, block, block, h, w), (0, 1, 4, 2, 5, 3)
    moved = build.transpose(build.reshape(x, split), perm)
    return build.reshape(moved, (n, depth, h * block, w * block))


@fission("SpaceToDepth", since=1, until=27, also=(13,))
def space_to_depth(op: OperatorView, build: Builder) -> Value:
    """Move blocks of pixels into channels."""
    return _space_to_depth(op, build, "DCR")


@fission("SpaceToDepth", since=28)
def space_to_depth_ordered(op: OperatorView, build: Builder) -> Value:
    """Move blocks of pixels into channels, in the order that `mode` says."""
    return _space_to_depth(op, build, op.text("mode", "DCR"))


def _space_to_depth(op: OperatorView, build: Builder, mode: str) -> Value:
    x, block = op.input(0), op.integer("blocksize", 0)
    if x.type.rank != 4 or block < 1 or x.type.shape[2] % block or x.type.shape[3] % block:
        raise Refusal(f"the pixels of {x.type} do not divide into blocks of {block} by {block}")
    if mode not in ("DCR", "CRD"):
        raise Refusal(f"the mode {mode!r} is not known")
    n, c, h, w = x.type.shape
    split = build.reshape(x, (n, c, h // block, block, w // block, block))
    moved = build.transpose(split, (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
    return build.reshape(moved, (n, c * block * block, h // block, w // block))
