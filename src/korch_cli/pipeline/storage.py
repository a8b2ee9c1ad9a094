"""The store of a run, and what the figures in it say about kernels that were not measured here."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from korch_cli.core.errors import MissingError
from korch_cli.measure import ProfileStore, cache_limit, default_folder, prune


@contextmanager
def opened_store(scratch: Path) -> Iterator[ProfileStore]:
    """Give the user's store, which is kept below its limit; where it cannot be had, one that ends with the run.

    Args:
        scratch: folder that ends with the run.

    Raises:
        UsageError: the limit is no size.
    """
    limit_bytes = cache_limit()
    try:
        store = ProfileStore(default_folder())
    except MissingError as error:
        own = scratch / "store"
        own.mkdir()
        store = ProfileStore(own)
        store.note(f"Nothing that was measured is kept: {error.message} ({error.where}).")
    try:
        _prune(store, limit_bytes)
        yield store
        _prune(store, limit_bytes)
    finally:
        store.close()


def _prune(store: ProfileStore, limit_bytes: int) -> None:
    try:
        prune(store, limit_bytes)
    except MissingError as error:
        store.note(f"The store could not be kept below its limit: {error}")


def experience(timings: Mapping[str, Mapping[str, float]], bounds: Mapping[str, float], own: str) -> dict[str, float]:
    """Return for some digests how many times as slow they are, beside their bounds, as others are.

    Figures of other machines and compilers say nothing about times here, but which kernels come closer to their bounds
    is much the same everywhere. So each is taken relative to the median of those with the same origin.

    Args:
        timings: by origin, times in microseconds by digest.
        bounds: for each digest of this search, the time in microseconds that no kernel beats.
        own: the origin of what is measured here, which says the most.
    """
    found: dict[str, float] = {}
    shared = {o: {d: t / bounds[d] for d, t in times.items() if bounds.get(d)} for o, times in timings.items()}
    for origin in sorted(shared, key=lambda origin: (origin == own, len(shared[origin]), origin)):
        ratios = shared[origin]
        middle = statistics.median(ratios.values()) if ratios else 0.0
        if middle > 0.0:
            found.update((digest, ratio / middle) for digest, ratio in ratios.items())
    return found
