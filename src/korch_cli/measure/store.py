"""The store of everything that was measured: one SQLite file, shared by runs and processes."""

from __future__ import annotations

import dataclasses
import json
import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from korch_cli.core.artifact import KernelResult
from korch_cli.core.errors import MissingError
from korch_cli.core.kernel import Timing, TimingSource
from korch_cli.measure.locks import Presence, alone

FILE_NAME = "profiles.sqlite"
_VERSION = 2
_BUSY_S = 30.0
_IMPATIENT = "PRAGMA busy_timeout = 50"
"""After a failure: a store that somebody holds for good must not be waited for at every kernel."""
_TOUCH_S = 3600
"""How stale the time of an entry's last use may be: reading is not to become writing."""
_FILES = ("-wal", "-shm", "")
"""What SQLite writes beside the store, and the store itself, which is the last to be moved or removed."""
_UNREADABLE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
"""What SQLite says of a file that no waiting will mend; every other failure leaves the file where it is."""
_CREATE = (
    "CREATE TABLE documents (key TEXT PRIMARY KEY, content TEXT NOT NULL, used INTEGER NOT NULL, origin TEXT)",
    f"PRAGMA user_version = {_VERSION}",
)
_T = TypeVar("_T")
Row = tuple[Any, ...]


class _UnreadableError(Exception):
    """The file is no store of this version."""


class ProfileStore:
    """Kernel timings and other documents by key. Every key names all that its figures depend on.

    The first figure that is kept under a key is the one that counts: runs that measure the same at the same time all
    go on with that one, and so come to the same result.

    A file that is no store of this version is set aside under another name, and said so in `notes`. A store that fails
    later on costs the figures of this run, never the run: that too is said in `notes`.
    """

    def __init__(self, folder: Path) -> None:
        """Open or make the store in `folder`. Raises MissingError."""
        self.folder = folder
        self.path = folder / FILE_NAME
        self.notes: list[str] = []
        try:
            self.presence = Presence(folder / "runs.lock", _BUSY_S)
        except OSError as error:
            raise self._unopened(error) from error
        try:
            self._connection = self._opened()
        except BaseException:
            self.presence.end()
            raise

    @property
    def objects(self) -> Path:
        """The folder of compiled kernels."""
        return self.folder / "objects"

    def kernel(self, key: str) -> KernelResult | None:
        """Return what measuring a kernel found, or None."""
        return self.read(f"kernel/{key}", _decoded)

    def keep_kernel(self, key: str, result: KernelResult, *, origin: str) -> KernelResult:
        """Keep what measuring a kernel found, unless something is kept already; return what counts.

        Args:
            key: names the text of the kernel, the machine and the compiler.
            result: to keep.
            origin: the machine and the compiler, in words.
        """
        return self._keep(f"kernel/{key}", _encoded(result), _decoded, origin)

    def read(self, key: str, decode: Callable[[Any], _T]) -> _T | None:
        """Return a document in the form that `decode` gives it; None if there is none, or it has another form."""
        rows = self._rows("SELECT content, used FROM documents WHERE key = ?", key)
        if not rows:
            return None
        content, used = rows[0]
        now = int(time.time())
        if used < now - _TOUCH_S:
            self._rows("UPDATE documents SET used = ? WHERE key = ?", now, key)
        try:
            return decode(json.loads(content))
        except (LookupError, TypeError, ValueError, AttributeError):
            self.note("The profile store has entries that make no sense; they are measured again.")
            return None

    def keep(self, key: str, document: Any, decode: Callable[[Any], _T]) -> _T:
        """Keep a document, unless one is kept already; return the one that counts."""
        return self._keep(key, document, decode, None)

    def replace(self, key: str, document: Any) -> None:
        """Keep a document in place of any earlier one."""
        self._put("REPLACE", key, document, None)

    def strict(self, statement: str, *arguments: Any) -> list[Row]:
        """Run a statement on the table. Raises MissingError where figures would be lost silently otherwise."""
        with self.explained():
            return self._connection.execute(statement, arguments).fetchall()

    def transact(self, statement: str, rows: Iterator[Row]) -> int:
        """Run a statement for all rows or for none; return how many rows of the table it changed.

        Raises:
            MissingError: the store fails; and whatever `rows` raises.
        """
        with self.explained():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                done = self._connection.executemany(statement, rows)
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise
        return done.rowcount

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn failures of the store in this block into MissingError; a damaged one is set aside."""
        try:
            yield
        except sqlite3.Error as error:
            if _is_unreadable(error):
                self._reopen()
                raise MissingError(f"the store was damaged. {self.notes[-1]}", where=str(self.path)) from error
            hint = "try again when no other run of korch uses it"
            raise MissingError(f"the profile store failed: {error}", where=str(self.path), hint=hint) from error

    @contextmanager
    def turn(self, task: str, limit_s: float) -> Iterator[None]:
        """Wait until no other process that uses the store does this task; after `limit_s` seconds, do it anyway."""
        with ExitStack() as stack:
            with suppress(OSError):
                stack.enter_context(alone(self.folder / f"{task}.lock", limit_s))
            yield

    def note(self, sentence: str) -> None:
        """Add a sentence to `notes`, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
        self.presence.end()

    def _keep(self, key: str, document: Any, decode: Callable[[Any], _T], origin: str | None) -> _T:
        self._put("INSERT OR IGNORE", key, document, origin)
        kept = self.read(key, decode)
        if kept is None:
            self._put("REPLACE", key, document, origin)
            return decode(document)
        return kept

    def _put(self, verb: str, key: str, document: Any, origin: str | None) -> None:
        statement = f"{verb} INTO documents VALUES (?, ?, ?, ?)"
        self._rows(statement, key, json.dumps(document), int(time.time()), origin)

    def _rows(self, statement: str, *arguments: Any) -> list[Row]:
        try:
            return self._connection.execute(statement, arguments).fetchall()
        except sqlite3.Error as error:
            if _is_unreadable(error):
                self._reopen()
            else:
                self.note(f"The profile store failed ({error}); some figures of this run are not kept.")
                with suppress(sqlite3.Error):
                    self._connection.execute(_IMPATIENT)
            return []

    def _reopen(self) -> None:
        self._connection.close()
        self._connection = self._opened(known_unreadable=True)

    def _opened(self, *, known_unreadable: bool = False) -> sqlite3.Connection:
        """Return a connection to a sound store. Raises MissingError."""
        try:
            # Alone, or two processes could each set aside the fresh store of the other.
            with alone(self.path.with_suffix(".lock"), _BUSY_S):
                try:
                    return _connected(self.path, thorough=known_unreadable)
                except _UnreadableError:
                    self._set_aside()
                    return _connected(self.path, thorough=False)
        except (OSError, sqlite3.Error, _UnreadableError) as error:
            raise self._unopened(error) from error

    def _unopened(self, error: Exception) -> MissingError:
        hint = "name another folder in KORCH_CACHE_DIR, or end what holds this one"
        return MissingError(f"the profile store cannot be opened: {error}", where=str(self.path), hint=hint)

    def _set_aside(self) -> None:
        moved = f"{self.path.name}.unreadable-{time.time_ns()}"
        for suffix in _FILES:
            file = self.path.with_name(self.path.name + suffix)
            if file.exists():
                file.replace(file.with_name(moved + suffix))
        self.note(f"The profile store could not be read; it is now {moved}, and a new one was begun.")


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
            _create(connection)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error) and _is_unreadable(error):
            raise _UnreadableError(str(error)) from error
        raise
    return connection


def _create(connection: sqlite3.Connection, statements: Sequence[str] = _CREATE) -> None:
    """Make the table; a process that is killed here leaves no part of it."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in statements:
        connection.execute(statement)
    connection.execute("COMMIT")


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
    timing, failure = _timing(document["timing"]), document["failure"]
    if (timing is None) == (failure is None):
        raise ValueError("a kernel has a time or a failure")
    return KernelResult(document["name"], timing, _timing(document["alternative"]), failure)


def _timing(document: dict[str, Any] | None) -> Timing | None:
    if document is None:
        return None
    median, low, high = (float(document[name]) for name in ("median_us", "low_us", "high_us"))
    if not all(math.isfinite(figure) and figure >= 0.0 for figure in (median, low, high)):
        raise ValueError("a time is a finite number")
    return Timing(median, low, high, int(document["samples"]), TimingSource(document["source"]))
