"""What `korch cache` finds and does, in a form that `report` renders as text or JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CacheContent:
    """What a store holds.

    Attributes:
        entries: number of entries by kind: kernel, profile, limits, search, comparison.
        origins: measured kernels by machine and compiler.
        objects: compiled kernels.
        object_bytes: their size.
        set_aside: stores that could not be read, and leftovers of runs that were killed.
        size_bytes: of all files together.
    """

    entries: Mapping[str, int]
    origins: Mapping[str, int]
    objects: int
    object_bytes: int
    set_aside: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CacheRecord:
    """The result of `korch cache`.

    Attributes:
        action: path, stats, prune, clear, export or import.
        folder: of the store.
        limit_bytes: that the store is kept below.
        content: what it holds afterwards; None for `path`, which does not open it.
        file: that was written or read; None for other actions.
        entries: how many entries were written to the file, or taken from it and new; how many went, for prune and
            clear; None for other actions.
        known: entries of the file that the store had already (import).
        files: compiled kernels and leftovers that went (prune, clear).
        notes: what else is worth knowing.
    """

    action: str
    folder: str
    limit_bytes: int
    content: CacheContent | None = None
    file: str | None = None
    entries: int | None = None
    known: int | None = None
    files: int | None = None
    notes: tuple[str, ...] = ()
