"""Cases of operators that look for elements, mark them, or keep what a constant says."""

from __future__ import annotations

import itertools

import numpy as np
from operator_case import (  # type: ignore[import-not-found]
    Fixed,
    booleans,
    case,
    fixed,
    floats,
    integers,
    scalar,
)

_X = floats(2, 3, 4)
_INF, _NAN = np.inf, np.nan
_ROWS = np.array(
    [
        [1, 3, 3, 2],
        [_NAN, 1, 2, 0],
        [1, _NAN, 2, 0],
        [2, 1, 0, _NAN],
        [_NAN, _NAN, _NAN, _NAN],
        [-_INF, _NAN, -_INF, _NAN],
        [_INF, -_INF, _INF, -_INF],
        [-_INF, -_INF, -_INF, -_INF],
        [_INF, _NAN, _INF, _INF],
        [0.0, -0.0, 0.0, -0.0],
    ],
    np.float32,
)
_TIES = integers(3, 4, 5, low=0, high=3)
_ARGUMENTS = ("ArgMax", "ArgMin")
_EXTREMES = [
    *(case(name, _X) for name in _ARGUMENTS),
    *(case(name, _X, axis=axis, keepdims=0) for name in _ARGUMENTS for axis in (0, 1, 2)),
    *(case(name, _X, axis=-1, since=11) for name in _ARGUMENTS),
    *(case(name, x, axis=1) for name in _ARGUMENTS for x in (_ROWS, _ROWS.T.copy(), _TIES, floats(3, 1))),
    *(case(name, _ROWS, axis=0, select_last_index=1, since=12) for name in _ARGUMENTS),
    *(
        case(name, x, axis=1, select_last_index=1, keepdims=0, since=12)
        for name, x in itertools.product(_ARGUMENTS, (_ROWS, _TIES, _ROWS.astype(np.float64), floats(0, 3)))
    ),
    *(
        case(name, _TIES.astype(dtype), axis=2, since=13)
        for name, dtype in itertools.product(_ARGUMENTS, (np.int8, np.uint8, np.int32, np.float16, np.float64))
    ),
    case("Hardmax", _X),
    *(case("Hardmax", _X, axis=axis) for axis in (0, 1, 2)),
    *(case("Hardmax", _X, axis=axis, since=11) for axis in (-1, -2)),
    *(case("Hardmax", x, axis=1) for x in (_ROWS, floats(3, 1), _TIES.astype(np.float32))),
    case("Hardmax", _ROWS[6:], axis=0, since=13),
    case("Hardmax", _ROWS.astype(np.float16), axis=-1, since=13),
]

_INDICES = np.array([[1, -1, 3], [-4, 4, -5]])
_MARKED = [
    *(case("OneHot", _INDICES, scalar(4, np.int64), floats(2), axis=axis) for axis in (0, 1, 2, -1)),
    case("OneHot", _INDICES, scalar(4, np.int64), floats(2)),
    case("OneHot", _INDICES, fixed(4), integers(2), axis=-2, since=11),
    case("OneHot", np.array([1.5, -0.5, -1.5, 3.9], np.float32), scalar(4), floats(2)),
    case("OneHot", _INDICES, scalar(4, np.int64), fixed(0, 1)),
    case("OneHot", np.array(2), scalar(3, np.int64), floats(2)),
    case("OneHot", np.zeros((0, 2), np.int64), scalar(3, np.int64), floats(2), axis=1),
    case("OneHot", _INDICES.astype(np.int32), scalar(4, np.int32), integers(2, dtype=np.int32)),
    *(case("EyeLike", floats(3, 4), k=k) for k in (0, 1, -2, 9)),
    case("EyeLike", floats(3, 4)),
    case("EyeLike", integers(3, 2), dtype=1),
    case("EyeLike", floats(3, 3), dtype=7),
    case("EyeLike", integers(2, 3, dtype=np.int32), dtype=11),
]


def _condition(*numbers: int) -> Fixed:
    return Fixed(np.array(numbers, np.bool_))


_KEPT = [
    case("Compress", _X, _condition(0, 1, 1), axis=1),
    case("Compress", _X, _condition(1), axis=2),
    case("Compress", _X, _condition(0, 0), axis=0),
    case("Compress", _X, _condition(0, 1, 0, 1, 1, 0, 1), axis=1),
    case("Compress", _X, _condition(0, 1, 0, 1, 1, 0, 0, 1)),
    case("Compress", booleans(4), _condition(1, 0, 1, 1), axis=-1, since=11),
    case("CenterCropPad", floats(5, 4, 3), fixed(2, 7, 3)),
    case("CenterCropPad", floats(4, 5), fixed(7, 2)),
    case("CenterCropPad", floats(4, 5), fixed(8), axes=[-1]),
    case("CenterCropPad", floats(4, 5, 2), fixed(3, 6), axes=[1, 0]),
    case("CenterCropPad", integers(2, 3), fixed(4, 1), axes=[0, 1]),
]

CASES = [*_EXTREMES, *_MARKED, *_KEPT]
