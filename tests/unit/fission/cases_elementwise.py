"""Cases of elementwise operators and activations."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto
from operator_case import (  # type: ignore[import-not-found]
    Fixed,
    booleans,
    case,
    fixed,
    floats,
    integers,
    positive,
    scalar,
)

_INF, _NAN = np.inf, np.nan
_EDGES = np.array([-_INF, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, _INF, _NAN], np.float32)
_FINITE = _EDGES[1:-2]
_HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.4, -0.6], np.float32)
_SMOOTH = ("Cos", "Erf", "Exp", "Sigmoid", "Sin", "Softplus", "Tanh")

_UNARY = [
    *(case(name, floats(3, 5)) for name in (*_SMOOTH, "Abs", "Ceil", "Floor", "Neg", "Reciprocal", "Sign")),
    *(case(name, _EDGES) for name in ("Abs", "Ceil", "Exp", "Floor", "Neg", "Sigmoid", "Tanh", "Softplus")),
    *(case(name, floats(4, 3, dtype=np.float64)) for name in ("Exp", "Tanh", "Abs", "Neg")),
    *(case(name, positive(3, 5)) for name in ("Log", "Sqrt")),
    *(case(name, floats(3, 5, dtype=np.float16)) for name in ("Exp", "Tanh", "Abs")),
    case("Sigmoid", np.array([-1000, -90, 0, 90, 1000], np.float32)),
    case("Softplus", np.array([-1000, -90, 0, 90, 1000], np.float32)),
    case("Log", np.array([0.0, -1.0, _INF, 1.0], np.float32)),
    case("Abs", integers(7, dtype=np.int32)),
    case("Neg", integers(7)),
    case("Sign", integers(7)),
    case("Not", booleans(2, 4)),
    case("Round", _HALVES),
    case("Exp", floats()),
]

_BINARY = [
    *(case(name, floats(2, 3, 4), floats(3, 1)) for name in ("Add", "Div", "Mul", "Sub")),
    *(case(name, floats(4), floats(2, 1, 1)) for name in ("Add", "Div", "Mul", "Sub")),
    *(case(name, integers(2, 5), integers(5, low=1)) for name in ("Add", "Div", "Mul", "Sub")),
    *(case(name, floats(3, dtype=np.float64), scalar(2, np.float64)) for name in ("Add", "Div", "Mul", "Sub")),
    *(case(name, booleans(2, 4), booleans(4)) for name in ("And", "Or", "Xor")),
    *(case(name, floats(2, 4), floats(4)) for name in ("Greater", "Less", "GreaterOrEqual", "LessOrEqual")),
    *(case(name, _EDGES, _EDGES[::-1].copy()) for name in ("Greater", "Less", "GreaterOrEqual", "LessOrEqual")),
    *(case(name, integers(9), integers(9)[::-1].copy(), since=9) for name in ("Greater", "Less")),
    case("Equal", integers(9), integers(9)[::-1].copy()),
    case("Equal", booleans(4), booleans(4)[::-1].copy()),
    case("Equal", _EDGES, _EDGES, since=11),
    case("Div", np.array([-7, 7, -7, 7], np.int32), np.array([2, -2, -2, 2], np.int32)),
    case("Mod", integers(4, 5, low=-20, high=20), integers(5, low=1)),
    case("Mod", np.array([-7, 7, -7, 7, 6, -6], np.int32), np.array([2, -2, -2, 2, -3, 3], np.int32)),
    case("Mod", np.array([-7, 7, -7, 7, 6, -6], np.int64), np.array([2, -2, -2, 2, -3, 3], np.int64), fmod=1),
    case("Mod", integers(6, dtype=np.uint8, low=0, high=200), fixed(7, dtype=np.uint8)),
    *(case(name, floats(2, 4)) for name in ("Max", "Mean", "Min", "Sum")),
    *(case(name, floats(2, 4), positive(2, 4)) for name in ("Max", "Mean", "Min", "Sum")),
    *(case(name, floats(2, 4), floats(4), floats(2, 1), since=8) for name in ("Max", "Mean", "Min", "Sum")),
    *(case(name, _EDGES, _EDGES[::-1].copy(), since=8) for name in ("Max", "Min")),
    *(case(name, integers(5), fixed(2), since=12) for name in ("Max", "Min")),
    *(case("Pow", positive(2, 3), scalar(e)) for e in (0.5, 1, 2, 3, -1, 1.7)),
    case("Pow", floats(2, 3), scalar(2)),
    case("Pow", positive(2, 3), fixed(2, 3, 0.5, dtype=np.float32)),
    case("Pow", positive(2, 3), fixed(2), since=12),
    case("Pow", positive(3), Fixed(np.ones((1, 1, 1), np.float32))),
    case("Pow", positive(2, 3), positive(3)),
    case("Where", booleans(2, 1, 4), floats(3, 1), floats(4)),
    case("Where", booleans(3), integers(3), integers(3)[::-1].copy()),
    case("IsNaN", _EDGES),
    *(case("IsInf", _EDGES, detect_positive=p, detect_negative=n) for p, n in ((1, 1), (1, 0), (0, 1))),
]

_CONVERSIONS = [
    case("Cast", floats(3, 4), to=TensorProto.DOUBLE),
    case("Cast", floats(3, 4), to=TensorProto.FLOAT16),
    case("Cast", floats(3, 4), to=TensorProto.INT64),
    case("Cast", np.array([0.0, 0.5, -2.0, _NAN], np.float32), to=TensorProto.BOOL),
    case("Cast", np.array([1e6, -1e6, 1e-9, 70000], np.float32), to=TensorProto.FLOAT16),
    case("Cast", integers(5), to=TensorProto.FLOAT),
    case("Cast", integers(5), to=TensorProto.BOOL),
    case("Cast", np.array([300, -1, 127], np.int32), to=TensorProto.INT8),
    case("Cast", booleans(5), to=TensorProto.INT32),
    case("Cast", floats(5), to=TensorProto.FLOAT),
    case("Cast", floats(5), to=TensorProto.FLOAT16, since=19, saturate=0),
    case("CastLike", floats(3, 4), integers(2)),
    case("CastLike", integers(3), floats(1)),
]

_BOUNDED = [
    case("Clip", floats(3, 4), min=-1.0, max=0.5, until=10),
    case("Clip", floats(3, 4), min=-1.0, until=10),
    case("Clip", floats(3, 4), max=0.0, until=10),
    case("Clip", floats(3, 4), until=10),
    case("Clip", floats(3, 4), scalar(-1), scalar(0.5), since=11),
    case("Clip", floats(3, 4), floats(), scalar(0.5), since=11),
    case("Clip", floats(3, 4), None, scalar(0), since=11),
    case("Clip", floats(3, 4), scalar(0), since=11),
    case("Clip", floats(3, 4), since=11),
    case("Clip", floats(3, 4), scalar(1), scalar(-1), since=11),
    case("Clip", integers(9), scalar(-2, np.int64), scalar(3, np.int64), since=12),
]

_ACTIVATIONS = [
    *(case(name, floats(3, 4)) for name in ("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "ThresholdedRelu", "Shrink")),
    *(case(name, floats(3, 4)) for name in ("Softsign", "HardSigmoid", "HardSwish", "Mish", "Gelu", "Swish")),
    *(case(name, _FINITE * 30) for name in ("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Softsign", "HardSigmoid")),
    *(case(name, _FINITE * 30) for name in ("HardSwish", "Mish", "Gelu", "Swish", "ThresholdedRelu")),
    *(
        case(name, floats(3, 4, dtype=np.float16))
        for name in ("Elu", "Selu", "Celu", "Softsign", "HardSigmoid", "HardSwish", "Mish", "Gelu", "Swish")
    ),
    *(case("LeakyRelu", floats(3, 4), alpha=a) for a in (0.0, 0.3, 1.0, 2.0, -0.5)),
    case("LeakyRelu", _EDGES[:-1], alpha=0.0, tolerance=0),
    case("Relu", integers(9, dtype=np.int32), since=14),
    case("Relu", np.array([-_INF, _INF, 0.0], np.float32)),
    case("PRelu", floats(2, 3, 4), floats(3, 1)),
    case("PRelu", floats(2, 3, 4), fixed(0.25, dtype=np.float32)),
    case("Elu", floats(3, 4), alpha=2.0),
    case("Selu", floats(3, 4), alpha=1.5, gamma=2.0),
    case("Celu", floats(3, 4), alpha=2.0),
    case("Celu", floats(3, 4), alpha=0.5),
    case("ThresholdedRelu", floats(3, 4), alpha=0.5),
    case("Shrink", floats(3, 4), bias=0.5, lambd=1.5),
    case("HardSigmoid", floats(3, 4), alpha=0.5, beta=0.25),
    case("Gelu", floats(3, 4), approximate="tanh"),
    case("Gelu", floats(3, 4), approximate="none"),
    case("Swish", floats(3, 4), alpha=1.5),
    case("Swish", floats(3, 4), alpha=1.0),
    case("Gelu", floats(2, 6), domain="com.microsoft"),
    case("BiasGelu", floats(2, 6), floats(6), domain="com.microsoft"),
    case("FastGelu", floats(2, 6), domain="com.microsoft"),
    case("FastGelu", floats(2, 6), floats(6), domain="com.microsoft"),
    case("QuickGelu", floats(2, 6), domain="com.microsoft"),
    case("QuickGelu", floats(2, 6), domain="com.microsoft", alpha=1.0),
]

CASES = [*_UNARY, *_BINARY, *_CONVERSIONS, *_BOUNDED, *_ACTIVATIONS]
