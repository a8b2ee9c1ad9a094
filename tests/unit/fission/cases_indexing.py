"""Cases of operators that address elements by constant indices."""

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
)

_X = floats(3, 4, 5)
_INF, _NAN = np.inf, np.nan


def _list(*numbers: object) -> Fixed:
    return Fixed(np.array(numbers, np.int64))


_PICKED = [
    case("GatherElements", floats(3, 4), _list([0, 2, 1, 0], [-1, -3, 2, 0])),
    case("GatherElements", floats(3, 4), _list([0, 3], [2, -1], [1, 1]), axis=1),
    case("GatherElements", _X, Fixed(integers(2, 4, 3, low=-5, high=5)), axis=-1),
    case("GatherElements", integers(3, 4), _list([2], [0]), axis=0),
    case("GatherElements", booleans(3, 4), _list([3, 0], [1, 1]), axis=1),
    case("GatherElements", floats(3, 4), Fixed(np.zeros((0, 4), np.int64))),
    case("GatherElements", floats(4), Fixed(np.array([3, 1], np.int32))),
    case("GatherND", _X, _list([0, 1, 4], [2, -1, -5])),
    case("GatherND", _X, _list([[0, 1]], [[2, -1]])),
    case("GatherND", _X, _list([2], [0], [-1])),
    case("GatherND", _X, _list(1)),
    case("GatherND", _X, _list([1], [-4], [3]), batch_dims=1, since=12),
    case("GatherND", _X, Fixed(integers(3, 2, 2, low=-4, high=4)), batch_dims=1, since=12),
    case("GatherND", floats(2, 2, 5), _list([[0], [4]], [[-1], [2]]), batch_dims=2, since=12),
    case("GatherND", _X, Fixed(np.zeros((0, 2), np.int64))),
    case("GatherND", integers(3, 4), _list([0], [1])),
]

_NARROW = integers(5, dtype=np.int32)
_SPOTS = _list([2, 0, 1, -1], [0, 1, -1, 1])
_SPECIAL = np.array([_NAN, 1, _INF, -_INF, 2, _NAN], np.float32)
_ORDERED = np.array([1, _NAN, -_INF, _INF, _NAN, _NAN], np.float32)
_ALL_SPOTS = fixed(5, 4, 3, 2, 1, 0)
_REDUCTIONS = (("add", 16), ("mul", 16), ("max", 18), ("min", 18))
_REPLACED = [
    *(case(name, floats(3, 4), _SPOTS, floats(2, 4)) for name in ("Scatter", "ScatterElements")),
    *(
        case(name, floats(3, 4), _list([0, 3], [2, -3]), floats(2, 2), axis=1)
        for name in ("Scatter", "ScatterElements")
    ),
    case("ScatterElements", _X, _list([[4, 0]], [[1, -1]]), floats(2, 1, 2), axis=-1),
    case("ScatterElements", integers(5), fixed(4, 0), integers(2)),
    case("ScatterElements", booleans(5), fixed(4, 0), booleans(2)),
    case("ScatterElements", floats(5), Fixed(np.zeros(0, np.int64)), floats(0)),
    *(
        case("ScatterElements", floats(3, 4), _SPOTS, floats(2, 4), reduction=reduction, since=since)
        for reduction, since in (("none", 16), *_REDUCTIONS)
    ),
    *(
        case(
            "ScatterElements",
            integers(5, dtype=np.int32),
            fixed(1, 3),
            integers(2, dtype=np.int32),
            reduction=r,
            since=s,
        )
        for r, s in _REDUCTIONS
    ),
    case("ScatterND", _X, _list([0, 1, 4], [2, -1, -5]), floats(2)),
    case("ScatterND", _X, _list([[0, 1]], [[2, -1]]), floats(2, 1, 5)),
    case("ScatterND", _X, _list([2], [0]), floats(2, 4, 5)),
    case("ScatterND", integers(5), _list([4], [0]), integers(2)),
    case("ScatterND", floats(5), Fixed(np.zeros((0, 1), np.int64)), floats(0)),
    *(
        case("ScatterND", _X, _list([[0, 1]], [[2, -1]]), floats(2, 1, 5), reduction=reduction, since=since)
        for reduction, since in (("none", 16), *_REDUCTIONS)
    ),
    *(case("ScatterElements", _SPECIAL, _ALL_SPOTS, _ORDERED, reduction=r, since=s) for r, s in _REDUCTIONS),
    *(
        case("ScatterND", _SPECIAL, Fixed(_ALL_SPOTS.array.reshape(6, 1)), _ORDERED, reduction=r, since=s)
        for r, s in _REDUCTIONS
    ),
    *(
        case("ScatterElements", floats(5), fixed(3, 1, 3, -2, 1, 0), floats(6), reduction=r, since=s)
        for r, s in _REDUCTIONS
    ),
    *(
        case("ScatterND", floats(4, 3), _list([3], [1], [3], [-1]), floats(4, 3), reduction=r, since=s)
        for r, s in _REDUCTIONS
    ),
    case("ReverseSequence", floats(4, 3), fixed(1, 2, 4)),
    case("ReverseSequence", floats(3, 4), fixed(4, 0, 3), batch_axis=0, time_axis=1),
    case("ReverseSequence", floats(4, 2, 3), fixed(3, 1)),
    case("ReverseSequence", integers(2, 4, 3), fixed(3, 4), batch_axis=0, time_axis=1),
]

_WAYS = [{"exclusive": e, "reverse": r} for e, r in itertools.product((0, 1), (0, 1))]
_CUMULATED = [
    *(case(name, _X, fixed(axis)) for name in ("CumSum", "CumProd") for axis in (0, 1, 2, -1)),
    *(case(name, _X, fixed(1), **way) for name in ("CumSum", "CumProd") for way in _WAYS),
    *(case(name, floats(3, 1), fixed(1), **way) for name in ("CumSum", "CumProd") for way in _WAYS),
    *(
        case(name, x, Fixed(np.array(0, np.int32)), **way)
        for name, x in itertools.product(("CumSum", "CumProd"), (_SPECIAL, _ORDERED))
        for way in _WAYS
    ),
    *(
        case(name, integers(3, 4, dtype=dtype), fixed(0))
        for name in ("CumSum", "CumProd")
        for dtype in (np.int32, np.int64)
    ),
    case("CumSum", floats(2, 5, dtype=np.float64), fixed(1), reverse=1),
    case("CumSum", floats(0, 3), fixed(1)),
    case("CumSum", floats(2, 50), fixed(1)),
]

_CACHE, _NEW = floats(2, 3, 5, 4), floats(2, 3, 2, 4)
_CACHED = [
    case("TensorScatter", _CACHE, _NEW),
    case("TensorScatter", _CACHE, _NEW, fixed(1, 3)),
    case("TensorScatter", _CACHE, _NEW, fixed(4, 2), mode="circular"),
    case("TensorScatter", floats(2, 5, 3), floats(2, 1, 3), fixed(4, 0), axis=1),
    case("TensorScatter", integers(2, 2, 5), integers(2, 2, 5), axis=-1),
]

CASES = [*_PICKED, *_REPLACED, *_CUMULATED, *_CACHED]
