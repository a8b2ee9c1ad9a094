"""Locks between processes. The system releases them when a process ends, however it ends."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from korch_cli.core.errors import MissingError

_PAUSE_S = 0.01


@contextmanager
def alone(lock: Path, limit_s: float) -> Iterator[None]:
    """Wait until no other process is in this block. Raises OSError: the lock cannot be had, or not in `limit_s`."""
    with lock.open("a") as held:
        _wait(held, fcntl.LOCK_EX, limit_s)
        yield


class Presence:
    """A sign that this process uses something, for those who would like to be the only ones."""

    def __init__(self, lock: Path, limit_s: float) -> None:
        """Set the sign. Raises OSError: the lock cannot be had, or not in `limit_s` seconds."""
        self._limit_s = limit_s
        self._held = lock.open("a")
        try:
            _wait(self._held, fcntl.LOCK_SH, limit_s)
        except BaseException:
            self._held.close()
            raise

    @contextmanager
    def only(self) -> Iterator[bool]:
        """Give True if no other process has set the sign, and let none set it in this block; else False.

        Raises:
            MissingError: another process stands still with the lock.
        """
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            granted = False
        else:
            granted = True
        try:
            yield granted
        finally:
            # Also after a refusal: the system may have dropped the shared lock on the way to the other.
            try:
                _wait(self._held, fcntl.LOCK_SH, self._limit_s)
            except OSError as error:
                hint = "end the other run of korch that stands still"
                raise MissingError(f"the store cannot be locked: {error}", where=self._held.name, hint=hint) from error

    def end(self) -> None:
        """Take the sign down."""
        self._held.close()


def _wait(held: IO[str], kind: int, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while True:
        try:
            fcntl.flock(held, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"another process has held it for {limit_s:.0f} s") from None
            time.sleep(_PAUSE_S)
        else:
            return
