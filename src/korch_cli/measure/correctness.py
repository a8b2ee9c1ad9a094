"""Operands that find faults, and the comparison of a kernel's results with what is expected."""

from __future__ import annotations

import numpy as np

from korch_cli.core.types import Array, DType, TensorType

_SCALE = 2.0
_SPECIAL = (0.0, 10.0, -10.0, 1.0, -1.0)
_ONE_SPECIAL_IN = 16
_MOST_SPECIAL = 64
_EPSILONS = {DType.F16: 2.0**-10, DType.BF16: 2.0**-7}
_ULPS = 8
"""What two programs may differ by that round their sixteen bits in different places."""


def draw_operand(typed: TensorType, rng: np.random.Generator) -> Array:
    """Return random contents for an operand.

    Floats are normal with a few round or large ones among them (a tensor of less than 16 has none: a scalar divisor
    of zero would make everything else unseen); integers are small and never negative; booleans are fair.
    """
    if typed.dtype.is_float:
        drawn = rng.standard_normal(typed.elements) * _SCALE
        count = min(typed.elements // _ONE_SPECIAL_IN, _MOST_SPECIAL)
        drawn[rng.choice(typed.elements, count, replace=False)] = np.resize(_SPECIAL, count)
        return drawn.astype(typed.dtype.numpy).reshape(typed.shape)
    if typed.dtype.is_integer:
        return rng.integers(0, 8, typed.shape).astype(typed.dtype.numpy)
    return np.asarray(rng.integers(0, 2, typed.shape), bool)


def difference(got: Array, expected: Array, rtol: float, atol: float) -> str | None:
    """Return what is wrong with an output in one sentence that names the worst element, or None.

    NaN equals NaN and an infinity equals itself. Errors count against the size of the largest finite element too.
    """
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"It returns {got.dtype}{list(got.shape)}: expected was {expected.dtype}{list(expected.shape)}"
    dtype = DType.from_numpy(got.dtype)
    least = _ULPS * _EPSILONS.get(dtype, 0.0) if dtype is not None else 0.0
    excess = (
        _excess(got, expected, max(rtol, least), max(atol, least))
        if dtype is not None and dtype.is_float
        else got != expected
    )
    if not excess.size or float(excess.max()) <= 0.0:
        return None
    place = np.unravel_index(int(excess.argmax()), excess.shape)
    where = [int(index) for index in place]
    return f"It computes something else: {got[place]} instead of {expected[place]} at {where}"


def _excess(got: Array, expected: Array, rtol: float, atol: float) -> Array:
    """Return by how much each element's error passes its tolerance, 0 where it does not."""
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    comparable = np.isfinite(got) & np.isfinite(expected)
    size = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    tolerance = atol * max(1.0, float(size.max(initial=0.0))) + rtol * size
    error = np.abs(np.subtract(got, expected, out=np.full(got.shape, np.inf), where=comparable))
    return np.where(same, 0.0, np.maximum(error - tolerance, 0.0))
