"""The processes that models run in, and how they are asked."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class ChildFailure(Exception):  # noqa: N818 - it is an outcome of the contest
    """What went wrong in a child, as a status of `Standing` and a sentence."""

    def __init__(self, status: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


class Child:
    """A process that runs one model and answers requests, a line of JSON each."""

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen(
            [python, str(HERE / "worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        self._pending = b""

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Return the answer to a request. Raises ChildFailure."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
        except BrokenPipeError:
            raise self._crash() from None
        answer = json.loads(self._line(limit_s))
        if "failure" in answer:
            raise ChildFailure(answer.get("status", "failed"), answer["failure"])
        return dict(answer)

    def end(self) -> None:
        """Kill the process and all its children."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _line(self, limit_s: float) -> bytes:
        assert self._process.stdout is not None
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise ChildFailure("hung", f"It did not answer within {limit_s:.0f} seconds.")
            read = self._process.stdout.read(1 << 16)
            if not read:
                raise self._crash()
            self._pending += read
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _crash(self) -> ChildFailure:
        code = self._process.wait()
        how = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return ChildFailure("crashed", f"Its process ended {how}.")
