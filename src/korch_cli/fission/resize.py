"""Resizing by the nearest element, or by linear or cubic interpolation along one axis after the other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.types import Array, DType
from korch_cli.fission.build import Builder
from korch_cli.fission.coordinates import CROP, Resized, scaled_extent
from korch_cli.fission.interpolation import cubic, inside, linear, nearest, weighted, weighted_together
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView, distinct_axes


@fission("Upsample", since=7, until=8)
def upsample_attribute(op: OperatorView, build: Builder) -> Value:
    """Enlarge by the factors of an attribute."""
    scales = op.numbers("scales")
    if scales is None:
        raise Refusal("it has no scales")
    return _scaled(op, build, np.array(scales, np.float32))


@fission("Upsample", since=9, until=9)
@fission("Resize", since=10, until=10)
def upsample_input(op: OperatorView, build: Builder) -> Value:
    """Enlarge, or with Resize shrink, by the factors of a constant input."""
    scales = op.constant(1)
    if scales is None:
        raise Refusal("it has no scales")
    return _scaled(op, build, scales)


@fission("Resize", since=11, until=17, also=(13,))
def resize(op: OperatorView, build: Builder) -> Value:
    """Resize all axes."""
    return _resized(op, build, tuple(range(op.input(0).type.rank)))


@fission("Resize", since=18, also=(19,))
def resize_axes(op: OperatorView, build: Builder) -> Value:
    """Resize chosen axes."""
    if op.integer("antialias", 0) and op.text("mode", "nearest") != "nearest":
        raise Refusal("it filters what it shrinks")
    rank = op.input(0).type.rank
    axes = op.integers("axes")
    return _resized(op, build, tuple(range(rank)) if axes is None else distinct_axes(axes, rank))


@dataclass(frozen=True, slots=True)
class _Way:
    """How the elements of a resized axis come about."""

    mode: str
    rounding: str = "floor"
    a: float = -0.75
    exclude_outside: bool = False

    def apply(self, build: Builder, x: Value, geometry: Mapping[int, Resized]) -> Value:
        """Resize the axes that change."""
        changed = {axis: resized for axis, resized in geometry.items() if not resized.unchanged}
        if self.mode == "cubic" and changed:
            outside = self.exclude_outside
            return weighted_together(
                build, x, {i: cubic(r, self.a, exclude_outside=outside) for i, r in changed.items()}
            )
        for axis, resized in changed.items():
            if self.mode == "nearest":
                x = build.gather(x, axis, nearest(resized, self.rounding))
            else:
                x = weighted(build, x, axis, linear(resized))
        return x


def _operand(op: OperatorView, build: Builder, mode: str) -> Value:
    """Return what to compute with. Raises Refusal where the mode does not suit the element type."""
    x = op.input(0)
    if mode not in ("nearest", "linear", "cubic"):
        raise Refusal(f"the mode {mode!r} is not known")
    if mode == "nearest":
        return x
    if x.type.dtype not in (DType.F32, DType.F16, DType.BF16):
        raise Refusal(f"how {x.type.dtype.text} is interpolated depends on the runtime")
    return build.wide(x)


def _scaled(op: OperatorView, build: Builder, scales: Array) -> Value:
    """Resize as before version 11: by asymmetric coordinates, rounded down to enlarge and up to shrink."""
    mode = op.text("mode", "nearest")
    x = _operand(op, build, mode)
    if mode == "cubic":
        raise Refusal(f"opset {op.version} has no cubic interpolation")
    least = 1 if op.op_type == "Upsample" else 0
    if scales.shape != (x.type.rank,) or not all(scale > 0 and scale >= least for scale in scales):
        raise Refusal("its scales are not one for each axis that it can use")
    for axis, scale in enumerate(scales):
        extent = x.type.shape[axis]
        resized = Resized(extent, scaled_extent(extent, scale), scale, "asymmetric")
        x = _Way(mode, "ceil" if scale < 1 else "floor").apply(build, x, {axis: resized})
    return build.cast(x, op.input(0).type.dtype)


def _resized(op: OperatorView, build: Builder, axes: tuple[int, ...]) -> Value:
    way = _Way(
        op.text("mode", "nearest"),
        op.text("nearest_mode", "round_prefer_floor"),
        op.number("cubic_coeff_a", -0.75),
        op.integer("exclude_outside", 0) != 0,
    )
    if way.mode == "linear" and way.exclude_outside:
        raise Refusal("linear interpolation that excludes what is outside depends on the runtime")
    x = _operand(op, build, way.mode)
    outside = op.number("extrapolation_value", 0.0)
    geometry = dict(zip(axes, _geometry(op, x.type.shape, axes), strict=True))
    x = way.apply(build, x, geometry)
    for axis, resized in geometry.items():
        within = inside(resized)
        if within is not None:
            mask = build.constant(within.reshape(-1, *[1] * (x.type.rank - axis - 1)), "inside")
            x = build.where(mask, x, outside)
    return build.cast(x, op.input(0).type.dtype)


def _geometry(op: OperatorView, shape: tuple[int, ...], axes: tuple[int, ...]) -> list[Resized]:
    """Read how each of `axes` is resized. Raises Refusal."""
    transformation = op.text("coordinate_transformation_mode", "half_pixel")
    regions = _regions(op, transformation, len(axes))
    extents = [shape[axis] for axis in axes]
    scales, sizes = op.constant(2), op.constant_integers(3)
    scales = None if scales is None or scales.size == 0 else scales
    given = len(sizes) if sizes else scales.size if scales is not None else 0
    if (scales is None) == (not sizes) or given != len(axes) or 0 in extents:
        raise Refusal("it has not either a scale or a size for each axis")
    policy = op.text("keep_aspect_ratio_policy", "stretch")
    if sizes:
        return [
            Resized(
                extent, count, np.float32(ratio.numerator) / np.float32(ratio.denominator), transformation, r, ratio
            )
            for (count, ratio), extent, r in zip(_fitted(policy, sizes, extents), extents, regions, strict=True)
        ]
    assert scales is not None
    if transformation == CROP:
        raise Refusal("the definition and the runtime disagree on the extent of a region that is scaled")
    return [
        Resized(extent, scaled_extent(extent, scale), scale, transformation)
        for extent, scale in zip(extents, scales, strict=True)
    ]


def _regions(op: OperatorView, transformation: str, count: int) -> list[tuple[Any, Any]]:
    """Return start and end on each axis of what is resized."""
    if transformation != CROP:
        op.ignore_input(1)
        return [(0.0, 1.0)] * count
    region = op.constant(1)
    if region is None or region.size != 2 * count:
        raise Refusal("it has no region of interest for each axis")
    return [(region[i], region[count + i]) for i in range(count)]


def _fitted(policy: str, sizes: tuple[int, ...], extents: list[int]) -> list[tuple[int, Fraction]]:
    """Return extent and ratio of each axis for the sizes that are asked for."""
    ratios = [Fraction(size, extent) for size, extent in zip(sizes, extents, strict=True)]
    if policy == "stretch":
        return list(zip(sizes, ratios, strict=True))
    if policy not in ("not_larger", "not_smaller"):
        raise Refusal(f"the policy {policy!r} is not known")
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [(math.floor(ratio * extent + Fraction(1, 2)), ratio) for extent in extents]


def _rounded(ratio: Fraction) -> np.float32:
    return np.float32(ratio.numerator) / np.float32(ratio.denominator)
