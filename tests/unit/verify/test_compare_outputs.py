from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from korch_cli.core.types import Array, DType
from korch_cli.verify.compare import compare, tolerances

INF, NAN = float("inf"), float("nan")


def passes(a: Array, b: Array, rtol: float = 1e-4, atol: float = 1e-5) -> bool:
    return compare("y", a, b, rtol=rtol, atol=atol).excess <= 1.0


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (f32(1.0), f32(1.00005), True),
        (f32(1.0), f32(1.0002), False),
        (f32(0.0), f32(9e-6), True),
        (f32(0.0), f32(2e-5), False),
        (f32(NAN, INF, -INF), f32(NAN, INF, -INF), True),
        (f32(NAN), f32(1.0), False),
        (f32(1.0), f32(NAN), False),
        (f32(INF), f32(-INF), False),
        (f32(INF), f32(1.0), False),
        (f32(1.0), f32(INF), False),
        (np.array([1 << 60]), np.array([(1 << 60) + 1]), False),
        (np.array([3], np.uint8), np.array([3], np.uint8), True),
        (np.array([True]), np.array([False]), False),
        (np.array(["a", "b"], object), np.array(["a", "b"], object), True),
        (np.array(["a", "b"], object), np.array(["a", "c"], object), False),
        (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), True),
        (np.float32(2.0), np.float32(2.0), True),
    ],
)
def test_equality(a: Array, b: Array, equal: bool) -> None:
    assert passes(np.asarray(a), np.asarray(b)) is equal


def test_shape_and_type_must_be_the_same() -> None:
    zeros = np.zeros((2, 3), np.float32)
    for other in (zeros.T, zeros.astype(np.float64), zeros[None]):
        found = compare("y", zeros, other, rtol=1.0, atol=1.0)
        assert found.excess == INF
        assert found.reason is not None
        assert "'y'" in found.reason


def test_the_worst_element_is_the_one_furthest_beyond_its_tolerance() -> None:
    found = compare(
        "y", f32(1000.0, 1.0, 2.0).reshape(1, 3), f32(1000.05, 1.01, 2.0).reshape(1, 3), rtol=1e-4, atol=0.0
    )
    assert found.error.worst_index == (0, 1)
    assert found.error.mismatches == 1
    assert found.error.elements == 3
    assert found.error.max_abs == pytest.approx(0.05, rel=1e-2)
    assert found.error.max_rel == pytest.approx(0.01, rel=1e-2)


def test_half_precision_is_allowed_its_rounding() -> None:
    assert tolerances(DType.F32, 1e-4, 1e-5) == (1e-4, 1e-5)
    assert tolerances(DType.F16, 0.5, 0.5) == (0.5, 0.5)
    for dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        epsilon = {np.dtype(np.float16): 2.0**-10}.get(dtype, 2.0**-7)
        assert passes(np.array([1.0], dtype), np.array([1.0 + 2 * epsilon], dtype))
        assert not passes(np.array([1.0], dtype), np.array([1.0 + 16 * epsilon], dtype))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.floats(width=32), st.floats(width=32)), min_size=1, max_size=5),
    st.sampled_from([0.0, 1e-4, 0.5]),
    st.sampled_from([0.0, 1e-5, 1.0]),
)
def test_it_agrees_with_numpy(pairs: list[tuple[float, float]], rtol: float, atol: float) -> None:
    a, b = (np.array(column, np.float32) for column in zip(*pairs, strict=True))
    # numpy measures relative to its second argument.
    close = np.isclose(b.astype(np.float64), a.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True)
    found = compare("y", a, b, rtol=rtol, atol=atol)
    assert found.error.mismatches == np.count_nonzero(~close)
    assert (found.excess <= 1.0) == bool(close.all())
