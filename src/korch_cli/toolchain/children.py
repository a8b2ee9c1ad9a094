"""Child processes of a build."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError
from pathlib import Path


class Children:
    """Child processes with a group of their own each, so that none of their helpers survives them."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False
        self._starting = threading.Lock()

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def run(self, arguments: Sequence[str], folder: Path, timeout_s: float) -> tuple[int, str]:
        """Run a command in a folder; return its status and all that it wrote.

        Raises:
            TimeoutExpired: it took longer.
            CancelledError: `kill` was called before.
            OSError: it does not start.
        """
        with self._start(arguments, folder) as child:
            try:
                log, _ = child.communicate(timeout=timeout_s)
            except BaseException:
                _kill(child)
                raise
            finally:
                self._running.discard(child)
            return child.returncode, log

    def kill(self) -> None:
        """End those that run, and let no other start."""
        with self._starting:
            self._stopped = True
        for child in list(self._running):
            _kill(child)

    def _start(self, arguments: Sequence[str], folder: Path) -> subprocess.Popen[str]:
        # Under the lock, so that whoever stops the build sees every child that was started.
        with self._starting:
            if self._stopped:
                raise CancelledError
            child = subprocess.Popen(
                list(arguments),
                cwd=folder,
                # What a compiler leaves behind when it is killed goes away with the folder.
                env={**os.environ, "TMPDIR": str(folder)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._running.add(child)
            return child


def _kill(child: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
