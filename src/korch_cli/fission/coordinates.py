"""Where each position of a resized axis lies in the original one: the coordinate transformations of ONNX Resize."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from korch_cli.core.errors import Refusal

CROP = "tf_crop_and_resize"
"""The transformation that resizes a region, beyond which it extrapolates."""


@dataclass(frozen=True, slots=True)
class Resized:
    """One axis: its extent before and after, and how positions are transformed.

    Attributes:
        extent: elements of the operand.
        count: elements of the result.
        scale: what the runtime divides by; it holds it as float32.
        transformation: a value of coordinate_transformation_mode.
        region: start and end of what is resized, as fractions of the axis; only `CROP` reads it.
        ratio: the quotient of two sizes that the scale stands for, if it does.
    """

    extent: int
    count: int
    scale: Any
    transformation: str
    region: tuple[Any, Any] = (0.0, 1.0)
    ratio: Fraction | None = None

    @property
    def unchanged(self) -> bool:
        """Whether the runtime takes every element as it is."""
        return bool(self.count == self.extent and self.scale == 1)

    def rounded_places(self) -> list[np.float32]:
        """Return the place of each position as the runtime computes it, in float32. Raises Refusal."""
        return self._places(np.float32, np.float32(self.scale))

    def exact_places(self) -> list[Fraction]:
        """Return the place of each position without rounding. Raises Refusal."""
        if self.ratio is not None:
            return self._places(Fraction, self.ratio)
        # A scale that two sizes would give was made from them by whoever wrote the model.
        from_sizes = bool(np.float32(self.count) / np.float32(self.extent) == np.float32(self.scale))
        return self._places(Fraction, Fraction(self.count, self.extent) if from_sizes else Fraction(float(self.scale)))

    def _places(self, number: Callable[[Any], Any], scale: Any) -> list[Any]:
        rule = _RULES.get(self.transformation)
        if rule is None:
            raise Refusal(f"the coordinate transformation {self.transformation!r} is not understood")
        if self.extent < 1 or self.scale <= 0:
            raise Refusal("an axis is empty, or its scale is not positive")
        start, end = (number(float(bound)) for bound in self.region)
        terms = _Terms(scale, number(self.extent), number(self.count), number(1) / number(2), start, end)
        if self.unchanged:
            return [number(i) for i in range(self.count)]
        return [rule(number(i), terms) for i in range(self.count)]


@dataclass(frozen=True, slots=True)
class _Terms:
    """The numbers of a transformation, in the arithmetic that is asked for."""

    scale: Any
    extent: Any
    count: Any
    half: Any
    start: Any
    end: Any


def scaled_extent(extent: int, scale: Any) -> int:
    """Return how many elements an axis has after scaling; the runtime multiplies in float32."""
    return math.floor(np.float32(extent) * np.float32(scale))


def _half_pixel(x: Any, t: _Terms) -> Any:
    return (x + t.half) / t.scale - t.half


def _pytorch_half_pixel(x: Any, t: _Terms) -> Any:
    return _half_pixel(x, t) if t.count > 1 else x * 0


def _half_pixel_symmetric(x: Any, t: _Terms) -> Any:
    offset = t.extent / 2 * (1 - t.count / (t.scale * t.extent))
    return offset + _half_pixel(x, t)


def _asymmetric(x: Any, t: _Terms) -> Any:
    return x / t.scale


def _tf_half_pixel_for_nn(x: Any, t: _Terms) -> Any:
    return (x + t.half) / t.scale


def _align_corners(x: Any, t: _Terms) -> Any:
    return x * (t.extent - 1) / (t.count - 1) if t.count > 1 else x * 0


def _tf_crop_and_resize(x: Any, t: _Terms) -> Any:
    if t.count > 1:
        return t.start * (t.extent - 1) + x * (t.end - t.start) * (t.extent - 1) / (t.count - 1)
    return t.half * (t.start + t.end) * (t.extent - 1)


_RULES: dict[str, Callable[[Any, _Terms], Any]] = {
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    CROP: _tf_crop_and_resize,
    "tf_half_pixel_for_nn": _tf_half_pixel_for_nn,
}
