"""Differences between two tensors, and how much of one is allowed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from korch_cli.core.record import OutputError
from korch_cli.core.types import Array, DType

_EPSILON = {DType.F16: 2.0**-10, DType.BF16: 2.0**-7}
_HALF_ULPS = 8


@dataclass(frozen=True, slots=True)
class Difference:
    """What comparing one output found.

    Attributes:
        error: the worst element and the number of elements beyond the tolerance; zeros that were expected have no
            relative error.
        excess: the worst difference as a multiple of what is allowed there; up to 1 is within tolerance.
        reason: one sentence if the tensors cannot be compared element by element, else None.
    """

    error: OutputError
    excess: float
    reason: str | None = None


def tolerances(dtype: DType | None, rtol: float, atol: float) -> tuple[float, float]:
    """Return the relative and absolute tolerance for an element type.

    `rtol` and `atol` are meant for float32 and apply to float64 as well. Half-precision floats are allowed at least
    eight machine epsilons (2^-7 for float16, 2^-4 for bfloat16) relative and one absolute: two correct programs that
    round intermediate values in different places differ by as much.
    """
    epsilon = _EPSILON.get(dtype) if dtype is not None else None
    if epsilon is None:
        return rtol, atol
    return max(rtol, _HALF_ULPS * epsilon), max(atol, epsilon)


def compare(name: str, expected: Array, actual: Array, *, rtol: float, atol: float) -> Difference:
    """Compare one output with what is expected: |expected - actual| <= atol + rtol * |expected| for floats.

    NaN equals NaN, and an infinity equals itself alone. Integers, bools and strings must be the same.
    """
    for what, a, b in (("shape", expected.shape, actual.shape), ("element type", expected.dtype, actual.dtype)):
        if a != b:
            error = OutputError(name, float("inf"), float("inf"), (), expected.size, expected.size)
            return Difference(error, float("inf"), f"Output {name!r} has {what} {b} instead of {a}.")
    dtype = DType.from_numpy(expected.dtype)
    if dtype is None or not dtype.is_float:
        return _compare_exactly(name, expected, actual)
    return _compare_floats(name, expected, actual, *tolerances(dtype, rtol, atol))


def _compare_floats(name: str, expected: Array, actual: Array, rtol: float, atol: float) -> Difference:
    a, b = expected.astype(np.float64), actual.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    comparable = np.isfinite(a) & np.isfinite(b)
    # Overflow of float64 differences is an infinite difference, which is what it should count as.
    with np.errstate(all="ignore"):
        gap = np.where(same, 0.0, np.where(comparable, np.abs(a - b), np.inf))
        allowed = np.where(comparable, atol + rtol * np.abs(a), 1.0)
        excess = np.where(gap == 0.0, 0.0, gap / allowed)
        relative = np.where((gap == 0.0) | (a == 0.0), 0.0, np.where(comparable, gap / np.abs(a), np.inf))
    return _difference(name, gap, relative, excess)


def _compare_exactly(name: str, expected: Array, actual: Array) -> Difference:
    differs = np.asarray(expected != actual, dtype=bool)
    if expected.dtype.kind in "iu":
        a, b = expected.astype(np.float64), actual.astype(np.float64)
        # float64 does not tell large integers apart.
        gap = np.where(differs, np.maximum(np.abs(a - b), 1.0), 0.0)
        relative = np.where(differs, gap / np.maximum(np.abs(a), 1.0), 0.0)
    else:
        gap = relative = differs.astype(np.float64)
    return _difference(name, gap, relative, np.where(differs, np.maximum(gap, 2.0), 0.0))


def _difference(name: str, gap: Array, relative: Array, excess: Array) -> Difference:
    if not gap.size:
        return Difference(OutputError(name, 0.0, 0.0, (), 0, 0), 0.0)
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(excess)), excess.shape))
    mismatches = int(np.count_nonzero(excess > 1.0))
    error = OutputError(name, float(gap.max()), float(relative.max()), worst, mismatches, int(gap.size))
    return Difference(error, float(excess.max()))
