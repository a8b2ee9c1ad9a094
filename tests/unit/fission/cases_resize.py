"""Cases of resizing with interpolation, with regions of interest, and with a kept aspect ratio."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from operator_case import Array, Case, Fixed, case, fixed, floats, integers  # type: ignore[import-not-found]

_IMAGE = floats(1, 2, 4, 6)
_COORDINATES = ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel")
_SPECIAL = floats(1, 1, 5, 6)
_SPECIAL[0, 0, 1, 2], _SPECIAL[0, 0, 3, 4], _SPECIAL[0, 0, 4, 0] = np.inf, np.nan, -np.inf
_NONE = Fixed(np.zeros(0, np.float32))


def _scales(*numbers: float) -> Fixed:
    return fixed(*numbers, dtype=np.float32)


def _scaled(x: Array, *scales: float, since: int = 11, **attributes: Any) -> Case:
    return case("Resize", x, _NONE, _scales(*scales), since=since, **attributes)


def _sized(x: Array, *sizes: int, since: int = 11, **attributes: Any) -> Case:
    return case("Resize", x, _NONE, _NONE, fixed(*sizes), since=since, **attributes)


def _cropped(x: Array, region: tuple[float, ...], *sizes: int, since: int = 11, **attributes: Any) -> Case:
    attributes["coordinate_transformation_mode"] = "tf_crop_and_resize"
    return case("Resize", x, _scales(*region), _NONE, fixed(*sizes), since=since, **attributes)


_INTERPOLATED = [
    *(case("Upsample", _IMAGE, until=8, scales=[1.0, 1.0, *s], mode="linear") for s in ((2.0, 3.0), (1.5, 2.5))),
    *(case("Upsample", _IMAGE, _scales(1, 1, *s), since=9, until=9, mode="linear") for s in ((2, 3), (1.5, 2.5))),
    *(case("Resize", _IMAGE, _scales(1, 1, *s), until=10, mode="linear") for s in ((2, 3), (0.5, 0.6))),
    case("Resize", floats(1, 2, 6, 8), _scales(1, 1, 0.5, 0.25), until=10),
    *(
        _scaled(_IMAGE, 1, 1, *scales, mode=mode, coordinate_transformation_mode=transformation)
        for mode, transformation, scales in itertools.product(
            ("linear", "cubic"), _COORDINATES, ((2, 3), (0.5, 0.7), (1.7, 1), (0.25, 0.2))
        )
    ),
    *(
        _scaled(_IMAGE, 1, 1, 2.3, 0.7, since=19, mode=mode, coordinate_transformation_mode="half_pixel_symmetric")
        for mode in ("linear", "cubic")
    ),
    *(_sized(_IMAGE, 1, 2, 9, 5, mode=mode) for mode in ("linear", "cubic")),
    *(_sized(floats(3, 5), 7, 3, mode=mode) for mode in ("linear", "cubic")),
    _scaled(floats(2, 3, 4), 1, 2, 2, mode="linear"),
    _scaled(floats(2, 3, 4), 1.5, 2, 2, mode="linear"),
    _scaled(floats(1, 2, 3, 4, 5), 1, 1, 2, 1.5, 0.6, mode="linear"),
    _scaled(floats(1, 3, 4, 2), 1, 2, 2, 1, mode="linear"),
    *(_scaled(floats(1, 1, 1, 3), 1, 1, 4, 2, mode=mode) for mode in ("linear", "cubic")),
    *(
        _scaled(_IMAGE, 1, 1, 2, 0.7, mode="cubic", cubic_coeff_a=a, exclude_outside=outside)
        for a, outside in itertools.product((-0.5, -0.75), (0, 1))
    ),
    *(_scaled(_SPECIAL, 1, 1, 2, 3, mode="linear", coordinate_transformation_mode=t) for t in _COORDINATES),
    *(_scaled(_IMAGE.astype(np.float16), 1, 1, 2, 3, mode=mode) for mode in ("linear", "cubic")),
    *(_scaled(_IMAGE, 1, 1, 2, 3, mode=mode, antialias=0, since=18) for mode in ("linear", "cubic")),
    *(case("Resize", _IMAGE, None, _scales(2, 3), since=18, axes=[2, 3], mode=mode) for mode in ("linear", "cubic")),
    case("Resize", _IMAGE, None, None, fixed(9, 5), since=18, axes=[-1, -2], mode="linear"),
]

_CROPPED = [
    *(_cropped(_IMAGE, (0, 0, 0.2, 0.3, 1, 1, 0.8, 0.9), 1, 2, 5, 5, mode=mode) for mode in ("linear", "cubic")),
    *(
        _cropped(_IMAGE, (0, 0, -0.3, 0.4, 1, 1, 0.8, 1.3), 1, 2, 5, 7, mode=mode, extrapolation_value=9.5)
        for mode in ("linear", "cubic", "nearest")
    ),
    *(_cropped(_IMAGE, (0, 0, 0.1, 0.2, 1, 1, 0.6, 0.7), 1, 2, 4, 3, mode=mode) for mode in ("linear", "nearest")),
    _cropped(_IMAGE, (0, 0, 0.2, 0.3, 1, 1, 0.8, 0.9), 1, 2, 1, 5, mode="linear"),
    _cropped(_IMAGE, (0.2, 0.3, 0.8, 0.9), 5, 5, since=18, axes=[2, 3], mode="linear"),
    _cropped(_IMAGE, (0.3, -0.2, 0.9, 0.8), 5, 5, since=18, axes=[3, 2], mode="linear"),
]

_KEPT = [
    case(
        "Resize",
        x,
        None,
        None,
        fixed(*sizes),
        since=18,
        axes=[2, 3],
        mode=mode,
        keep_aspect_ratio_policy=policy,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    for mode, policy, sizes, x in itertools.product(
        ("nearest", "linear", "cubic"),
        ("not_larger", "not_smaller"),
        ((9, 7), (3, 8)),
        (_IMAGE,),
    )
]

CASES = [*_INTERPOLATED, *_CROPPED, *_KEPT, _scaled(integers(1, 1, 3, 4, dtype=np.uint8), 1, 1, 2, 2)]
