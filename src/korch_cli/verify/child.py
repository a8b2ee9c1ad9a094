"""A child process that runs one model at a time: what crashes or hangs there does no harm here."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import IO, Any

from korch_cli.core.types import Array
from korch_cli.verify.library import CPU_PROVIDER

_OPEN_SECONDS = 600.0
_RUN_SECONDS = 600.0
_EXIT_SECONDS = 5.0
_STDERR_BYTES = 2000
_WORKER = Path(__file__).with_name("worker.py")
"""Run as a file: as a module it would import this package, and onnx with it, which takes longer than all else."""

NamedArrays = tuple[tuple[str, Array], ...]


@dataclass(frozen=True, slots=True)
class Subject:
    """A model as it is to be run.

    Attributes:
        name: how messages call it.
        model: the ONNX file.
        library: shared library with custom operators, None to run without.
        optimize: whether ONNX Runtime applies its own optimisations, all or none.
        provider: what it runs on; what that cannot run goes to the CPU.
        exact: whether products of float32 keep all their bits where a provider rounds their operands by default.
    """

    name: str
    model: Path
    library: Path | None
    optimize: bool
    provider: str = CPU_PROVIDER
    exact: bool = False


class ChildError(Exception):
    """The child could not do what it was asked to; the message is a sentence without a subject ("it crashed").

    Args:
        stage: "library", "open", "run", "crash" or "time".
        sentence: what happened.
    """

    def __init__(self, stage: str, sentence: str) -> None:
        super().__init__(sentence)
        self.stage = stage
        self.sentence = sentence


class Child:
    """A running child process; use `child()`, which ends it."""

    def __init__(self) -> None:
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        self._pipe, theirs = Pipe()
        with theirs:
            # -P: the folder of the script is no place to import from.
            command = [sys.executable, "-P", str(_WORKER), str(theirs.fileno())]
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._stderr,
                stderr=self._stderr,
            )

    @property
    def pid(self) -> int:
        """The child's process number."""
        return self._process.pid

    def open(self, subject: Subject, threads: int, *, profile_prefix: Path | None = None) -> None:
        """Load a model; the one before is forgotten. Raises ChildError."""
        library = None if subject.library is None else str(subject.library.resolve())
        prefix = None if profile_prefix is None else str(profile_prefix)
        settings = (subject.optimize, threads, prefix, subject.provider, subject.exact)
        self._ask(_OPEN_SECONDS, "open", str(subject.model), library, *settings)

    def run(self, feeds: Mapping[str, Array], seconds: float = _RUN_SECONDS) -> NamedArrays:
        """Run the model once and return its outputs in order. Raises ChildError."""
        outputs: NamedArrays = self._ask(seconds, "run", dict(feeds))
        return outputs

    def time(self, feeds: Mapping[str, Array], seconds: float) -> tuple[float, ...]:
        """Run the model for about `seconds` and return the time of each run in microseconds. Raises ChildError."""
        times: tuple[float, ...] = self._ask(seconds + _RUN_SECONDS, "time", dict(feeds), seconds)
        return times

    def profile(self, feeds: Mapping[str, Array], runs: int) -> Path:
        """Run a model opened with a profile prefix; return ONNX Runtime's profile. Raises ChildError."""
        return Path(self._ask(_RUN_SECONDS, "profile", dict(feeds), runs))

    def close(self) -> None:
        """End the process, kindly only if it is not in the middle of something."""
        self._pipe.close()
        try:
            self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()
        self._stderr.close()

    def abort(self) -> None:
        """End the process at once."""
        self._kill()
        self._pipe.close()
        self._stderr.close()

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _ask(self, seconds: float, *request: object) -> Any:
        late = threading.Event()

        def expire() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(seconds, expire)
        timer.daemon = True
        timer.start()
        try:
            self._pipe.send(request)
            answer: tuple[Any, ...] = self._pipe.recv()
        except (EOFError, OSError) as error:
            if late.is_set():
                raise ChildError("time", f"it did not finish within {seconds:.0f} s") from error
            raise ChildError("crash", self._last_words()) from error
        finally:
            timer.cancel()
        if answer[0] == "failed":
            raise ChildError(*answer[1:])
        return answer[1]

    def _last_words(self) -> str:
        try:
            code = self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return "its process closed the connection"
        self._stderr.seek(0, 2)
        self._stderr.seek(max(0, self._stderr.tell() - _STDERR_BYTES))
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        said = f": {lines[-1].strip()}" if lines else ""
        how = f"with {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return f"its process ended {how}{said}"


@contextmanager
def child() -> Iterator[Child]:
    """Start a child process, and end it whatever happens."""
    process = Child()
    try:
        yield process
    except BaseException:
        process.abort()
        raise
    process.close()
