"""Kernels in the child process: what is sound is timed, and what is not costs only itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from korch_cli.core.artifact import KernelJob, KernelResult
from korch_cli.core.kernel import TimingSource
from korch_cli.core.progress import Silent
from korch_cli.measure import measure_kernels
from korch_cli.measure.child import Worker, WorkerError
from tests.processes import ends, is_running

JobMaker = Callable[..., KernelJob]


def _measure(baseline: Path, *jobs: KernelJob) -> list[KernelResult]:
    return list(measure_kernels(jobs, baseline=baseline, threads=1, seed=0, time_limit_s=60.0, progress=Silent()))


def test_what_fails_costs_only_itself(job: JobMaker, baseline: Path) -> None:
    names = ["wrong", "crashes", "leaves", "loses_nan", "right"]
    results = _measure(baseline, *map(job, names))
    assert [r.name for r in results] == names
    wrong, crashes, leaves, loses_nan, right = results
    assert crashes.failure == "It crashes: signal 11"
    assert leaves.failure == "It crashes: exit code 3"
    assert wrong.failure is not None
    assert wrong.failure.startswith("It computes something else: 300000.0 instead of ")
    assert wrong.failure.endswith("at [9]")
    assert loses_nan.failure is not None
    assert "0.0 instead of nan" in loses_nan.failure
    assert all(r.timing is None and r.alternative is None for r in results[:-1])
    # Half of the operands are negative: the square root and its kernel agree on NaN.
    assert right.failure is None
    for timing in (right.timing, right.alternative):
        assert timing is not None
        assert 0 < timing.low_us <= timing.median_us <= timing.high_us
        assert timing.samples > 0
        assert timing.source is TimingSource.MEASURED


def test_a_kernel_that_hangs_is_given_up(job: JobMaker, baseline: Path) -> None:
    def request(name: str) -> tuple[str, dict[str, Any]]:
        return "kernel", {"job": job(name), "baseline": baseline, "threads": 1, "seed": 0}

    with Worker() as worker:
        worker.ask(request("right"), 60.0)
        pid = worker._started().pid
        # The child is warm now: what takes long is the kernel.
        with pytest.raises(WorkerError, match="It takes more than 2 s"):
            worker.ask(request("hangs"), 2.0)
        assert not is_running(pid)
        assert worker.ask(request("right"), 60.0).failure is None


def test_what_cannot_be_checked_is_no_kernel(job: JobMaker, baseline: Path) -> None:
    results = _measure(baseline, job("unknown", standard="NoSuchOperator"), job("right"))
    assert results[0].failure is not None
    assert results[0].timing is None
    assert results[1].failure is None


def test_a_library_that_is_missing_is_a_failure(job: JobMaker, baseline: Path, tmp_path: Path) -> None:
    (result,) = _measure(baseline, replace(job("right"), library=tmp_path / "none.so"))
    assert result.failure is not None
    assert "none.so" in result.failure


def test_progress_hears_of_every_kernel(job: JobMaker, baseline: Path) -> None:
    heard: list[tuple[int, int, str]] = []

    class Recorder(Silent):
        def step(self, done: int, total: int, text: str = "") -> None:
            heard.append((done, total, text))

    jobs = [job("crashes"), job("leaves")]
    list(measure_kernels(jobs, baseline=baseline, threads=1, seed=0, time_limit_s=60, progress=Recorder()))
    assert heard == [(1, 2, "crashes"), (2, 2, "leaves")]


def test_abandoned_measuring_leaves_no_child(job: JobMaker, baseline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    popen = subprocess.Popen

    def recorded(*args: object, **kwargs: object) -> subprocess.Popen[bytes]:
        child = popen(*args, **kwargs)  # type: ignore[call-overload]
        started.append(child.pid)
        return child  # type: ignore[no-any-return]

    monkeypatch.setattr(subprocess, "Popen", recorded)
    results = measure_kernels(
        [job("right"), job("wrong")], baseline=baseline, threads=1, seed=0, time_limit_s=60, progress=Silent()
    )
    next(iter(results))
    (pid,) = started
    assert is_running(pid)
    results.close()  # type: ignore[attr-defined]
    assert not is_running(pid)


_HANGING_PARENT = """
import pickle, subprocess, sys
from korch_cli.measure.child import Worker
worker = Worker()
print(worker._started().pid, flush=True)
job, baseline = pickle.load(open(sys.argv[1], "rb"))
worker.ask(("kernel", {"job": job, "baseline": baseline, "threads": 1, "seed": 0}), 600.0)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_hanging_kernel_does_not_outlive_korch(
    how: signal.Signals, job: JobMaker, baseline: Path, tmp_path: Path
) -> None:
    import pickle

    request = tmp_path / "request"
    request.write_bytes(pickle.dumps((job("hangs"), baseline)))
    command = [sys.executable, "-c", _HANGING_PARENT, str(request)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        deadline = time.monotonic() + 30
        while "kernels.so" not in _maps(pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "kernels.so" in _maps(pid)
        os.kill(parent.pid, how)
    assert ends(pid)


def _maps(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
    except OSError:
        return ""


def test_a_failed_request_leaves_the_child_running() -> None:
    with Worker() as worker:
        for _ in range(2):
            with pytest.raises(WorkerError, match="KeyError"):
                worker.ask(("no such request", {}), 60.0)
            pid = worker._started().pid
    assert not is_running(pid)


def test_the_child_takes_nothing_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    with Worker() as worker, pytest.raises(WorkerError, match="KeyError"):
        worker.ask(("no such request", {}), 60.0)
