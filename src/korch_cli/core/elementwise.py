"""The closed set of elementwise functions, with what each one means on numpy arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from korch_cli.core.types import Array, DType


@dataclass(frozen=True, slots=True)
class ElementwiseFunction:
    """One elementwise function.

    Attributes:
        arity: number of operands.
        apply: the meaning, on numpy arrays that broadcast; also the interpreter's.
        flops: cost of one element in units of a float addition, for bounds and chunk sizes.
        result: the result's element type where it is not the operands' own.
    """

    arity: int
    apply: Callable[..., Array]
    flops: int = 1
    result: DType | None = None


def _erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[x.dtype])(x))


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)


def _softplus(x: Array) -> Array:
    return (np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))).astype(x.dtype)


def _float_power(x: Array, y: Array) -> Array:
    """Powers of integers as ONNX Runtime has them: computed in float64, then truncated."""
    if np.issubdtype(x.dtype, np.integer):
        return np.power(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)
    # For a single exponent numpy may take a square root, which is NaN where the power of -inf is inf.
    exponents = np.broadcast_to(y, np.broadcast_shapes(x.shape, y.shape, (1,))).copy()
    return np.asarray(np.power(x, exponents)).reshape(np.broadcast_shapes(x.shape, y.shape))


def _floor_remainder(x: Array, y: Array) -> Array:
    return np.asarray(np.mod(x, y))


def _shifted(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Shifts of unsigned integers; by as many bits as there are, or more, nothing is left."""

    def shift(x: Array, y: Array) -> Array:
        bits = 8 * x.dtype.itemsize
        return np.where(y >= bits, 0, function(x, np.minimum(y, bits - 1))).astype(x.dtype)

    return shift


def _divide(x: Array, y: Array) -> Array:
    """Division as ONNX Div: integers truncate towards zero."""
    if np.issubdtype(x.dtype, np.integer):
        # Without the remainder, which has the dividend's sign, nothing is left to round; no step overflows.
        return np.asarray(np.floor_divide(x - np.fmod(x, y), y))
    return np.asarray(x / y)


FUNCTIONS: dict[str, ElementwiseFunction] = {
    "abs": ElementwiseFunction(1, np.abs),
    "acos": ElementwiseFunction(1, np.arccos, flops=40),
    "acosh": ElementwiseFunction(1, np.arccosh, flops=40),
    "add": ElementwiseFunction(2, np.add),
    "and": ElementwiseFunction(2, np.logical_and, result=DType.BOOL),
    "asin": ElementwiseFunction(1, np.arcsin, flops=40),
    "asinh": ElementwiseFunction(1, np.arcsinh, flops=40),
    "atan": ElementwiseFunction(1, np.arctan, flops=40),
    "atanh": ElementwiseFunction(1, np.arctanh, flops=40),
    "bit_and": ElementwiseFunction(2, np.bitwise_and),
    "bit_not": ElementwiseFunction(1, np.bitwise_not),
    "bit_or": ElementwiseFunction(2, np.bitwise_or),
    "bit_xor": ElementwiseFunction(2, np.bitwise_xor),
    "cast": ElementwiseFunction(1, lambda x: x),
    "ceil": ElementwiseFunction(1, np.ceil),
    "cos": ElementwiseFunction(1, np.cos, flops=20),
    "cosh": ElementwiseFunction(1, np.cosh, flops=40),
    "div": ElementwiseFunction(2, _divide, flops=4),
    "equal": ElementwiseFunction(2, np.equal, result=DType.BOOL),
    "erf": ElementwiseFunction(1, _erf, flops=20),
    "exp": ElementwiseFunction(1, np.exp, flops=12),
    "floor": ElementwiseFunction(1, np.floor),
    "fmod": ElementwiseFunction(2, np.fmod, flops=20),
    "greater": ElementwiseFunction(2, np.greater, result=DType.BOOL),
    "greater_equal": ElementwiseFunction(2, np.greater_equal, result=DType.BOOL),
    "less": ElementwiseFunction(2, np.less, result=DType.BOOL),
    "less_equal": ElementwiseFunction(2, np.less_equal, result=DType.BOOL),
    "log": ElementwiseFunction(1, np.log, flops=15),
    "max": ElementwiseFunction(2, np.maximum),
    "min": ElementwiseFunction(2, np.minimum),
    "mod": ElementwiseFunction(2, _floor_remainder, flops=20),
    "mul": ElementwiseFunction(2, np.multiply),
    "neg": ElementwiseFunction(1, np.negative),
    "not": ElementwiseFunction(1, np.logical_not, result=DType.BOOL),
    "or": ElementwiseFunction(2, np.logical_or, result=DType.BOOL),
    "pow": ElementwiseFunction(2, _float_power, flops=40),
    "reciprocal": ElementwiseFunction(1, lambda x: np.asarray(1 / x), flops=4),
    "round": ElementwiseFunction(1, np.rint),
    "shift_left": ElementwiseFunction(2, _shifted(np.left_shift)),
    "shift_right": ElementwiseFunction(2, _shifted(np.right_shift)),
    "sigmoid": ElementwiseFunction(1, _sigmoid, flops=18),
    "sign": ElementwiseFunction(1, np.sign),
    "sin": ElementwiseFunction(1, np.sin, flops=20),
    "sinh": ElementwiseFunction(1, np.sinh, flops=40),
    "softplus": ElementwiseFunction(1, _softplus, flops=30),
    "sqrt": ElementwiseFunction(1, np.sqrt, flops=5),
    "sub": ElementwiseFunction(2, np.subtract),
    "tan": ElementwiseFunction(1, np.tan, flops=40),
    "tanh": ElementwiseFunction(1, np.tanh, flops=20),
    "where": ElementwiseFunction(3, np.where),
    "xor": ElementwiseFunction(2, np.logical_xor, result=DType.BOOL),
}
"""By name. `max` and `min` give NaN when either operand is NaN; `round` is to even; `where` takes its condition first;
`sigmoid` and `softplus` do not overflow; `mod` has the sign of the divisor and `fmod` that of the dividend."""
