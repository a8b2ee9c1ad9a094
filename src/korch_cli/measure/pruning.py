"""What a store holds, and keeping it below a limit: what was not used for the longest time goes first."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from korch_cli.core.errors import MissingError, UsageError
from korch_cli.core.size import parse_size
from korch_cli.core.storage import CacheContent
from korch_cli.measure.store import ProfileStore

DEFAULT_LIMIT = "1GiB"
_COMPILED = (".o", ".cubin", ".ptx", ".log")
_IN_USE_S = 86400.0
"""A file that another run may have asked for within this time stays: it could be about to link it."""
_CHECKPOINT = "PRAGMA wal_checkpoint(TRUNCATE)"
"""Moves what was written into the store itself, so that the sizes of the files say how much there is."""
_LENGTH = "length(CAST(key AS BLOB)) + length(CAST(content AS BLOB))"


@dataclass(frozen=True, slots=True)
class Removed:
    """How much went.

    Attributes:
        entries: of the table.
        files: compiled kernels, stores that were set aside, leftovers of runs that were killed.
        busy: it is not enough: another run uses the store, so that only files could go that nobody had used for a day.
    """

    entries: int
    files: int
    busy: bool


@dataclass(frozen=True, slots=True)
class _Piece:
    """Something that can go: a file, or the entry of a key."""

    used: float
    size: int
    what: Path | str


def cache_limit() -> int:
    """Return the bytes that a store may take: KORCH_CACHE_LIMIT, or 1 GiB. Raises UsageError."""
    text = os.environ.get("KORCH_CACHE_LIMIT") or DEFAULT_LIMIT
    size = parse_size(text)
    if size is None:
        raise UsageError(f"KORCH_CACHE_LIMIT is {text!r}, which is no size", hint="write it as 300MiB or 2GiB")
    return size


def content_of(store: ProfileStore) -> CacheContent:
    """Return what a store holds. Raises MissingError."""
    kinds = store.strict("SELECT substr(key, 1, instr(key, '/') - 1) AS kind, count(*) FROM documents GROUP BY kind")
    origins = store.strict("SELECT origin, count(*) FROM documents WHERE origin IS NOT NULL GROUP BY origin")
    objects, leftovers = list(_objects(store)), list(_leftovers(store))
    object_bytes = sum(piece.size for piece in objects)
    size = _database_bytes(store) + object_bytes + sum(piece.size for piece in leftovers)
    return CacheContent(dict(kinds), dict(origins), len(objects), object_bytes, len(leftovers), size)


def prune(store: ProfileStore, limit_bytes: int) -> Removed:
    """Remove what was used the longest ago until the store takes no more than `limit_bytes`.

    Raises:
        MissingError: the store fails.
    """
    with store.presence.only() as only:
        if not only:
            old = [piece for piece in _files(store) if piece.used < time.time() - _IN_USE_S]
            gone = _remove_files(_oldest(old, _excess(store, limit_bytes)))
            return Removed(0, gone, busy=_excess(store, limit_bytes) > 0)
        # Nobody builds anything now, so this is what killed runs left behind.
        files = _remove_files(piece for piece in _leftovers(store) if _is_scratch(piece))
        store.strict(_CHECKPOINT)
        entries, gone, removed = 0, 0, 1
        # One pass, as a rule: how much the store shrinks is an estimate. Files that cannot be removed end it.
        while (gone or removed) and (excess := _excess(store, limit_bytes)) > 0:
            going = list(_oldest([*_files(store), *_entries(store)], excess))
            gone = _remove_files(piece for piece in going if isinstance(piece.what, Path))
            removed = _remove_entries(store, [piece.what for piece in going if isinstance(piece.what, str)])
            files, entries = files + gone, entries + removed
        return Removed(entries, files, busy=False)


def clear(store: ProfileStore) -> Removed:
    """Remove everything. Raises MissingError: another run uses the store, or it fails."""
    with store.presence.only() as only:
        if not only:
            hint = "wait until it has ended"
            raise MissingError("another run of korch uses the store", where=str(store.folder), hint=hint)
        ((entries,),) = store.strict("SELECT count(*) FROM documents")
        store.strict("DELETE FROM documents")
        _shrink(store)
        return Removed(entries, _remove_files(_files(store)), busy=False)


def _oldest(pieces: Iterable[_Piece], excess: int) -> Iterator[_Piece]:
    """Yield the pieces that were used the longest ago, until they make up for `excess` bytes."""
    for piece in sorted(pieces, key=lambda piece: (piece.used, str(piece.what))):
        if excess <= 0:
            return
        excess -= piece.size
        yield piece


def _excess(store: ProfileStore, limit_bytes: int) -> int:
    return _database_bytes(store) + sum(piece.size for piece in _files(store)) - limit_bytes


def _files(store: ProfileStore) -> list[_Piece]:
    return [*_objects(store), *_leftovers(store)]


def _entries(store: ProfileStore) -> list[_Piece]:
    rows = store.strict(f"SELECT used, {_LENGTH}, key FROM documents")  # noqa: S608 - a constant
    # The file has pages that are not full, and an index: an entry's share of all that goes with it.
    share = _database_bytes(store) / max(1, sum(length for _, length, _ in rows))
    return [_Piece(used, int(length * share), key) for used, length, key in rows]


def _remove_entries(store: ProfileStore, keys: list[str]) -> int:
    if not keys:
        return 0
    removed = store.transact("DELETE FROM documents WHERE key = ?", ((key,) for key in keys))
    _shrink(store)
    return removed


def _shrink(store: ProfileStore) -> None:
    """Give the room of removed entries back to the system."""
    store.strict("VACUUM")
    store.strict(_CHECKPOINT)


def _remove_files(pieces: Iterable[_Piece]) -> int:
    gone = 0
    for piece in pieces:
        assert isinstance(piece.what, Path)
        try:
            shutil.rmtree(piece.what) if piece.what.is_dir() else piece.what.unlink()
        except OSError:
            continue  # another process was faster, or may more than we
        gone += 1
    return gone


def _objects(store: ProfileStore) -> Iterator[_Piece]:
    return _pieces(store.objects, lambda name: name.endswith(_COMPILED))


def _leftovers(store: ProfileStore) -> Iterator[_Piece]:
    yield from _pieces(store.folder, lambda name: name.startswith(f"{store.path.name}.unreadable-"))
    yield from _pieces(store.objects, lambda name: name.startswith("build-"))


def _is_scratch(piece: _Piece) -> bool:
    return isinstance(piece.what, Path) and piece.what.is_dir()


def _pieces(folder: Path, wanted: Callable[[str], bool]) -> Iterator[_Piece]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if not wanted(entry.name):
            continue
        try:
            status = entry.stat(follow_symlinks=False)
            is_folder = entry.is_dir(follow_symlinks=False)
            size = sum(f.stat().st_size for f in os.scandir(entry)) if is_folder else status.st_size
        except OSError:
            continue
        yield _Piece(status.st_mtime, size, Path(entry.path))


def _database_bytes(store: ProfileStore) -> int:
    # Beside these there is an index of what is new, which is gone when nobody has the store open.
    files = (store.path.with_name(store.path.name + suffix) for suffix in ("", "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
