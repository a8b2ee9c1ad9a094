"""What is needed for a failure, found by trial alone: nothing here knows what the parts are.

A trial is dear, so each function makes as few as it can. Where failing is not monotonic (a part matters only without
another one), the results still fail; they are then a local minimum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def shortest_prefix(length: int, fails: Callable[[int], bool]) -> int:
    """Return the smallest k, by bisection, for which the first k of `length` parts fail; all of them are known to."""
    low, high = 0, length
    while high - low > 1:
        middle = (low + high) // 2
        if fails(middle):
            high = middle
        else:
            low = middle
    return high


def latest_start(length: int, fails: Callable[[int], bool]) -> int:
    """Return the largest k, by bisection, for which the parts from k on fail; all of them are known to."""
    low, high = 0, length
    while high - low > 1:
        middle = (low + high) // 2
        if fails(middle):
            low = middle
        else:
            high = middle
    return low


def minimise(items: Sequence[_T], fails: Callable[[tuple[_T, ...]], bool]) -> tuple[_T, ...]:
    """Return a part of `items`, which together fail, that fails too, and from which no single item can be left out.

    Halves are left out first, then ever smaller groups, then single items until a whole round leaves out none.
    """
    kept = tuple(items)
    if not kept or fails(()):
        return ()
    size = max(1, len(kept) // 2)
    while True:
        before = len(kept)
        kept = _sweep(kept, size, fails)
        if size > 1:
            size = max(1, min(size // 2, len(kept) // 2))
        elif len(kept) == before:
            return kept


def _sweep(kept: tuple[_T, ...], size: int, fails: Callable[[tuple[_T, ...]], bool]) -> tuple[_T, ...]:
    """Leave out groups of `size` items, from the last one on, wherever the others still fail."""
    end = len(kept)
    while end > 0:
        start = max(0, end - size)
        rest = kept[:start] + kept[end:]
        # That nothing at all does not fail is known.
        if rest and fails(rest):
            kept = rest
        end = start
    return kept
