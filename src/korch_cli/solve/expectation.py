"""What an unmeasured kernel may be expected to take: learned from measured ones, and never part of a bound."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping

_NEIGHBOURS = 16
_FIRST_RATIO = 2.0
"""Measured time over the bound that is expected before anything was measured."""


class Expectation:
    """From bounds to likely times: the bound, times what kernels of about its size took over theirs."""

    def __init__(self, bounds: Mapping[str, float], times: Mapping[str, float]) -> None:
        """Learn from those of `times`, in microseconds by digest, that are finite and have a bound above zero."""
        found = ((bounds.get(digest, 0.0), time_us) for digest, time_us in times.items())
        self._seen = sorted((b, t / b) for b, t in found if b > 0.0 and math.isfinite(t))
        self._logs = [math.log(bound) for bound, _ in self._seen]
        self._near: dict[float, list[float]] = {}

    def time_us(self, bound_us: float, quantile: float) -> float:
        """Return a quantile of the likely times of a kernel with this bound; at quantile zero, the bound itself."""
        if quantile == 0.0 or bound_us <= 0.0:
            return bound_us
        if len(self._seen) < _NEIGHBOURS:
            return bound_us * _FIRST_RATIO
        ratios = self._near.get(bound_us)
        if ratios is None:
            ratios = self._near[bound_us] = self._ratios(math.log(bound_us))
        return bound_us * max(1.0, ratios[int(quantile * (len(ratios) - 1))])

    def _ratios(self, log: float) -> list[float]:
        """Return the ratios of the kernels that are nearest in size, ascending."""
        low = high = bisect_left(self._logs, log)
        while high - low < _NEIGHBOURS:
            below = log - self._logs[low - 1] if low > 0 else math.inf
            above = self._logs[high] - log if high < len(self._logs) else math.inf
            low, high = (low - 1, high) if below <= above else (low, high + 1)
        return sorted(ratio for _, ratio in self._seen[low:high])
