"""Whether a value is the one that is wanted, within a tolerance."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np


def difference(got: Any, want: Any, rtol: float, atol: float) -> str | None:
    """Return a sentence on how a value differs from the one that is wanted, None if it does not.

    Floats may differ by `atol + rtol * |want|`, and by one unit in the last place of their type where that is more;
    everything else has to be equal. NaN equals NaN.
    """
    if isinstance(want, list | tuple):
        if not isinstance(got, list | tuple) or len(got) != len(want):
            return f"{_kind(want)} became {_kind(got)}"
        found = (difference(g, w, rtol, atol) for g, w in zip(got, want, strict=True))
        return next((sentence for sentence in found if sentence), None)
    if isinstance(want, dict):
        if not isinstance(got, dict) or got.keys() != want.keys():
            return f"{_kind(want)} became {_kind(got)}"
        return next((s for key in want if (s := difference(got[key], want[key], rtol, atol))), None)
    if want is None or got is None:
        return None if got is want else f"{_kind(want)} became {_kind(got)}"
    return _array_difference(np.asarray(got), np.asarray(want), rtol, atol)


def _array_difference(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], rtol: float, atol: float) -> str | None:
    if got.dtype != want.dtype:
        return f"{_kind(want)} became {_kind(got)}"
    if got.shape != want.shape:
        return f"the shape {list(want.shape)} became {list(got.shape)}"
    precision = _precision(want.dtype)
    with np.errstate(all="ignore"):
        if precision is None:
            wrong = np.asarray(got != want)
        else:
            wide = np.complex128 if want.dtype.kind == "c" else np.float64
            g, w = got.astype(wide), want.astype(wide)
            close = np.abs(g - w) <= atol + max(rtol, precision) * np.abs(w)
            wrong = ~((g == w) | (close & np.isfinite(w) & np.isfinite(g)) | (np.isnan(g) & np.isnan(w)))
    if not wrong.any():
        return None
    place = tuple(int(axis[0]) for axis in np.nonzero(np.atleast_1d(wrong)))
    where = f"{int(wrong.sum())} of {want.size} elements differ"
    return f"{where}: {np.atleast_1d(want)[place]} became {np.atleast_1d(got)[place]} at {list(place)}"


def _precision(dtype: np.dtype[Any]) -> float | None:
    """Return the relative distance of neighbours in a floating-point type, None for other types."""
    if dtype.kind in "fc":
        return float(np.finfo(dtype).eps)
    if dtype.kind == "V" and "float" in dtype.name:
        return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    return None


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of rank {value.ndim}"
    if isinstance(value, list | tuple):
        return f"a sequence of {len(value)}"
    return "nothing" if value is None else type(value).__name__
