"""A store as a file that can be taken elsewhere: a header, and then one line of JSON for every entry.

Compiled kernels are not in it: they are made again where they are needed.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from korch_cli.core.errors import MissingError, UsageError
from korch_cli.measure.store import FILE_NAME, ProfileStore, Row

SCHEMA = "korch.profiles/1"
_FIELDS = ("key", "content", "origin")
_SELECT = "SELECT key, content, origin FROM documents ORDER BY key"
_HINT = "korch cache export writes such files"


def export_store(store: ProfileStore, file: Path, version: str) -> int:
    """Write all entries of a store to a file, which appears when it is complete; return their number.

    Args:
        store: to read.
        file: to write.
        version: of korch, for the header.

    Raises:
        MissingError: the file cannot be written, or the store fails.
    """
    written = 0
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8") as out:
            out.write(json.dumps({"schema": SCHEMA, "korch": version}) + "\n")
            for key, content, origin in store.strict(_SELECT):
                document = _parsed(content)
                # What makes no sense would keep the whole file from being imported.
                if isinstance(document, dict):
                    out.write(json.dumps(dict(zip(_FIELDS, (key, document, origin), strict=True))) + "\n")
                    written += 1
            out.flush()
            os.fsync(out.fileno())
        partial.replace(file)
    except OSError as error:
        raise MissingError(f"the entries cannot be written: {error.strerror}", where=str(file)) from error
    finally:
        partial.unlink(missing_ok=True)
    return written


def copy_store(folder: Path, target: Path) -> str | None:
    """Make the folder `target` with a copy of the figures of the store in `folder`, which is only read.

    Returns:
        A sentence if the store could not be read, so that the copy is empty.
    """
    target.mkdir()
    source = folder / FILE_NAME
    if not source.is_file():
        return None
    try:
        with (
            closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True)) as read,
            closing(sqlite3.connect(target / FILE_NAME)) as written,
        ):
            read.backup(written)
    except sqlite3.Error as error:
        (target / FILE_NAME).unlink(missing_ok=True)
        return f"The profile store could not be read ({error}); nothing was found in it."
    return None


def import_store(store: ProfileStore, file: Path) -> tuple[int, int]:
    """Take the entries of a file that `export_store` wrote, all or none; return how many are new, and how many not.

    What the store has already stays as it is.

    Raises:
        UsageError: the file cannot be read, or holds something else.
        MissingError: the store fails.
    """
    entries = list(_entries(file))
    new = store.transact("INSERT OR IGNORE INTO documents VALUES (?, ?, ?, ?)", iter(entries))
    return new, len(entries) - new


def _entries(file: Path) -> Iterator[Row]:
    """Yield the rows of a file, checked. Raises UsageError."""
    try:
        lines = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except OSError as error:
        raise UsageError(f"the entries cannot be read: {error.strerror}", where=str(file)) from error
    except UnicodeDecodeError as error:
        raise UsageError("this is no file of entries: it is not text", where=str(file), hint=_HINT) from error
    header = _parsed(lines[0])
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        raise UsageError(f"this is no file of entries: it does not begin with {SCHEMA!r}", where=str(file), hint=_HINT)
    now = int(time.time())
    for number, line in enumerate(lines[1:], 2):
        row = _row(_parsed(line), now)
        if row is None:
            raise UsageError(f"line {number} is no entry of a store", where=str(file), hint="export it again")
        yield row


def _row(entry: Any, now: int) -> Row | None:
    """Return an entry as a row of the table, None for what is none. It counts as used now."""
    if not isinstance(entry, dict) or not set(_FIELDS) <= entry.keys():
        return None
    key, content, origin = (entry[name] for name in _FIELDS)
    texts = _is_text(key) and (origin is None or _is_text(origin))
    if not texts or not isinstance(content, dict) or "/" not in key:
        return None
    return key, json.dumps(content), now, origin


def _is_text(value: Any) -> bool:
    """Whether this is text that can be kept: JSON can hold halves of characters."""
    return isinstance(value, str) and value == value.encode(errors="replace").decode()


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
