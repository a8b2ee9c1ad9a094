"""Cases of norms over windows and of sums along an axis."""

from __future__ import annotations

import itertools

import numpy as np
from operator_case import case, fixed, floats  # type: ignore[import-not-found]

_IMAGE = floats(1, 2, 7, 8)
_SPECIAL = np.array([[[1, np.nan, 2, np.inf, -np.inf, 0, 3, -4]]], np.float32)
_NORMS = [
    case("LpPool", _IMAGE, kernel_shape=[3, 2]),
    *(case("LpPool", floats(2, 3, 9), kernel_shape=[3], strides=[2], pads=[1, 1], p=p) for p in (1, 2, 3)),
    case("LpPool", floats(1, 1, 4, 5, 3), kernel_shape=[2, 2, 2], strides=[2, 1, 1]),
    *(
        case("LpPool", _IMAGE, kernel_shape=[2, 3], strides=[2, 2], auto_pad=pad, p=p)
        for pad, p in itertools.product(("SAME_UPPER", "SAME_LOWER", "VALID"), (2, 3))
    ),
    case("LpPool", _IMAGE, kernel_shape=[3, 3], pads=[1, 0, 1, 2], strides=[2, 2]),
    case("LpPool", _IMAGE, kernel_shape=[2, 3], strides=[2, 2], ceil_mode=1, since=18),
    case("LpPool", _IMAGE, kernel_shape=[3, 3], strides=[3, 3], pads=[1] * 4, ceil_mode=1, p=3, since=18),
    case("LpPool", _IMAGE, kernel_shape=[2, 3], dilations=[2, 3], since=18),
    case("LpPool", _IMAGE, kernel_shape=[2, 2], dilations=[3, 2], pads=[1] * 4, p=1, since=18),
    *(case("LpPool", _SPECIAL, kernel_shape=[2], p=p) for p in (1, 2, 3)),
    case("LpPool", floats(1, 2, 9, dtype=np.float16), kernel_shape=[3], pads=[1, 0], since=18),
    *(case("GlobalLpPool", _IMAGE, p=p) for p in (1, 2, 3)),
    case("GlobalLpPool", floats(2, 3, 5)),
    case("GlobalLpPool", _SPECIAL, p=3),
]

_COLUMNS = [
    case("Col2Im", floats(2, 12, 6), fixed(3, 4), fixed(2, 2)),
    case("Col2Im", floats(1, 5, 5), fixed(5, 5), fixed(1, 5)),
    case("Col2Im", floats(2, 8, 4), fixed(5, 5), fixed(2, 2), strides=[2, 2], dilations=[2, 1]),
    case("Col2Im", floats(1, 9, 6), fixed(4, 5), fixed(3, 3), strides=[2, 2], pads=[1, 1, 1, 1]),
    case("Col2Im", floats(1, 4, 15), fixed(5, 3), fixed(1, 4), pads=[0, 1, 0, 2]),
    case("Col2Im", floats(1, 8, 8), fixed(3, 3, 3), fixed(2, 2, 2)),
]

_GRIDS = [
    *(
        case("AffineGrid", floats(2, rank, rank + 1), fixed(*size), **aligned)
        for aligned in ({}, {"align_corners": 1}, {"align_corners": 0})
        for rank, size in ((2, (2, 3, 5, 4)), (3, (2, 1, 4, 3, 5)))
    ),
    case("AffineGrid", floats(2, 2, 3), fixed(2, 1, 1, 6)),
]

CASES = [*_NORMS, *_COLUMNS, *_GRIDS]
