"""Several children at the same time: each request once, whoever is free; failures and endings cost nobody else."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest

from korch_cli.core.artifact import KernelResult
from korch_cli.core.progress import Silent
from korch_cli.measure import crew
from korch_cli.measure.child import Request, WorkerError
from korch_cli.measure.crew import ask_crew

LIMIT_S = 30.0


class Child:
    """Stands for a child process; what a request does is its kind."""

    every: ClassVar[list[Child]] = []
    meeting: ClassVar[threading.Barrier]

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.stopped_after: list[str] = []
        self.killed = threading.Event()
        Child.every.append(self)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def ask(self, request: Request, time_limit_s: float) -> KernelResult:
        assert time_limit_s == LIMIT_S
        kind, arguments = request
        self.asked.append((arguments["name"], arguments["device"]))
        if kind == "meet":
            Child.meeting.wait(LIMIT_S)
        elif kind == "hang":
            assert self.killed.wait(LIMIT_S)
            raise WorkerError("It crashes: signal 9")
        elif kind == "crash":
            raise WorkerError("It crashes: signal 11")
        elif kind == "bug":
            raise TypeError("a bug")
        return KernelResult(arguments["name"], None, None, None)

    def stop(self) -> None:
        self.stopped_after.append(self.asked[-1][0] if self.asked else "")

    def interrupt(self) -> None:
        self.killed.set()


@pytest.fixture(autouse=True)
def children(monkeypatch: pytest.MonkeyPatch) -> list[Child]:
    monkeypatch.setattr(crew, "Worker", Child)
    monkeypatch.setattr(Child, "every", [])
    return Child.every


def asked(kinds: Mapping[str, str], devices: int) -> Iterator[KernelResult]:
    requests: list[tuple[str, Request]] = [(name, (kind, {"name": name})) for name, kind in kinds.items()]
    members: list[dict[str, Any]] = [{"device": device} for device in range(devices)]
    return ask_crew(requests, members, time_limit_s=LIMIT_S, progress=Silent())


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_all_work_at_the_same_time_and_each_request_is_answered_once(children: list[Child], devices: int) -> None:
    Child.meeting = threading.Barrier(devices)
    kinds = {f"k{i}": "meet" for i in range(4 * devices)}
    assert sorted(result.name for result in asked(kinds, devices)) == sorted(kinds)
    assert [{device for _, device in child.asked} for child in children] == [{device} for device in range(devices)]
    assert sorted(name for child in children for name, _ in child.asked) == sorted(kinds)


def test_no_more_children_than_members_and_no_requests_are_nothing(children: list[Child]) -> None:
    assert list(asked({}, 2)) == []
    assert len(children) == 2


def test_a_failure_is_one_result_and_the_next_request_finds_a_new_child(children: list[Child]) -> None:
    results = {result.name: result.failure for result in asked({"a": "", "b": "crash", "c": ""}, 1)}
    assert results == {"a": None, "b": "It crashes: signal 11", "c": None}
    assert children[0].stopped_after == ["b", "c"]


def test_who_stops_listening_ends_the_children(children: list[Child]) -> None:
    found = asked({"a": "", "b": "hang", "c": "hang", "d": "hang"}, 2)
    assert next(found).name == "a"
    found.close()  # type: ignore[attr-defined]
    assert all(child.killed.is_set() for child in children)
    assert not [thread for thread in threading.enumerate() if thread.daemon and "_serve" in thread.name]
    assert "d" not in [name for child in children for name, _ in child.asked]


def test_an_error_of_the_program_is_no_result() -> None:
    with pytest.raises(TypeError, match="a bug"):
        list(asked({"a": "bug", "b": ""}, 1))
