"""Rotary embedding: pairs of elements are turned by an angle that depends on their position."""

from __future__ import annotations

import numpy as np

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.types import Array
from korch_cli.fission.build import Builder
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView


@fission("RotaryEmbedding", since=23)
def rotary_embedding(op: OperatorView, build: Builder) -> Value:
    """Turn by angles given for every position, or for positions that are constant."""
    return _rotary(op, build, op.input(1), op.input(2), op.constant(3))


@fission("RotaryEmbedding", since=1, domain="com.microsoft")
def rotary_embedding_of_positions(op: OperatorView, build: Builder) -> Value:
    """Turn by the angles of constant positions; a single one is that of the first element."""
    if op.integer("is_packed_batching", 0) or op.number("scale", 1.0) != 1:
        raise Refusal("its batch is packed, or it scales")
    positions = op.constant(1)
    if positions is None:
        raise Refusal("input 1 is missing")
    x = op.input(0)
    length = x.type.shape[-2] if x.type.rank in (3, 4) else 0
    if positions.shape == (1,):
        positions = np.broadcast_to(positions[0] + np.arange(length), (x.type.shape[0], length))
    return _rotary(op, build, op.input(2), op.input(3), positions)


def _rotary(op: OperatorView, build: Builder, cosine: Value, sine: Value, positions: Array | None) -> Value:
    x, heads = op.input(0), op.integer("num_heads", 0)
    shape = x.type.shape
    if x.type.rank == 3:
        if heads < 1 and op.operator.domain:
            heads = _heads(op, shape[2], cosine)
        if heads < 1 or shape[2] % heads:
            raise Refusal(f"{x.type} does not divide into {heads} heads")
        batch, length, rank_4 = shape[0], shape[1], (*shape[:2], heads, shape[2] // heads)
        per_position: tuple[int, ...] = (batch, length, 1)
    elif x.type.rank == 4:
        batch, length, rank_4 = shape[0], shape[2], shape
        per_position = (batch, 1, length)
    else:
        raise Refusal(f"{x.type} has no heads")
    turned = op.integer("rotary_embedding_dim", 0) or rank_4[3]
    if not 0 < turned <= rank_4[3] or turned % 2:
        raise Refusal(f"{turned} of {rank_4[3]} elements cannot be turned in pairs")
    angles = tuple(_of_positions(build, a, positions, (batch, length, turned // 2)) for a in (cosine, sine))
    angles = tuple(build.reshape(build.wide(a), (*per_position, turned // 2)) for a in angles)
    result = _turned(build, build.reshape(x, rank_4), angles, turned, interleaved=op.integer("interleaved", 0) != 0)
    return build.reshape(result, shape)


def _heads(op: OperatorView, width: int, cosine: Value) -> int:
    """Return the number of heads where only the angles say it, each for half of a head."""
    if op.integer("rotary_embedding_dim", 0) or not cosine.type.rank or not cosine.type.shape[-1]:
        return 0
    return width // (2 * cosine.type.shape[-1])


def _of_positions(build: Builder, angles: Value, positions: Array | None, shape: tuple[int, int, int]) -> Value:
    if positions is None:
        if angles.type.shape != shape:
            raise Refusal(f"{angles.type} are no angles of {list(shape)}")
        return angles
    rows, half = (*angles.type.shape, 0, 0)[:2]
    if angles.type.rank != 2 or half != shape[2] or positions.shape != shape[:2]:
        raise Refusal(f"{angles.type} are no angles of {list(shape)}")
    indices = tuple(int(i) for i in positions.reshape(-1))
    if indices and not 0 <= min(indices) <= max(indices) < rows:
        raise Refusal("a position has no angle")
    return build.reshape(build.gather(angles, 0, indices), shape)


def _turned(build: Builder, x: Value, angles: tuple[Value, ...], turned: int, *, interleaved: bool) -> Value:
    """Return x with its first `turned` elements as complex numbers times those of the angles."""
    cosine, sine = angles
    outer, width = x.type.shape[:-1], x.type.shape[-1]
    half, step = turned // 2, 2 if interleaved else 1
    starts = (0, 1 if interleaved else half)
    real, imaginary = (build.wide(_part(build, x, start, step, half)) for start in starts)
    products = (
        build.sub(build.mul(real, cosine), build.mul(imaginary, sine)),
        build.add(build.mul(real, sine), build.mul(imaginary, cosine)),
    )
    parts = [build.cast(part, x.type.dtype) for part in products]
    if interleaved:
        pairs = tuple(build.reshape(part, (*outer, half, 1)) for part in parts)
        parts = [build.reshape(build.concat(len(outer) + 1, pairs), (*outer, turned))]
    if turned < width:
        parts.append(_part(build, x, turned, 1, width - turned))
    return build.concat(len(outer), tuple(parts))


def _part(build: Builder, x: Value, start: int, step: int, extent: int) -> Value:
    rank = x.type.rank
    shape = (*x.type.shape[:-1], extent)
    return build.slice(x, (0,) * (rank - 1) + (start,), (1,) * (rank - 1) + (step,), shape)
