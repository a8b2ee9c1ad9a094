"""Every elementwise function against numbers by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from korch_cli.core.elementwise import FUNCTIONS
from korch_cli.core.interpreter import apply
from korch_cli.core.primitive import Elementwise, Op
from korch_cli.core.types import Array, DType, TensorType


def f32(*shape: int) -> TensorType:
    return TensorType(DType.F32, shape)


def numbered(*shape: int) -> Array:
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


def result(op: Op, typed: TensorType, *args: Array, widen: bool = False) -> Array:
    found = apply(op, args, typed, widen=widen)
    assert found.shape == typed.shape
    assert found.dtype == (np.float64 if widen and typed.dtype.is_float else typed.dtype.numpy)
    return found


_X = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], np.float32)
_POINTS: dict[str, list[float]] = {
    "abs": [2.5, 1.5, 0.5, 0.5, 1.5, 2.5],
    "ceil": [-2, -1, 0, 1, 2, 3],
    "floor": [-3, -2, -1, 0, 1, 2],
    "neg": [2.5, 1.5, 0.5, -0.5, -1.5, -2.5],
    "reciprocal": [-0.4, -1 / 1.5, -2, 2, 1 / 1.5, 0.4],
    "round": [-2, -2, 0, 0, 2, 2],
    "sign": [-1, -1, -1, 1, 1, 1],
    "erf": [-0.999593048, -0.966105146, -0.520499878, 0.520499878, 0.966105146, 0.999593048],
    "sigmoid": [0.0758581800, 0.182425524, 0.377540669, 0.622459331, 0.817574476, 0.924141820],
    "softplus": [0.0788897, 0.2014133, 0.4740770, 0.9740770, 1.7014133, 2.5788897],
    "tanh": [-0.986614298, -0.905148254, -0.462117157, 0.462117157, 0.905148254, 0.986614298],
    "exp": [0.0820849986, 0.223130160, 0.606530660, 1.64872127, 4.48168907, 12.1824940],
    "sin": [-0.598472144, -0.997494987, -0.479425539, 0.479425539, 0.997494987, 0.598472144],
    "cos": [-0.801143616, 0.0707372017, 0.877582562, 0.877582562, 0.0707372017, -0.801143616],
}


_INSIDE = {"acos": 0.3, "acosh": 1.7, "asin": -0.4, "asinh": -2.0, "atan": 3.0, "atanh": 0.6, "cosh": 1.1, "sinh": -0.7}


@pytest.mark.parametrize("function", [*_INSIDE, "tan"])
def test_functions_of_angles(function: str) -> None:
    x = _INSIDE.get(function, 0.9)
    found = result(Elementwise(function), f32(1), np.array([x], np.float32))
    np.testing.assert_allclose(found, [getattr(math, function)(x)], rtol=1e-6)


def test_remainders() -> None:
    a, b = np.array([-7, 7, -7, 7], np.int32), np.array([3, -3, -3, 3], np.int32)
    typed = TensorType(DType.I32, (4,))
    assert result(Elementwise("mod"), typed, a, b).tolist() == [2, -2, -1, 1]
    assert result(Elementwise("fmod"), typed, a, b).tolist() == [-1, 1, -1, 1]
    x, y = np.array([-5.5, 5.5], np.float32), np.array([2, 2], np.float32)
    assert result(Elementwise("fmod"), f32(2), x, y).tolist() == [-1.5, 1.5]


def test_bits() -> None:
    a, b = np.array([0b1100, 0b1010], np.uint8), np.array([0b1010, 0b0011], np.uint8)
    typed = TensorType(DType.U8, (2,))
    assert result(Elementwise("bit_and"), typed, a, b).tolist() == [0b1000, 0b0010]
    assert result(Elementwise("bit_or"), typed, a, b).tolist() == [0b1110, 0b1011]
    assert result(Elementwise("bit_xor"), typed, a, b).tolist() == [0b0110, 0b1001]
    assert result(Elementwise("bit_not"), typed, a).tolist() == [0b11110011, 0b11110101]
    places = np.array([3, 9], np.uint8)
    assert result(Elementwise("shift_left"), typed, a, places).tolist() == [0b1100000, 0]
    assert result(Elementwise("shift_right"), typed, a, places).tolist() == [0b1, 0]


@pytest.mark.parametrize("function", sorted(_POINTS))
def test_functions_of_one_operand(function: str) -> None:
    np.testing.assert_allclose(result(Elementwise(function), f32(6), _X), _POINTS[function], rtol=1e-6)


def test_roots_and_logarithms_outside_of_their_domain() -> None:
    x = np.array([4, 0, -1, np.inf], np.float32)
    np.testing.assert_array_equal(result(Elementwise("sqrt"), f32(4), x), [2, 0, np.nan, np.inf])
    np.testing.assert_allclose(result(Elementwise("log"), f32(4), x), [np.log(4), -np.inf, np.nan, np.inf], rtol=1e-6)


_A, _B = np.array([-7, 7, 2, np.nan], np.float32), np.array([2, -2, 2, 1], np.float32)
_PAIRS: dict[str, list[float]] = {
    "add": [-5, 5, 4, np.nan],
    "sub": [-9, 9, 0, np.nan],
    "mul": [-14, -14, 4, np.nan],
    "div": [-3.5, -3.5, 1, np.nan],
    "pow": [49, 1 / 49, 4, np.nan],
    "max": [2, 7, 2, np.nan],
    "min": [-7, -2, 2, np.nan],
    "equal": [False, False, True, False],
    "greater": [False, True, False, False],
    "greater_equal": [False, True, True, False],
    "less": [True, False, False, False],
    "less_equal": [True, False, True, False],
}


@pytest.mark.parametrize("function", sorted(_PAIRS))
def test_functions_of_two_operands(function: str) -> None:
    dtype = FUNCTIONS[function].result or DType.F32
    found = result(Elementwise(function), TensorType(dtype, (4,)), _A, _B)
    np.testing.assert_allclose(found.astype(np.float64), _PAIRS[function], rtol=1e-6)


def test_logic() -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    typed = TensorType(DType.BOOL, (4,))
    assert result(Elementwise("and"), typed, a, b).tolist() == [False, False, False, True]
    assert result(Elementwise("or"), typed, a, b).tolist() == [False, True, True, True]
    assert result(Elementwise("xor"), typed, a, b).tolist() == [False, True, True, False]
    assert result(Elementwise("not"), typed, a).tolist() == [True, True, False, False]
    assert result(Elementwise("where"), f32(4), a, numbered(4), -numbered(4)).tolist() == [0, -1, 2, 3]


def test_every_function_is_tested_here() -> None:
    others = {"and", "or", "xor", "not", "where", "sqrt", "log", "cast"}
    others |= {*_INSIDE, "tan", "mod", "fmod"}
    others |= {"bit_and", "bit_or", "bit_xor", "bit_not", "shift_left", "shift_right"}
    assert {*_POINTS, *_PAIRS, *others} == set(FUNCTIONS)


def test_integers_are_divided_towards_zero() -> None:
    a, b = np.array([-7, 7, -7, 7, 6]), np.array([2, -2, -2, 2, 3])
    assert result(Elementwise("div"), TensorType(DType.I64, (5,)), a, b).tolist() == [-3, -3, 3, 3, 2]


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype.is_integer], ids=lambda d: d.text)
@pytest.mark.parametrize("function", ["div", "mod", "fmod"])
def test_the_ends_of_integer_types_are_divided_like_other_numbers(function: str, dtype: DType) -> None:
    ends = np.iinfo(dtype.numpy)
    numbers = sorted({int(ends.min), int(ends.min) + 1, -7, -1, 0, 1, 6, 7, int(ends.max)})
    numbers = [n for n in numbers if ends.min <= n <= ends.max]
    # The smallest number divided by -1 does not fit.
    pairs = [(x, y) for x in numbers for y in numbers if y and (x, y) != (ends.min, -1)]
    meanings = {
        "div": lambda x, y: abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1),
        "mod": lambda x, y: x % y,
        "fmod": lambda x, y: abs(x) % abs(y) * (1 if x >= 0 else -1),
    }
    left, right = (np.array(side, dtype.numpy) for side in zip(*pairs, strict=True))
    found = result(Elementwise(function), TensorType(dtype, left.shape), left, right)
    assert found.tolist() == [meanings[function](x, y) for x, y in pairs]
