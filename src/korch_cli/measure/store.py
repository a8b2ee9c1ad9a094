"""The store of everything that was measured: one SQLite file, shared by runs and processes."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import time
from pathlib import Path
from typing import Any

from korch_cli.core.artifact import KernelResult
from korch_cli.core.errors import MissingError
from korch_cli.core.kernel import Timing, TimingSource

_VERSION = 1
_BUSY_S = 30.0


class ProfileStore:
    """Kernel timings and other documents by key.

    A file that is no store of this version is set aside under another name, and said so in `notes`.
    """

    def __init__(self, folder: Path) -> None:
        """Open or make the store in `folder`. Raises MissingError."""
        self.folder = folder
        self.notes: list[str] = []
        self._path = folder / "profiles.sqlite"
        try:
            self._connection = self._opened()
        except sqlite3.DatabaseError:
            self._set_aside()
            try:
                self._connection = self._opened()
            except sqlite3.Error as error:
                raise MissingError(f"the profile store cannot be opened: {error}", where=str(self._path)) from error

    def kernel(self, key: str) -> KernelResult | None:
        """Return what measuring a kernel found, or None."""
        document = self.document(f"kernel/{key}")
        return None if document is None else _decoded(document)

    def put_kernel(self, key: str, result: KernelResult) -> None:
        """Keep what measuring a kernel found."""
        self.put_document(f"kernel/{key}", _encoded(result))

    def document(self, key: str) -> dict[str, Any] | None:
        """Return a document, or None."""
        row = self._connection.execute("SELECT content FROM documents WHERE key = ?", (key,)).fetchone()
        return None if row is None else json.loads(row[0])

    def put_document(self, key: str, document: dict[str, Any]) -> None:
        """Keep a document in place of any earlier one."""
        with self._connection:
            self._connection.execute("REPLACE INTO documents VALUES (?, ?)", (key, json.dumps(document)))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _opened(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=_BUSY_S)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if tables and version != _VERSION:
                raise sqlite3.DatabaseError(f"the store has version {version}")
            with connection:
                connection.execute("CREATE TABLE IF NOT EXISTS documents (key TEXT PRIMARY KEY, content TEXT NOT NULL)")
                connection.execute(f"PRAGMA user_version = {_VERSION}")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _set_aside(self) -> None:
        moved = self._path.with_name(f"{self._path.name}.unreadable-{time.time_ns()}")
        try:
            self._path.replace(moved)
        except OSError as error:
            raise MissingError(
                f"the profile store is unreadable and cannot be moved: {error.strerror}", where=str(self._path)
            ) from error
        for suffix in ("-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        self.notes.append(f"The profile store could not be read; it is now {moved.name}, and a new one was begun.")


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
