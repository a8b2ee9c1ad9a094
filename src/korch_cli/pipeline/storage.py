"""The store of a run."""

from __future__ import annotations

from collections.abc import Iterator
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
