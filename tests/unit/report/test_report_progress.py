from __future__ import annotations

import io

import pytest

from korch_cli.core.progress import Silent
from korch_cli.report.progress import BarProgress, LineProgress, show_progress


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_stages_are_lines_with_the_seconds_since_the_start() -> None:
    stream, now = io.StringIO(), [100.0]
    progress = LineProgress(stream, lambda: now[0])
    progress.stage("Loading")
    now[0] = 112.5
    progress.stage("Searching")
    assert stream.getvalue() == "[   0.0 s] Loading\n[  12.5 s] Searching\n"


def test_steps_are_told_only_now_and_then() -> None:
    stream, now = io.StringIO(), [0.0]
    progress = LineProgress(stream, lambda: now[0])
    progress.stage("Measuring")
    for second in range(1, 22):
        now[0] = float(second)
        progress.step(second, 30, f"kernel {second}")
    assert stream.getvalue().splitlines()[1:] == [
        "[  10.0 s]   10 of 30: kernel 10",
        "[  20.0 s]   20 of 30: kernel 20",
    ]


def test_a_pipe_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with show_progress(stream=io.StringIO()) as progress:
        assert isinstance(progress, LineProgress)


def test_quiet_says_nothing() -> None:
    stream = io.StringIO()
    with show_progress(quiet=True, stream=stream) as progress:
        progress.stage("Loading")
        assert isinstance(progress, Silent)
    assert stream.getvalue() == ""


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    stream = _Terminal()
    with show_progress(stream=stream) as progress:
        assert isinstance(progress, BarProgress)
        progress.stage("Measuring")
        progress.step(3, 7, "k_1")
    assert "Measuring" in stream.getvalue()
    assert "3/7" in stream.getvalue()


def test_a_terminal_of_continuous_integration_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with show_progress(stream=_Terminal()) as progress:
        assert isinstance(progress, LineProgress)


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")

    def drawn() -> str:
        stream = _Terminal()
        with show_progress(stream=stream) as progress:
            progress.stage("Measuring")
            progress.step(3, 7)
        return stream.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[3" in drawn()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in drawn()
