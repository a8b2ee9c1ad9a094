"""One run of a check command on a model."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from korch_cli.core.errors import UsageError

TIMED_OUT = 124
"""The status of a check that did not end in time, as of timeout(1)."""
_SIGNALLED = 128
"""A check that a signal ended has this status and the signal's number, as in a shell."""
_PLACE = "{}"
_READ_BYTES = 1 << 20
"""Of a check's output, the end counts."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a check ended.

    Attributes:
        status: its exit status.
        output: the end of what it wrote to stdout and stderr.
    """

    status: int
    output: str

    @property
    def message(self) -> str:
        """The last line of the output that is not indented: what follows it explains it."""
        lines = [line for line in self.output.splitlines() if line.strip()]
        return next((line for line in reversed(lines) if not line[0].isspace()), "").strip()


def run_check(words: Sequence[str], model: Path, seconds: float) -> Ending:
    """Run a command on a model, without a shell, and end it and its children if it takes too long.

    Its folder for temporary files is one of its own, so that whatever it leaves there goes away with it.

    Args:
        words: the command; `{}` in a word stands for the model's path, which becomes the last word if none has it.
        model: the ONNX file.
        seconds: time that the command may take.

    Raises:
        UsageError: there is no such program.
    """
    command = [word.replace(_PLACE, str(model)) for word in words]
    if not any(_PLACE in word for word in words):
        command.append(str(model))
    with tempfile.TemporaryDirectory(prefix="korch-check-") as scratch, tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "TMPDIR": scratch},
            )
        except OSError as error:
            hint = "it is run without a shell; for one, write --check \"sh -c '...'\""
            raise UsageError(f"the check cannot be run: {error.strerror}", where=command[0], hint=hint) from error
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            status = TIMED_OUT
        except BaseException:
            _end(process)
            raise
        return Ending(status if status >= 0 else _SIGNALLED - status, _tail(output))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the command and whatever it started that is still in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(output: IO[bytes]) -> str:
    output.seek(max(0, output.seek(0, os.SEEK_END) - _READ_BYTES))
    return output.read().decode(errors="replace")
