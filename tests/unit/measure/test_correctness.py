from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from korch_cli.core.types import DType, TensorType
from korch_cli.measure.correctness import difference, draw_operand

RTOL, ATOL = 1e-3, 1e-4
FLOATS = np.array([1.0, np.nan, np.inf, -np.inf, 0.0], np.float32)


@pytest.mark.parametrize("dtype", [t for t in DType if t is not DType.STRING])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (4, 5, 6)])
def test_operands_have_their_type(dtype: DType, shape: tuple[int, ...]) -> None:
    drawn = draw_operand(TensorType(dtype, shape), np.random.default_rng(0))
    assert drawn.shape == shape
    assert drawn.dtype == dtype.numpy
    if dtype.is_integer:
        assert (drawn >= 0).all()


def test_operands_hold_special_values_and_are_reproducible() -> None:
    typed = TensorType(DType.F32, (40, 50))
    first, second = (draw_operand(typed, np.random.default_rng(3)) for _ in range(2))
    assert (first == second).all()
    assert {0.0, 10.0, -10.0} <= set(first.ravel().tolist())
    assert len(np.unique(first)) > 1900


def test_a_small_operand_has_no_special_values() -> None:
    for seed in range(50):
        drawn = draw_operand(TensorType(DType.F32, (8,)), np.random.default_rng(seed))
        assert not set(drawn.tolist()) & {0.0, 10.0, -10.0, 1.0, -1.0}


def test_equal_outputs_have_no_difference() -> None:
    assert difference(FLOATS, FLOATS.copy(), RTOL, ATOL) is None
    assert difference(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), RTOL, ATOL) is None
    assert difference(np.array([True, False]), np.array([True, False]), RTOL, ATOL) is None


@pytest.mark.parametrize(
    ("place", "other"), [(0, math.nan), (0, math.inf), (1, 0.0), (2, math.nan), (2, -math.inf), (2, 1e38), (3, -1e38)]
)
def test_nan_and_infinities_equal_only_themselves(place: int, other: float) -> None:
    got = FLOATS.copy()
    got[place] = other
    sentence = difference(got, FLOATS, RTOL, ATOL)
    assert sentence is not None
    assert sentence.endswith(f"at [{place}]")


def test_the_worst_element_is_named() -> None:
    got = np.ones((2, 3), np.float32)
    got[0, 1], got[1, 2] = 1.1, 1.5
    assert difference(got, np.ones((2, 3), np.float32), RTOL, ATOL) == (
        "It computes something else: 1.5 instead of 1.0 at [1, 2]"
    )


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_what_is_no_float_is_exact(dtype: type) -> None:
    assert difference(np.array([0, 1], dtype), np.array([0, 0], dtype), RTOL, ATOL) is not None


def test_large_integers_are_compared_exactly() -> None:
    assert difference(np.array([2**60 + 1]), np.array([2**60]), RTOL, ATOL) is not None


def test_other_types_and_shapes_are_different() -> None:
    four = np.zeros(4, np.float32)
    assert difference(four.reshape(2, 2), four, RTOL, ATOL) == "It returns float32[2, 2]: expected was float32[4]"
    assert difference(four.astype(np.float64), four, RTOL, ATOL) == "It returns float64[4]: expected was float32[4]"


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    expected=st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=6),
    error=st.floats(-1.0, 1.0),
    data=st.data(),
)
def test_the_tolerance_is_that_of_numpy(expected: list[float], error: float, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(expected) - 1))
    right = np.array(expected)
    got = right.copy()
    got[place] += error
    atol = ATOL * max(1.0, np.abs(right).max())
    close = np.isclose(got, right, rtol=RTOL, atol=atol).all()
    assert (difference(got, right, RTOL, ATOL) is None) == close
