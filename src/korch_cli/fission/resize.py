"""Resizing by the nearest element: a table of indices for each axis that changes.

The runtime computes coordinates in float32. A table is used only where that and exact arithmetic agree on every index,
so that no rounding of some runtime's version can make a difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.types import Array
from korch_cli.fission.build import Builder
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView, distinct_axes


@fission("Upsample", since=7, until=8)
def upsample_attribute(op: OperatorView, build: Builder) -> Value:
    """Repeat elements by the factors of an attribute."""
    scales = op.numbers("scales")
    if scales is None:
        raise Refusal("it has no scales")
    return _enlarged(op, build, np.array(scales, np.float32))


@fission("Upsample", since=9, until=9)
@fission("Resize", since=10, until=10)
def upsample_input(op: OperatorView, build: Builder) -> Value:
    """Repeat elements by the factors of a constant input."""
    scales = op.constant(1)
    if scales is None:
        raise Refusal("it has no scales")
    return _enlarged(op, build, scales)


def _enlarged(op: OperatorView, build: Builder, scales: Array) -> Value:
    x = op.input(0)
    _check_mode(op)
    if scales.shape != (x.type.rank,) or min(scales, default=1) < 1:
        raise Refusal("its scales are not one of at least 1 for each axis")
    for axis, scale in enumerate(scales):
        count = _scaled_extent(x.type.shape[axis], scale)
        x = build.gather(x, axis, _table(x.type.shape[axis], count, scale, "asymmetric", "floor"))
    return x


@fission("Resize", since=11, until=17, also=(13,))
def resize(op: OperatorView, build: Builder) -> Value:
    """Pick the nearest element on every axis."""
    return _resized(op, build, tuple(range(op.input(0).type.rank)))


@fission("Resize", since=18, also=(19,))
def resize_axes(op: OperatorView, build: Builder) -> Value:
    """Pick the nearest element on chosen axes."""
    op.ignore("antialias")  # a filter of the linear and cubic modes
    if op.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Refusal("it keeps the aspect ratio")
    rank = op.input(0).type.rank
    axes = op.integers("axes")
    return _resized(op, build, tuple(range(rank)) if axes is None else distinct_axes(axes, rank))


def _resized(op: OperatorView, build: Builder, axes: tuple[int, ...]) -> Value:
    x = op.input(0)
    _check_mode(op)
    op.ignore("cubic_coeff_a", "exclude_outside", "extrapolation_value")  # of other modes
    op.ignore_input(1)  # the region of interest, of tf_crop_and_resize
    transformation = op.text("coordinate_transformation_mode", "half_pixel")
    rounding = op.text("nearest_mode", "round_prefer_floor")
    scales, sizes = op.constant(2), op.constant_integers(3)
    scales = None if scales is None or scales.size == 0 else scales
    if (scales is None) == (not sizes) or len(axes) != (
        len(sizes) if sizes else len(scales if scales is not None else ())
    ):
        raise Refusal("it has not either a scale or a size for each axis")
    for position, axis in enumerate(axes):
        extent = x.type.shape[axis]
        if sizes:
            count, scale = sizes[position], np.float32(sizes[position]) / np.float32(extent)
        elif scales is not None:
            scale = scales[position]
            count = _scaled_extent(extent, scale)
        x = build.gather(x, axis, _table(extent, count, scale, transformation, rounding))
    return x


def _check_mode(op: OperatorView) -> None:
    mode = op.text("mode", "nearest")
    if mode != "nearest":
        raise Refusal(f"the mode {mode!r} interpolates")


def _scaled_extent(extent: int, scale: Any) -> int:
    return math.floor(np.float32(extent) * np.float32(scale))


def _table(extent: int, count: int, scale: Any, transformation: str, rounding: str) -> tuple[int, ...]:
    """Return which element of `extent` each of `count` positions takes.

    Raises:
        Refusal: a mode is not known, or float32 and exact arithmetic disagree.
    """
    coordinate, nearest = _COORDINATES.get(transformation), _ROUNDINGS.get(rounding)
    if coordinate is None:
        raise Refusal(f"the coordinate transformation {transformation!r} is not understood")
    if nearest is None:
        raise Refusal(f"the rounding {rounding!r} is not understood")
    if count == extent and scale == 1:
        return tuple(range(extent))
    if extent < 1 or scale <= 0:
        raise Refusal("an axis is empty, or its scale is not positive")
    tables = []
    # A scale that came from two sizes stands for their quotient, one that was given for itself.
    quotient = Fraction(count, extent)
    meant = quotient if np.float32(count) / np.float32(extent) == np.float32(scale) else Fraction(float(scale))
    arithmetics: tuple[tuple[Any, Any], ...] = ((np.float32, np.float32(scale)), (Fraction, meant))
    for number, factor in arithmetics:
        half, full, made = number(1) / number(2), number(extent), number(count)
        places = (coordinate(number(i), factor, full, made, half) for i in range(count))
        tables.append(tuple(min(max(nearest(place, half), 0), extent - 1) for place in places))
    if tables[0] != tables[1]:
        raise Refusal("its indices depend on how coordinates are rounded")
    return tables[0]


def _half_pixel(x: Any, scale: Any, _extent: Any, _count: Any, half: Any) -> Any:
    return (x + half) / scale - half


def _pytorch_half_pixel(x: Any, scale: Any, extent: Any, count: Any, half: Any) -> Any:
    return _half_pixel(x, scale, extent, count, half) if count > 1 else x * 0


def _half_pixel_symmetric(x: Any, scale: Any, extent: Any, count: Any, half: Any) -> Any:
    offset = extent / 2 * (1 - count / (scale * extent))
    return offset + _half_pixel(x, scale, extent, count, half)


def _asymmetric(x: Any, scale: Any, _extent: Any, _count: Any, _half: Any) -> Any:
    return x / scale


def _tf_half_pixel_for_nn(x: Any, scale: Any, _extent: Any, _count: Any, half: Any) -> Any:
    return (x + half) / scale


def _align_corners(x: Any, _scale: Any, extent: Any, count: Any, _half: Any) -> Any:
    return x * (extent - 1) / (count - 1) if count > 1 else x * 0


_COORDINATES: dict[str, Callable[[Any, Any, Any, Any, Any], Any]] = {
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "tf_half_pixel_for_nn": _tf_half_pixel_for_nn,
}
_ROUNDINGS: dict[str, Callable[[Any, Any], int]] = {
    "ceil": lambda place, _half: math.ceil(place),
    "floor": lambda place, _half: math.floor(place),
    "round_prefer_ceil": lambda place, half: math.floor(place + half),
    "round_prefer_floor": lambda place, half: math.ceil(place - half),
}
