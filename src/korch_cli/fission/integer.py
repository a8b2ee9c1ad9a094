"""Bits, and remainders."""

from __future__ import annotations

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.types import DType
from korch_cli.fission.build import Builder
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView

_UNSIGNED = {DType.I8: DType.U8, DType.I16: DType.U16, DType.I32: DType.U32, DType.I64: DType.U64}
_FUNCTIONS = {"BitwiseAnd": "bit_and", "BitwiseOr": "bit_or", "BitwiseXor": "bit_xor"}


@fission("BitwiseNot", since=18)
def bitwise_not(op: OperatorView, build: Builder) -> Value:
    """Flip every bit."""
    return build.elementwise("bit_not", op.input(0))


@fission("BitwiseAnd", since=18)
@fission("BitwiseOr", since=18)
@fission("BitwiseXor", since=18)
def bitwise(op: OperatorView, build: Builder) -> Value:
    """Combine the bits of both operands, which broadcast."""
    return build.elementwise(_FUNCTIONS[op.op_type], op.input(0), op.input(1))


@fission("BitShift", since=11, also=(28,))
def bit_shift(op: OperatorView, build: Builder) -> Value:
    """Shift; by as many bits as there are, or more, or less than none, only the sign of what goes right is left.

    Signed integers came with opset 28. They shift as unsigned ones of the same bits, negative ones to the right with
    all bits flipped before and after.
    """
    x, y, direction = op.input(0), op.input(1), op.text("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise Refusal(f"the direction {direction!r} is not known")
    function = "shift_left" if direction == "LEFT" else "shift_right"
    signed = x.type.dtype
    plain = _UNSIGNED.get(signed)
    if plain is None:
        return build.elementwise(function, x, y)
    if direction == "LEFT":
        shifted = build.elementwise(function, build.cast(x, plain), build.cast(y, plain))
        return build.cast(shifted, signed)
    flips = build.where(build.elementwise("less", x, 0), build.literal(-1, signed), build.literal(0, signed))
    folded = build.cast(build.elementwise("bit_xor", x, flips), plain)
    shifted = build.cast(build.elementwise(function, folded, build.cast(y, plain)), signed)
    return build.elementwise("bit_xor", shifted, flips)


@fission("Mod", since=10, until=27, also=(13,))
def modulo(op: OperatorView, build: Builder) -> Value:
    """Return the remainder with the sign of the divisor, which only integers have, or with `fmod` of the dividend."""
    if not op.integer("fmod", 0) and op.input(0).type.dtype.is_float:
        raise Refusal("floats have no remainder with the sign of the divisor before opset 28")
    return _remainder(op, build)


@fission("Mod", since=28)
def modulo_of_numbers(op: OperatorView, build: Builder) -> Value:
    """Return the remainder with the sign of the divisor, or with `fmod` of the dividend."""
    return _remainder(op, build)


def _remainder(op: OperatorView, build: Builder) -> Value:
    return build.elementwise("fmod" if op.integer("fmod", 0) else "mod", op.input(0), op.input(1))
