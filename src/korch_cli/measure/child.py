"""Child processes that run what may crash or hang, one request at a time."""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, BinaryIO

from korch_cli.core.artifact import KernelResult
from korch_cli.core.progress import Progress

_ENDING_S = 5.0

Request = tuple[str, dict[str, Any]]
"""What a child is asked for, and the arguments."""


class WorkerError(Exception):
    """A request that the child did not answer; the sentence says why."""


class Worker:
    """A child process that answers requests; after a failure the next request gets a fresh one."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def ask(self, request: Request, time_limit_s: float) -> Any:
        """Return the child's answer.

        Raises:
            WorkerError: it crashed, took too long, or an exception ended the request.
        """
        child = self._started()
        assert child.stdin is not None
        assert child.stdout is not None
        late = threading.Event()

        def give_up() -> None:
            late.set()
            child.kill()

        timer = threading.Timer(time_limit_s, give_up)
        timer.daemon = True
        timer.start()
        try:
            send(child.stdin, request)
            status, answer = receive(child.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            ending = _ending(child)
            self.stop()
            if late.is_set():
                raise WorkerError(f"It takes more than {time_limit_s:g} s") from error
            raise WorkerError(f"It crashes: {ending}") from error
        except BaseException:
            self.stop()
            raise
        finally:
            timer.cancel()
        if late.is_set():
            # The answer came as the time ran out: the next request must not find a dead child.
            self.stop()
        if status != "ok":
            raise WorkerError(str(answer))
        return answer

    def stop(self) -> None:
        """End the child."""
        if self._child is None:
            return
        self._child.kill()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._child.wait()
        self._child = None

    def interrupt(self) -> None:
        """Let the request that another thread waits for fail."""
        child = self._child
        if child is not None:
            child.kill()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            # -P: the working folder is no place to import from.
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "korch_cli.measure.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        return self._child


def ask_each(
    requests: Sequence[tuple[str, Request]], *, time_limit_s: float, progress: Progress, worker: Worker | None = None
) -> Iterator[KernelResult]:
    """Ask one child for every kernel; one that crashes or hangs costs only itself.

    Args:
        requests: each with the name of its kernel.
        time_limit_s: seconds that one kernel may take in all.
        progress: told of each kernel.
        worker: the child, which goes on; None for one that ends with the last kernel.
    """
    with contextlib.nullcontext(worker) if worker is not None else Worker() as child:
        for done, (name, request) in enumerate(requests, 1):
            result = ask_for(child, name, request, time_limit_s)
            progress.step(done, len(requests), name)
            yield result


def ask_for(child: Worker, name: str, request: Request, time_limit_s: float) -> KernelResult:
    """Return the child's result for a kernel, or why it has none."""
    try:
        result: KernelResult = child.ask(request, time_limit_s)
    except WorkerError as error:
        return KernelResult(name, None, None, str(error))
    return result


def send(stream: BinaryIO | Any, message: object) -> None:
    """Write one message."""
    content = pickle.dumps(message)
    stream.write(len(content).to_bytes(8, "little") + content)
    stream.flush()


def receive(stream: BinaryIO | Any) -> Any:
    """Read one message that `send` wrote. Raises EOFError."""
    size = stream.read(8)
    if len(size) < 8:
        raise EOFError
    content = stream.read(int.from_bytes(size, "little"))
    return pickle.loads(content)  # noqa: S301 - the other end is this same program


def _ending(child: subprocess.Popen[bytes]) -> str:
    """Return how a child ended that closed its pipes, which it does a moment before."""
    try:
        code = child.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        return "it closed the connection"
    return f"signal {-code}" if code < 0 else f"exit code {code}"
