"""Elementwise arithmetic, comparison, logic and selection."""

from __future__ import annotations

from functools import reduce

import numpy as np

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.primitive import Constant
from korch_cli.core.types import DType
from korch_cli.fission.build import Builder
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView

_CLIP_HAS_TYPES = 12
_WHERE = 9
"""Before this opset no function of standard operators can choose."""
_FUNCTIONS = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Add": "add",
    "And": "and",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Div": "div",
    "Equal": "equal",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Log": "log",
    "Max": "max",
    "Mean": "add",
    "Min": "min",
    "Mul": "mul",
    "Neg": "neg",
    "Not": "not",
    "Or": "or",
    "Reciprocal": "reciprocal",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sin": "sin",
    "Sinh": "sinh",
    "Softplus": "softplus",
    "Sqrt": "sqrt",
    "Sub": "sub",
    "Sum": "add",
    "Tan": "tan",
    "Tanh": "tanh",
    "Xor": "xor",
}


@fission("Abs", since=6, also=(13,))
@fission("Acos", since=7, also=(22,))
@fission("Acosh", since=9, also=(22,))
@fission("Asin", since=7, also=(22,))
@fission("Asinh", since=9, also=(22,))
@fission("Atan", since=7, also=(22,))
@fission("Atanh", since=9, also=(22,))
@fission("Ceil", since=6, also=(13,))
@fission("Cos", since=7, also=(22,))
@fission("Cosh", since=9, also=(22,))
@fission("Erf", since=9, also=(13,))
@fission("Exp", since=6, also=(13,))
@fission("Floor", since=6, also=(13,))
@fission("Log", since=6, also=(13,))
@fission("Neg", since=6, also=(13,))
@fission("Not", since=1)
@fission("Reciprocal", since=6, also=(13,))
@fission("Round", since=11, also=(22,))
@fission("Sigmoid", since=6, also=(13,))
@fission("Sin", since=7, also=(22,))
@fission("Sinh", since=9, also=(22,))
@fission("Softplus", since=1, also=(22,))
@fission("Sqrt", since=6, also=(13,))
@fission("Tan", since=7, also=(22,))
@fission("Tanh", since=6, also=(13,))
def unary(op: OperatorView, build: Builder) -> Value:
    """Apply the function of the same meaning."""
    return build.elementwise(_FUNCTIONS[op.op_type], op.input(0))


@fission("Sign", since=9, also=(13,))
def sign(op: OperatorView, build: Builder) -> Value:
    """Return -1, 0 or 1; of NaN it is NaN, but in float16 ONNX Runtime makes it zero."""
    x = op.input(0)
    if x.type.dtype is not DType.F16:
        return build.elementwise("sign", x)
    above, below = (build.cast(build.elementwise(order, x, 0), DType.F16) for order in ("greater", "less"))
    return build.sub(above, below)


@fission("Add", since=7, also=(13, 14))
@fission("And", since=7)
@fission("Div", since=7, also=(13, 14))
@fission("Equal", since=7, also=(11, 13, 19))
@fission("Greater", since=7, also=(9, 13))
@fission("GreaterOrEqual", since=12, also=(16,))
@fission("Less", since=7, also=(9, 13))
@fission("LessOrEqual", since=12, also=(16,))
@fission("Mul", since=7, also=(13, 14))
@fission("Or", since=7)
@fission("Sub", since=7, also=(13, 14))
@fission("Xor", since=7)
def binary(op: OperatorView, build: Builder) -> Value:
    """Apply the function of the same meaning; operands broadcast since version 7."""
    return build.elementwise(_FUNCTIONS[op.op_type], op.input(0), op.input(1))


@fission("Max", since=6, also=(8, 12, 13))
@fission("Min", since=6, also=(8, 12, 13))
@fission("Sum", since=6, also=(8, 13))
def variadic(op: OperatorView, build: Builder) -> Value:
    """Combine the operands from left to right; before version 8 they have one shape."""
    return reduce(lambda x, y: build.elementwise(_FUNCTIONS[op.op_type], x, y), op.inputs())


@fission("Mean", since=6, also=(8, 13))
def mean(op: OperatorView, build: Builder) -> Value:
    """Divide the sum of the operands by their number."""
    operands = op.inputs()
    if len(operands) == 1:
        return operands[0]
    total = reduce(build.add, map(build.wide, operands))
    return build.cast(build.div(total, len(operands)), operands[0].type.dtype)


@fission("Cast", since=6, also=(9, 13, 19, 21, 23, 24, 25, 28))
def cast(op: OperatorView, build: Builder) -> Value:
    """Convert element types; `saturate` and `round_mode` concern only types that korch has not."""
    wanted = DType.from_onnx(op.integer("to", 0))
    if wanted is None:
        raise Refusal("it casts to an element type that is not supported")
    op.ignore("saturate", "round_mode")
    return build.cast(op.input(0), wanted)


@fission("CastLike", since=15, also=(19, 21, 23, 24, 25))
def cast_like(op: OperatorView, build: Builder) -> Value:
    """Convert to the element type of the second operand, whose elements play no part."""
    op.ignore_input(1)
    op.ignore("saturate", "round_mode")
    return build.cast(op.input(0), op.output(0).dtype)


@fission("Where", since=9, also=(16,))
def where(op: OperatorView, build: Builder) -> Value:
    """Choose element by element."""
    return build.where(op.input(0), op.input(1), op.input(2))


@fission("IsNaN", since=9, also=(13, 20))
def is_nan(op: OperatorView, build: Builder) -> Value:
    """Only NaN differs from itself."""
    x = op.input(0)
    return build.elementwise("not", build.elementwise("equal", x, x))


@fission("IsInf", since=10, also=(20,))
def is_inf(op: OperatorView, build: Builder) -> Value:
    """Compare with the largest numbers, beyond which are the infinities; nothing is less than itself."""
    x = op.input(0)
    positive, negative = op.integer("detect_positive", 1), op.integer("detect_negative", 1)
    if not positive and not negative:
        return build.elementwise("less", x, x)
    largest = x.type.dtype.largest
    if not positive:
        return build.elementwise("less", x, -largest)
    return build.elementwise("greater", build.elementwise("abs", x) if negative else x, largest)


@fission("Pow", since=7, also=(12, 13, 15))
def power(op: OperatorView, build: Builder) -> Value:
    """Raise to a power; small constant exponents become products or roots.

    Refuses one exponent for all that is not known, of integers: what overflows differs between products and powers.
    """
    x, exponent = op.input(0), op.input(1)
    known = exponent.op if isinstance(exponent.op, Constant) else None
    single = exponent.type.elements == 1
    if single and known is None and x.type.dtype.is_integer:
        raise Refusal("what a power of integers overflows to depends on the exponent")
    result = _literal_power(build, op.version, x, known.array().item()) if single and known is not None else None
    if result is None:
        held = _power_type(x.type.dtype, exponent)
        return build.cast(build.elementwise("pow", build.cast(x, held), build.cast(exponent, held)), x.type.dtype)
    # An exponent [1, 1, 1] may give the result more axes than the base has.
    rank = max(x.type.rank, exponent.type.rank)
    return build.reshape(result, (1,) * (rank - x.type.rank) + x.type.shape)


def _power_type(dtype: DType, exponent: Value) -> DType:
    """Return the type to compute powers of `dtype` in: the one that also holds the exponents."""
    other = exponent.type.dtype
    if other is dtype or (dtype.is_integer and other.is_integer):
        return dtype
    if isinstance(exponent.op, Constant) and dtype.is_float:
        stored = exponent.op.array()
        if np.array_equal(stored.astype(dtype.numpy).astype(stored.dtype), stored):
            return dtype
    narrow = dtype.is_float and other in (DType.F16, DType.BF16, DType.I8, DType.U8, DType.I16, DType.U16)
    return DType.F32 if narrow and dtype is not DType.F64 else DType.F64


def _literal_power(build: Builder, version: int, x: Value, exponent: float) -> Value | None:
    if exponent == 1:
        return x
    if exponent == 2:
        return build.mul(x, x)
    if exponent == 3:
        return build.mul(build.mul(x, x), x)
    if exponent == 0.5 and x.type.dtype.is_float and version >= _WHERE:
        # The power of -inf is inf, the root of it is NaN.
        lowest = build.elementwise("less", x, -x.type.dtype.largest)
        return build.elementwise("sqrt", build.where(lowest, float("inf"), x))
    return None


@fission("Clip", since=6, until=10)
def clip_attributes(op: OperatorView, build: Builder) -> Value:
    """Limit to bounds given as attributes."""
    x = op.input(0)
    bounds = (op.number(name, 0) if op.has_attribute(name) else None for name in ("min", "max"))
    low, high = (None if bound is None else build.literal(bound, x.type.dtype) for bound in bounds)
    return _clipped(build, op.version, x, low, high)


@fission("Clip", since=11, also=(12, 13))
def clip(op: OperatorView, build: Builder) -> Value:
    """Limit to scalar bounds; where they cross, the upper one wins."""
    x, low, high = op.input(0), op.optional(1), op.optional(2)
    return _clipped(build, op.version, x, *(None if b is None else build.reshape(b, ()) for b in (low, high)))


def _clipped(build: Builder, version: int, x: Value, low: Value | None, high: Value | None) -> Value:
    """Limit x; an absent bound is the largest finite number, and one that is NaN is none.

    Before opset 12 ONNX Runtime limits float16 as float32, whose largest number is an infinity there.
    """
    if x.type.dtype.is_float and not (x.type.dtype is DType.F16 and version < _CLIP_HAS_TYPES):
        largest = x.type.dtype.largest
        low = build.literal(-largest, x.type.dtype) if low is None else low
        high = build.literal(largest, x.type.dtype) if high is None else high
    return _bounded(build, "min", _bounded(build, "max", x, low), high)


def _bounded(build: Builder, function: str, x: Value, bound: Value | None) -> Value:
    if bound is None:
        return x
    if isinstance(bound.op, Constant):
        number = bound.op.array().item()
        return build.elementwise(function, x, bound) if number == number else x
    beyond = build.elementwise("less" if function == "max" else "greater", x, bound)
    return build.where(beyond, bound, x)
