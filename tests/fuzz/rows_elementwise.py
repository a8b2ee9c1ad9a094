"""Elementwise operators, activations, conversions, and the choice between two tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from korch_cli.core.types import DType
from tests.fuzz.operators import MICROSOFT, enter, operator
from tests.fuzz.sketch import ANY, FLOATS, INTEGERS, NUMBERS, SIGNED, UNSIGNED, Call, Sketch

_BOOL = (DType.BOOL,)
_SMALL = (0.0, 0.01, 0.25, 0.5, 1.0, 1.5, 2.0)


def unary(dtypes: Sequence[DType] = FLOATS, **attributes: Sequence[Any]) -> Callable[[Sketch], Call]:
    """One operand; each attribute is absent or one of those given."""

    def make(s: Sketch) -> Call:
        return Call([s.pick(dtypes)], {name: s.choose(v) for name, v in attributes.items() if s.chance(70)})

    return make


def within(low: float, high: float, before: str) -> Callable[[Sketch], Call]:
    """One operand between two numbers; if there is none, the operator `before` makes it."""

    def make(s: Sketch) -> Call:
        fit = [t for t in s.tensors if t.dtype in FLOATS and ((t.array >= low) & (t.array <= high)).all()]
        if not fit or s.chance(30):
            s.add(before, "", Call([s.pick()]))
            fit = s.tensors[-1:]
        return Call([s.choose(fit)])

    return make


def binary(dtypes: Sequence[DType]) -> Callable[[Sketch], Call]:
    """Two operands that broadcast, either one first."""

    def make(s: Sketch) -> Call:
        x = s.pick(dtypes)
        y = s.partner(x)
        return Call([x, y] if s.chance(60) else [y, x])

    return make


def several(dtypes: Sequence[DType]) -> Callable[[Sketch], Call]:
    """One to four operands that broadcast."""

    def make(s: Sketch) -> Call:
        x = s.pick(dtypes)
        return Call([x, *(s.partner(x) for _ in range(s.integer(0, 3)))])

    return make


enter("Abs Neg", unary((*FLOATS, *SIGNED)))
enter("Sign", unary((*FLOATS, *SIGNED)), since=9)
enter("Ceil Floor Exp Reciprocal Sigmoid Tanh Softplus Softsign Sin Cos Tan Atan", unary())
enter("Sinh Cosh Asinh Erf", unary(), since=9)
enter("Asin Acos", within(-1, 1, "Sin"))
enter("Atanh", within(-0.99, 0.99, "Sigmoid"), since=9)
enter("Acosh", within(1, 1e4, "Exp"), since=9)
enter("Log Sqrt", within(0, 1e4, "Abs"))
enter("Round", unary(), since=11)
enter("HardSwish", unary(), since=14)
enter("Mish", unary(), since=18)
enter("Relu", unary((*FLOATS, *SIGNED)))
enter("IsNaN", unary(), since=9)
enter("IsInf", unary(detect_positive=(0, 1), detect_negative=(0, 1)), since=10)
enter("Identity", unary(ANY))
enter("Not", unary(_BOOL))
enter("BitwiseNot", unary(INTEGERS), since=18)
enter("LeakyRelu ThresholdedRelu", unary(alpha=_SMALL))
enter("Elu Celu", unary(alpha=(0.5, 1.0, 2.0)), since=12)
enter("Elu", unary(alpha=(0.5, 1.0, 2.0)), until=11)
enter("Selu", unary(alpha=(1.0, 1.5), gamma=(1.0, 2.0)))
enter("HardSigmoid", unary(alpha=(0.2, 0.5), beta=(0.25, 0.5)))
enter("Shrink", unary(bias=_SMALL, lambd=_SMALL), since=9)
enter("Gelu", unary(approximate=("none", "tanh")), since=20)
enter("Swish", unary(alpha=(0.5, 1.0, 1.75)), since=24, until=24)
enter("Gelu QuickGelu FastGelu", unary(), since=13, domain=MICROSOFT)

enter("Add Sub Mul", binary(NUMBERS))
enter("Add Sub Mul", binary((DType.F32,)))
enter("And Or Xor", binary(_BOOL))
enter("Equal", binary((*NUMBERS, DType.BOOL)), since=11)
enter("Greater Less", binary(NUMBERS), since=9)
enter("GreaterOrEqual LessOrEqual", binary(NUMBERS), since=12)
enter("BitwiseAnd BitwiseOr BitwiseXor", binary(INTEGERS), since=18)
enter("Sum Mean", several(FLOATS), since=8)
enter("Max Min", several(FLOATS), since=8)
enter("Max Min", several(NUMBERS), since=12)


@operator("Div")
@operator("Mod", since=10)
def _division(s: Sketch) -> Call:
    x = s.pick(NUMBERS)
    if x.dtype.is_float:
        return Call([x, s.partner(x)], {"fmod": 1} if s.opset >= 10 and s.chance(0) else {})
    # An integer divided by zero ends the process, and the smallest one by -1 too.
    shape = x.shape if s.chance(30) else ()
    return Call([x, s.number(x.dtype, shape, positive=True)])


@operator("Mod", since=10)
def _remainder(s: Sketch) -> Call:
    x = s.pick(NUMBERS)
    divisor = s.number(x.dtype, x.shape if s.chance(30) else (), positive=True)
    return Call([x, divisor], {"fmod": 1} if x.dtype.is_float or s.chance(40) else {})


@operator("Pow", since=12)
def _power(s: Sketch) -> Call:
    x = s.pick((DType.F32, DType.F64, DType.I32, DType.I64))
    if not x.dtype.is_float:
        exponent = s.fixed(np.array(s.integer(0, 3), x.dtype.numpy))
    elif s.chance(60):
        exponent = s.fixed(np.array(s.choose((2, 3, 0.5, -1, 0, 1, -0.5, 2.5)), s.choose((DType.F32, x.dtype)).numpy))
    else:
        exponent = s.partner(x)
    return Call([x, exponent])


@operator("BitShift", since=11)
def _shift(s: Sketch) -> Call:
    x = s.pick(UNSIGNED)
    return Call([x, s.number(x.dtype, (), positive=True)], {"direction": s.choose(("LEFT", "RIGHT"))})


@operator("PRelu", since=9)
def _prelu(s: Sketch) -> Call:
    x = s.pick((DType.F32, DType.F64))
    shape = tuple(e if s.chance(60) else 1 for e in x.shape)[s.integer(0, x.rank) :]
    return Call([x, s.number(x.dtype, shape)])


@operator("Clip", until=10)
def _clip_attributes(s: Sketch) -> Call:
    return Call([s.pick((DType.F32,))], {k: v for k, v in (("min", -0.5), ("max", 1.5)) if s.chance(70)})


@operator("Clip", since=11)
def _clip(s: Sketch) -> Call:
    x = s.pick(NUMBERS if s.opset >= 12 else (DType.F32,))
    bounds = [s.fixed(np.array(v, x.dtype.numpy)) if s.chance(75) else None for v in (s.integer(0, 2), s.integer(1, 5))]
    return Call([x, *bounds])


@operator("Cast", since=9)
def _cast(s: Sketch) -> Call:
    x = s.pick(ANY)
    targets = ANY if x.dtype not in FLOATS or (x.array >= 0).all() else (*FLOATS, *SIGNED, DType.BF16, DType.BOOL)
    wanted = targets if s.opset >= 13 else [t for t in targets if t is not DType.BF16]
    return Call([x], {"to": s.choose(wanted).onnx})


@operator("CastLike", since=15)
def _cast_like(s: Sketch) -> Call:
    x = s.pick((*FLOATS, *SIGNED, DType.BOOL))
    return Call([x, s.pick((*FLOATS, *SIGNED, DType.BOOL))])


@operator("Where", since=9)
def _where(s: Sketch) -> Call:
    x = s.pick(NUMBERS)
    condition = s.partner(x, _BOOL)
    y = s.partner(x)
    return Call([condition, x, y] if s.chance(50) else [condition, y, x])


@operator("Dropout", until=11)
def _dropout(s: Sketch) -> Call:
    return Call([s.pick()], {"ratio": 0.25}, 1 if s.opset < 10 or s.chance(70) else 2)


@operator("Dropout", since=12)
def _dropout_inputs(s: Sketch) -> Call:
    ratio = [s.fixed(np.array(0.25, np.float32))] if s.chance(50) else []
    return Call([s.pick(), *ratio], outputs=s.integer(1, 2))


@operator("BiasGelu", since=13, domain=MICROSOFT)
def _bias_gelu(s: Sketch) -> Call:
    x = s.pick((DType.F32,), ranks=range(1, 6))
    return Call([x, s.number(x.dtype, x.shape[-1:])])
