"""Elementwise primitives as standard ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.primitive import Elementwise
from korch_cli.core.types import DType

if TYPE_CHECKING:
    from korch_cli.emit.primitives import FunctionBody

_EVERYTHING_IS_EQUAL = 11
"""Before this opset Equal takes bool, i32 and i64 alone."""
_INTEGERS_ARE_ORDERED = 9
"""Before this opset Greater and Less take no integers."""
_EXTREMES_BROADCAST = 8
"""Before this opset the operands of Max and Min have one shape, and ONNX Runtime computes them in f32 alone."""
_ORDERS_HAVE_EQUALITY = 12
"""From this opset on GreaterOrEqual and LessOrEqual exist."""
_NUMBERS_ARE_EQUAL = 12
"""From this opset on Max, Min and Pow take integers."""
_FLOATS_HAVE_FLOORED_REMAINDERS = 28
"""From this opset on Mod takes floats without fmod."""
_SINCE = {
    **dict.fromkeys(("acosh", "asinh", "atanh", "cosh", "erf", "sign", "sinh", "where"), 9),
    "bit_and": 18,
    "bit_not": 18,
    "bit_or": 18,
    "bit_xor": 18,
    "fmod": 10,
    "mod": 10,
    "round": 11,
    "shift_left": 11,
    "shift_right": 11,
}
"""The opset that brought the operator of a function, where it is not a very old one."""
_SINGLE_ONLY = frozenset({"acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "erf", "sinh", "softplus", "tan"})
"""What ONNX Runtime computes in float32 alone."""
_NARROW = frozenset({DType.I8, DType.U8, DType.I16, DType.U16})
_OPERATORS = {
    "abs": "Abs",
    "acos": "Acos",
    "acosh": "Acosh",
    "add": "Add",
    "and": "And",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "bit_and": "BitwiseAnd",
    "bit_not": "BitwiseNot",
    "bit_or": "BitwiseOr",
    "bit_xor": "BitwiseXor",
    "ceil": "Ceil",
    "cos": "Cos",
    "cosh": "Cosh",
    "div": "Div",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "log": "Log",
    "mul": "Mul",
    "neg": "Neg",
    "not": "Not",
    "or": "Or",
    "reciprocal": "Reciprocal",
    "round": "Round",
    "sigmoid": "Sigmoid",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "softplus": "Softplus",
    "sqrt": "Sqrt",
    "sub": "Sub",
    "tan": "Tan",
    "tanh": "Tanh",
    "where": "Where",
    "xor": "Xor",
}


def elementwise(body: FunctionBody, value: Value, args: list[str], out: str) -> None:
    """Add the nodes of an elementwise primitive.

    Raises:
        Refusal: standard operators of this opset cannot say it.
    """
    assert isinstance(value.op, Elementwise)
    function = value.op.function
    operand = body.graph.args(value)[-1].type.dtype
    if function == "cast":
        body.node("Cast", args, out, to=value.type.dtype.onnx)
        return
    broadcasts = any(a.type.shape != value.type.shape for a in body.graph.args(value))
    if broadcasts and function in ("max", "min") and body.opset < _EXTREMES_BROADCAST:
        raise Refusal(f"Opset {body.opset} has no {function} that broadcasts.")
    held = held_in(function, operand, body.opset)
    if held is operand:
        _function(body, function, operand, args, out)
        return
    # The condition of where, and the result of a comparison, are bool whatever they are about.
    first = 1 if function == "where" else 0
    wide = [*args[:first], *(body.cast(a, held, f"{out}_arg{i}") for i, a in enumerate(args[first:]))]
    if value.type.dtype is not operand:
        _function(body, function, held, wide, out)
        return
    _function(body, function, held, wide, f"{out}_wide")
    body.cast(f"{out}_wide", operand, out)


def held_in(function: str, dtype: DType, opset: int) -> DType:
    """Return the type to compute in: ONNX Runtime has no kernels for some types, where a wider one gives the same.

    Integer arithmetic that wraps gives the same low bits in a wider type, and the 16-bit float is rounded once for each
    primitive. `function` is an elementwise function, "reduce", "pad" or "broadcast".

    Raises:
        Refusal: there is no such type.
    """
    if dtype is DType.BF16:
        return DType.F32
    if function in ("shift_left", "shift_right"):
        return DType.U32 if dtype in (DType.U8, DType.U16) else dtype
    if dtype in _NARROW:
        return DType.I32
    if dtype is DType.BOOL and function == "where":
        return DType.U8
    if dtype is DType.BOOL and function in ("greater", "less", "greater_equal", "less_equal", "reduce", "pad"):
        return DType.I32
    wide = function in ("reduce", "where", "pow", "neg") or (function in ("max", "min") and opset < _NUMBERS_ARE_EQUAL)
    if dtype is DType.U32 and wide:
        return DType.I64
    if dtype is DType.U64 and wide:
        raise Refusal(f"ONNX Runtime has no {function} for u64.")
    return dtype


def _function(body: FunctionBody, function: str, dtype: DType, args: list[str], out: str) -> None:
    """Add the nodes of a function on operands of a type that ONNX Runtime computes with."""
    if dtype is DType.F64 and function in _SINGLE_ONLY:
        raise Refusal(f"ONNX Runtime has no {function} for f64.")
    if body.opset < _SINCE.get(function, 0):
        raise Refusal(f"Opset {body.opset} has no {function}.")
    rule = _RULES.get(function)
    if rule is not None:
        rule(body, function, dtype, args, out)
    elif function in _OPERATORS:
        body.node(_OPERATORS[function], args, out)
    else:
        raise Refusal(f"The function {function} has no operator.")


def _equal(body: FunctionBody, _function: str, dtype: DType, args: list[str], out: str) -> None:
    if dtype not in (DType.BOOL, DType.I32, DType.I64) and body.opset < _EVERYTHING_IS_EQUAL:
        raise Refusal(f"Opset {body.opset} has no equality of {dtype.text}.")
    body.node("Equal", args, out)


def _ordered_or_equal(body: FunctionBody, function: str, dtype: DType, args: list[str], out: str) -> None:
    if body.opset >= _ORDERS_HAVE_EQUALITY:
        body.node("GreaterOrEqual" if function == "greater_equal" else "LessOrEqual", args, out)
        return
    # Not the negation of the opposite, which differs for NaN.
    _ordered(body, function.removesuffix("_equal"), dtype, args, f"{out}_strict")
    _equal(body, "equal", dtype, args, f"{out}_equal")
    body.node("Or", [f"{out}_strict", f"{out}_equal"], out)


def _ordered(body: FunctionBody, function: str, dtype: DType, args: list[str], out: str) -> None:
    if not dtype.is_float and body.opset < _INTEGERS_ARE_ORDERED:
        raise Refusal(f"Opset {body.opset} does not order {dtype.text}.")
    body.node(function.capitalize(), args, out)


def _extreme(body: FunctionBody, function: str, dtype: DType, args: list[str], out: str) -> None:
    if dtype is DType.BOOL:
        body.node("Or" if function == "max" else "And", args, out)
    elif dtype.is_integer and body.opset < _NUMBERS_ARE_EQUAL:
        _ordered(body, "greater" if function == "max" else "less", dtype, args, f"{out}_first")
        body.node("Where", [f"{out}_first", *args], out)
    elif dtype is not DType.F32 and body.opset < _EXTREMES_BROADCAST:
        raise Refusal(f"ONNX Runtime has no {function} of {dtype.text} at opset {body.opset}.")
    else:
        body.node("Max" if function == "max" else "Min", args, out)


def _pow(body: FunctionBody, _function: str, dtype: DType, args: list[str], out: str) -> None:
    if dtype.is_integer and body.opset < _NUMBERS_ARE_EQUAL:
        raise Refusal(f"Opset {body.opset} has no power of integers.")
    body.node("Pow", args, out)


def _remainder(body: FunctionBody, function: str, dtype: DType, args: list[str], out: str) -> None:
    if function == "mod" and dtype.is_float and body.opset < _FLOATS_HAVE_FLOORED_REMAINDERS:
        raise Refusal(f"Opset {body.opset} has no remainder of floats with the divisor's sign.")
    body.node("Mod", args, out, fmod=int(function == "fmod"))


def _shift(body: FunctionBody, function: str, _dtype: DType, args: list[str], out: str) -> None:
    body.node("BitShift", args, out, direction=function.removeprefix("shift_").upper())


_Rule = Callable[["FunctionBody", str, DType, list[str], str], None]
_RULES: dict[str, _Rule] = {
    "equal": _equal,
    "fmod": _remainder,
    "greater": _ordered,
    "greater_equal": _ordered_or_equal,
    "less": _ordered,
    "less_equal": _ordered_or_equal,
    "max": _extreme,
    "min": _extreme,
    "mod": _remainder,
    "pow": _pow,
    "shift_left": _shift,
    "shift_right": _shift,
}
