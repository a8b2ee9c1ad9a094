"""How a resized axis is made of the original one: taps, that is a table of indices and their weights each.

The nearest element is one tap without weights. The runtime computes coordinates in float32; a table of nearest elements
is used only where that and exact arithmetic agree on every index, so that no rounding of some runtime's version can
make a difference. Interpolation is continuous, so there float32 is followed as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.types import Array
from korch_cli.fission.build import Builder
from korch_cli.fission.coordinates import CROP, Resized

_BORDER = Fraction(1, 1 << 16)
"""How near to a border between two elements a place is undecided, where the arithmetic is not known."""

Taps = tuple[tuple[tuple[int, ...], Array], ...]


def weighted(build: Builder, x: Value, axis: int, taps: Taps) -> Value:
    """Return the sum over all taps of the elements they pick times their weights."""
    total: Value | None = None
    for indices, weights in taps:
        part = build.mul(build.gather(x, axis, indices), _column(build, weights, x.type.rank - axis - 1))
        total = part if total is None else build.add(total, part)
    assert total is not None
    return total


def weighted_together(build: Builder, x: Value, taps: Mapping[int, Taps]) -> Value:
    """Return the sum over the taps of all axes together: fewer primitives than one sum for each axis."""
    split: list[int] = []
    weights: list[tuple[int, Array]] = []
    over: list[int] = []
    for axis, extent in enumerate(x.type.shape):
        if axis not in taps:
            split.append(extent)
            continue
        x = build.gather(x, axis, tuple(i for indices, _ in taps[axis] for i in indices))
        weights.append((len(split) + 2, np.stack([w for _, w in taps[axis]])))
        over.append(len(split))
        split += weights[-1][1].shape
    total = build.reshape(x, tuple(split))
    for end, factors in weights:
        total = build.mul(total, _column(build, factors, len(split) - end))
    total = build.reduce("sum", total, over)
    return build.reshape(total, tuple(extent for axis, extent in enumerate(split) if axis not in over))


def _column(build: Builder, weights: Array, behind: int) -> Value:
    return build.constant(weights.astype(np.float32).reshape(*weights.shape, *[1] * behind), "weights")


def inside(resized: Resized) -> Array | None:
    """Return which positions lie in the operand, if any lies outside and is extrapolated. Raises Refusal."""
    if resized.transformation != CROP:
        return None
    rounded, exact = (
        np.array([0 <= place <= resized.extent - 1 for place in places])
        for places in (resized.rounded_places(), resized.exact_places())
    )
    if np.any(rounded != exact):
        raise Refusal("what lies outside depends on how coordinates are rounded")
    return None if rounded.all() else rounded


def nearest(resized: Resized, rounding: str) -> tuple[int, ...]:
    """Return which element each position takes.

    Raises:
        Refusal: a mode is not known, or float32 and exact arithmetic disagree.
    """
    rule = _ROUNDINGS.get(rounding)
    if rule is None:
        raise Refusal(f"the rounding {rounding!r} is not understood")
    attempts: list[list[Any]] = [resized.rounded_places(), resized.exact_places()]
    if resized.transformation == "half_pixel_symmetric":
        # Its runtime's own arithmetic is not float32 throughout, so that a place on the border may go either way.
        attempts += [[place + sign * _BORDER for place in attempts[1]] for sign in (1, -1)]
    tables = {tuple(min(max(rule(place), 0), resized.extent - 1) for place in places) for places in attempts}
    if len(tables) > 1:
        raise Refusal("its indices depend on how coordinates are rounded")
    return tables.pop()


def linear(resized: Resized) -> Taps:
    """Return both neighbours of each position, weighted by the distance to the other one. Raises Refusal."""
    last = resized.extent - 1
    places = np.clip(np.array(resized.rounded_places(), np.float32), 0, last).astype(np.float32)
    low = places.astype(np.int64)
    high = np.minimum(low + 1, last)
    single = low == high
    to_low = np.where(single, np.float32(0.5), np.abs(places - low.astype(np.float32)))
    to_high = np.where(single, np.float32(0.5), np.abs(places - high.astype(np.float32)))
    return ((_table(low), to_high), (_table(high), to_low))


def cubic(resized: Resized, a: float, *, exclude_outside: bool) -> Taps:
    """Return the four neighbours of each position, those outside moved to the edge or left out. Raises Refusal."""
    places = np.array(resized.rounded_places(), np.float32)
    base = np.floor(places)
    s = (places - base).astype(np.float64)
    indices = np.stack([base.astype(np.int64) + offset for offset in (-1, 0, 1, 2)])
    weights = np.stack([_far(s + 1, a), _near(s, a), _near(1 - s, a), _far(2 - s, a)])
    clipped = np.clip(indices, 0, resized.extent - 1)
    if exclude_outside:
        weights = np.where(indices == clipped, weights, 0)
        # Where all neighbours are outside, the position is one that is extrapolated.
        total = weights.sum(axis=0)
        weights = weights / np.where(total == 0, 1, total)
    return tuple((_table(i), w) for i, w in zip(clipped, weights, strict=True))


def _near(s: Array, a: float) -> Array:
    """The cubic kernel up to the distance 1."""
    return np.asarray(((a + 2) * s - (a + 3)) * s * s + 1)


def _far(s: Array, a: float) -> Array:
    """The cubic kernel from the distance 1 to 2."""
    return np.asarray(((a * s - 5 * a) * s + 8 * a) * s - 4 * a)


def _table(indices: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in indices)


_ROUNDINGS: dict[str, Callable[[Any], int]] = {
    "ceil": math.ceil,
    "floor": math.floor,
    "round_prefer_ceil": lambda place: math.floor(place + type(place)(0.5)),
    "round_prefer_floor": lambda place: math.ceil(place - type(place)(0.5)),
}
