"""Several child processes at the same time, each with something of its own, such as a GPU."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from korch_cli.core.artifact import KernelResult
from korch_cli.core.progress import Progress
from korch_cli.measure.child import Request, Worker, ask_for


@dataclass(slots=True)
class _Crew:
    """What the threads that wait for children share.

    Attributes:
        waiting: requests that no child has, each with the name of its kernel.
        answers: of the children; an exception is an error of this program.
        is_over: set when nobody waits for answers any more.
    """

    waiting: queue.SimpleQueue[tuple[str, Request]] = field(default_factory=queue.SimpleQueue)
    answers: queue.SimpleQueue[KernelResult | BaseException] = field(default_factory=queue.SimpleQueue)
    is_over: threading.Event = field(default_factory=threading.Event)


def ask_crew(
    requests: Sequence[tuple[str, Request]],
    members: Sequence[Mapping[str, Any]],
    *,
    time_limit_s: float,
    progress: Progress,
) -> Iterator[KernelResult]:
    """Ask one child a member, each for the next kernel as soon as it is free; results come as they are ready.

    A kernel that crashes or hangs costs only itself, and the next one after a failure finds a new child.

    Args:
        requests: each with the name of its kernel.
        members: what every request to one child says beside its own arguments.
        time_limit_s: seconds that one kernel may take in all.
        progress: told of each kernel.
    """
    crew = _Crew()
    for request in requests:
        crew.waiting.put(request)
    workers = [Worker() for _ in members]
    threads = [
        threading.Thread(target=_serve, args=(crew, worker, member, time_limit_s), daemon=True)
        for worker, member in zip(workers, members, strict=True)
    ]
    for thread in threads:
        thread.start()
    try:
        for done in range(1, len(requests) + 1):
            answer = crew.answers.get()
            if isinstance(answer, BaseException):
                raise answer
            progress.step(done, len(requests), answer.name)
            yield answer
    finally:
        crew.is_over.set()
        for worker, thread in zip(workers, threads, strict=True):
            worker.interrupt()
            thread.join()


def _serve(crew: _Crew, worker: Worker, member: Mapping[str, Any], time_limit_s: float) -> None:
    with worker:
        while not crew.is_over.is_set():
            try:
                name, (kind, arguments) = crew.waiting.get_nowait()
            except queue.Empty:
                return
            try:
                result = ask_for(worker, name, (kind, {**arguments, **member}), time_limit_s)
            except BaseException as error:
                crew.answers.put(error)
                return
            if result.failure is not None:
                # After a fault on a GPU a process can do nothing more with it.
                worker.stop()
            crew.answers.put(result)
