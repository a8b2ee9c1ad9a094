"""A process that prints lines of JSON, and may be silent for only so long, for `gpu_check`."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from typing import Any

_GRACE_S = 5.0
"""For a process that printed its last line to end."""
GO_ON = frozenset({3})
"""Exit codes that ask for another process for the steps that are left."""


class Child:
    """A process in a session of its own, ended with all that it started when the block is left."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._slow = ""
        self.other: list[str] = []
        """Lines that are no JSON."""

    def __enter__(self) -> Child:
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=self._errors, text=True, start_new_session=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._errors.close()

    def line(self, longest_s: float) -> Any:
        """Return the next line's value; None if the process ended, or was silent for that long and is ended."""
        while True:
            try:
                text = self._lines.get(timeout=max(0.0, longest_s))
            except queue.Empty:
                self._slow = f"it took longer than {longest_s:.0f} s"
                self._end()
                return None
            if text is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_GRACE_S)
                return None
            try:
                return json.loads(text)
            except ValueError:
                self.other.append(text.rstrip())

    @property
    def status(self) -> int | None:
        """The exit code; None for a process that was ended."""
        return None if self._slow else self._process.returncode

    def may_go_on(self) -> bool:
        """Return whether the process ended by itself and asks for another one."""
        return not self._slow and self._process.returncode in GO_ON

    @property
    def why(self) -> str:
        """Why there is no line any more, in one sentence."""
        if self._slow:
            return self._slow
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(said) if line.strip()), "it said nothing")
        return f"its process ended with {self._process.returncode}: {last}"

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for text in lines:
                self._lines.put(text)
        self._lines.put(None)

    def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(_GRACE_S)
