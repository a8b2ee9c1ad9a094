"""Cases of inverse and hyperbolic functions, remainders, powers, bits and limits."""

from __future__ import annotations

from typing import Any

import numpy as np
from operator_case import Fixed, case, fixed, floats, integers, positive, scalar  # type: ignore[import-not-found]

_INF, _NAN = np.inf, np.nan
_EDGES = np.array([-_INF, -3e38, -3.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0, 3e38, _INF, _NAN], np.float32)
_UNIT = np.array([-_INF, -2, -1, -0.75, -0.1, -0.0, 0, 0.3, 0.9, 1, 2, _INF, _NAN], np.float32)
_UNSIGNED = (np.uint8, np.uint16, np.uint32, np.uint64)
_SIGNED = (np.int8, np.int16, np.int32, np.int64)
_INVERSE = ("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh")
_HYPERBOLIC = ("Cosh", "Sinh", "Tan")

_FUNCTIONS = [
    *(case(name, floats(3, 5)) for name in ("Asinh", "Atan", "Cosh", "Sinh", "Tan")),
    *(case(name, np.asarray(np.tanh(floats(3, 5)))) for name in ("Acos", "Asin", "Atanh")),
    *(case(name, _UNIT) for name in (*_INVERSE, *_HYPERBOLIC)),
    *(case(name, floats(2, 3, dtype=np.float64)) for name in (*_INVERSE, *_HYPERBOLIC)),
    *(case(name, np.tanh(floats(2, 3)).astype(np.float16), since=22) for name in (*_INVERSE, *_HYPERBOLIC)),
    case("Acosh", positive(3, 5) + 1),
]


def _pair(dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    return integers(3, 7, dtype=dtype, low=0, high=120), integers(7, dtype=dtype, low=0, high=120)


_BITS = [
    *(case(name, *_pair(d)) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor") for d in (*_UNSIGNED, *_SIGNED)),
    *(case(name, integers(5), integers(4, 1)) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    *(case("BitwiseNot", integers(9, dtype=d, low=0)) for d in (*_UNSIGNED, *_SIGNED)),
    case("BitwiseNot", integers(9)),
    *(
        case("BitShift", integers(2, 6, dtype=d, low=0, high=250), integers(6, dtype=d, low=0, high=8), direction=way)
        for d in _UNSIGNED
        for way in ("LEFT", "RIGHT")
    ),
    *(
        case("BitShift", integers(2, 9, dtype=d, low=-120, high=120), integers(9, dtype=d), direction=way, since=28)
        for d in _SIGNED
        for way in ("LEFT", "RIGHT")
    ),
    *(
        case("BitShift", np.array([-5, 5, -1, 1], d), np.array([64, 64, 8, -1], d), direction=way, since=28)
        for d in _SIGNED
        for way in ("LEFT", "RIGHT")
    ),
]

_REMAINDERS = [
    *(case("Mod", *(p[0] - 60, p[1] % 9 + 1)) for p in map(_pair, _SIGNED)),
    *(case("Mod", *(p[0] - 60, -(p[1] % 9) - 1), fmod=1) for p in map(_pair, _SIGNED)),
    *(case("Mod", *(p[0], p[1] + 1), fmod=f) for p in map(_pair, _UNSIGNED) for f in (0, 1)),
    *(case("Mod", floats(3, 4, dtype=d), floats(4, dtype=d), fmod=1) for d in (np.float32, np.float64, np.float16)),
    case("Mod", _EDGES.reshape(-1, 1), _EDGES, fmod=1),
    case("Mod", floats(3, 4), floats(4), since=28),
]

_POWERS = [
    case("Pow", _EDGES, _EDGES[::-1].copy()),
    *(case("Pow", _EDGES, scalar(e)) for e in (0, 0.5, 1, 2, 3, -1, -0.5)),
    *(
        case("Pow", integers(2, 6, dtype=b), integers(6, dtype=e, low=-3, high=6), since=12)
        for b in (np.int32, np.int64)
        for e in (np.int32, np.int64)
    ),
    *(
        case("Pow", integers(2, 6, dtype=b, low=1), floats(6, dtype=e), since=12)
        for b in (np.int32, np.int64)
        for e in (np.float32, np.float64)
    ),
    *(
        case("Pow", positive(2, 6), integers(6, dtype=e, low=-3, high=6), since=12)
        for e in (np.int32, np.int64, np.float64)
    ),
    *(case("Pow", positive(2, 6, dtype=np.float64), floats(6, dtype=e), since=12) for e in (np.float32, np.float64)),
    *(
        case("Pow", np.array([94906267, 2000000, -3], b), Fixed(np.array([n], e)), since=12)
        for b in (np.int32, np.int64)
        for n, e in ((1, np.int32), (2, np.int64), (3, np.float32))
    ),
    case("Pow", np.array([4, 9, 2], np.int32), scalar(0.5), since=12),
    case("Pow", positive(3), fixed(0.1, -0.3, 1.7, dtype=np.float64), since=12),
]

_LIMITS = [
    case("Clip", _EDGES, until=10),
    *(case("Clip", _EDGES, **{name: -1.0}, until=10) for name in ("min", "max")),
    *(case("Clip", _EDGES, low, high, since=11) for low in (None, scalar(-1)) for high in (None, scalar(0.5))),
    *(case("Clip", _EDGES, low, high, since=11) for low in (None, floats()) for high in (None, positive())),
    *(case("Clip", _EDGES, scalar(low), scalar(high), since=11) for low, high in ((_NAN, 1), (-1, _NAN), (1, -1))),
    case("Clip", np.array([-_INF, -1, _INF, _NAN], np.float16), since=11),
    case("Clip", np.array([-_INF, -1, 60000, _NAN], np.float16), max=1.0, until=10),
    *(case("Sign", np.array([-_INF, -2, -0.0, 0, 3, _INF, _NAN], d)) for d in (np.float16, np.float32, np.float64)),
    case("Clip", _EDGES, np.array(_NAN, np.float32), np.array(1, np.float32), since=11),
    case("Clip", np.array([-_INF, 1, _INF, _NAN]), None, scalar(2, np.float64), since=12),
    *(
        case("Clip", integers(9, dtype=d, low=0, high=100), scalar(3, d), scalar(50, d), since=12)
        for d in (np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64)
    ),
    case("Clip", integers(9), None, scalar(3, np.int64), since=12),
    case("IsInf", _EDGES, detect_positive=0, detect_negative=0),
    case("IsInf", _EDGES.astype(np.float64)),
]

CASES = [*_FUNCTIONS, *_BITS, *_REMAINDERS, *_POWERS, *_LIMITS]
