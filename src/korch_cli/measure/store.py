"""The store of everything that was measured: one SQLite file, shared by runs and processes."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from korch_cli.core.artifact import KernelResult
from korch_cli.core.errors import MissingError
from korch_cli.core.kernel import Timing, TimingSource

_VERSION = 1
_BUSY_S = 30.0
_FILES = ("", "-wal", "-shm")
_UNREADABLE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
"""What SQLite says of a file that no waiting will mend; every other failure leaves the file where it is."""


class _UnreadableError(Exception):
    """The file is no store of this version."""


class ProfileStore:
    """Kernel timings and other documents by key.

    A file that is no store of this version is set aside under another name, and said so in `notes`. A store that fails
    later on costs the figures of this run, never the run: that too is said in `notes`.
    """

    def __init__(self, folder: Path) -> None:
        """Open or make the store in `folder`. Raises MissingError."""
        self.folder = folder
        self.notes: list[str] = []
        self._path = folder / "profiles.sqlite"
        self._connection = self._opened()

    def kernel(self, key: str) -> KernelResult | None:
        """Return what measuring a kernel found, or None."""
        document = self.document(f"kernel/{key}")
        return None if document is None else _decoded(document)

    def put_kernel(self, key: str, result: KernelResult) -> None:
        """Keep what measuring a kernel found."""
        self.put_document(f"kernel/{key}", _encoded(result))

    def document(self, key: str) -> dict[str, Any] | None:
        """Return a document, or None."""
        rows = self._rows("SELECT content FROM documents WHERE key = ?", key)
        return json.loads(rows[0][0]) if rows else None

    def put_document(self, key: str, document: dict[str, Any]) -> None:
        """Keep a document in place of any earlier one."""
        self._rows("REPLACE INTO documents VALUES (?, ?)", key, json.dumps(document))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _rows(self, statement: str, *arguments: str) -> list[tuple[str, ...]]:
        try:
            return self._connection.execute(statement, arguments).fetchall()
        except sqlite3.Error as error:
            if _is_unreadable(error):
                self._connection.close()
                self._connection = self._opened(known_unreadable=True)
            else:
                self._note(f"The profile store failed ({error}); some figures of this run are not kept.")
            return []

    def _opened(self, *, known_unreadable: bool = False) -> sqlite3.Connection:
        """Return a connection to a sound store. Raises MissingError."""
        try:
            # Alone, or two processes could each set aside the fresh store of the other.
            with _alone(self._path.with_suffix(".lock")):
                try:
                    return _connected(self._path, thorough=known_unreadable)
                except _UnreadableError:
                    self._set_aside()
                    return _connected(self._path, thorough=False)
        except (OSError, sqlite3.Error, _UnreadableError) as error:
            raise MissingError(f"the profile store cannot be opened: {error}", where=str(self._path)) from error

    def _set_aside(self) -> None:
        moved = f"{self._path.name}.unreadable-{time.time_ns()}"
        for suffix in _FILES:
            file = self._path.with_name(self._path.name + suffix)
            if file.exists():
                file.replace(file.with_name(moved + suffix))
        self._note(f"The profile store could not be read; it is now {moved}, and a new one was begun.")

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Wait until no other process is in this block."""
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _connected(path: Path, *, thorough: bool) -> sqlite3.Connection:
    """Open or make a store. Raises _UnreadableError, and sqlite3.Error where the file may be sound."""
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and version != _VERSION:
            raise _UnreadableError(f"the store has version {version}")
        if thorough and connection.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise _UnreadableError("the store is damaged")
        # Only now: these write into the file, and what is not ours stays as it is.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        if not tables:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("CREATE TABLE documents (key TEXT PRIMARY KEY, content TEXT NOT NULL)")
            connection.execute(f"PRAGMA user_version = {_VERSION}")
            connection.execute("COMMIT")
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error) and _is_unreadable(error):
            raise _UnreadableError(str(error)) from error
        raise
    return connection


def _is_unreadable(error: sqlite3.Error) -> bool:
    # The low byte is the kind; the others tell which of its cases it is.
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _UNREADABLE


def _encoded(result: KernelResult) -> dict[str, Any]:
    return {
        "name": result.name,
        "timing": _timing_document(result.timing),
        "alternative": _timing_document(result.alternative),
        "failure": result.failure,
    }


def _timing_document(timing: Timing | None) -> dict[str, Any] | None:
    return None if timing is None else dataclasses.asdict(timing) | {"source": timing.source.value}


def _decoded(document: dict[str, Any]) -> KernelResult:
    return KernelResult(
        document["name"], _timing(document["timing"]), _timing(document["alternative"]), document["failure"]
    )


def _timing(document: dict[str, Any] | None) -> Timing | None:
    return None if document is None else Timing(**(document | {"source": TimingSource(document["source"])}))
