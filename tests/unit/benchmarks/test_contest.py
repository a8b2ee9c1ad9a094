"""A contest sees through runtimes that compute something else, sleep, fail, crash or hang."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import contest as stage
from child import Child

RUNTIMES = '''
import os, time
import numpy as np

class Honest:
    def __init__(self, *, feeds, threads, factor=2.0, work=1):
        self.x, self.factor, self.work = feeds["x"], factor, work
    def run(self):
        for _ in range(self.work):
            y = self.x * self.factor
        return [y]

class Sleepy(Honest):
    def run(self):
        time.sleep(0.01)
        return super().run()

class Forgetful(Honest):
    """Right while it is being looked at, and then not."""
    runs = 0
    def run(self):
        self.runs += 1
        return super().run() if self.runs < 3 else [self.x]

class Failing(Honest):
    def run(self):
        raise ValueError("no such kernel\\nand more")

class Crashing(Honest):
    def run(self):
        os.abort()

class Leaving(Honest):
    def run(self):
        os._exit(7)

class Hanging(Honest):
    runs = 0
    def run(self):
        self.runs += 1
        while self.runs > 1:
            pass
        return super().run()

class Heavy(Honest):
    """Works more than ten times as long, and honestly."""
    def run(self):
        for _ in range(200):
            y = super().run()
        return y

class HeavyForgetful(Heavy):
    runs = 0
    def run(self):
        self.runs += 1
        return super().run() if self.runs < 2 else [self.x]

class Turncoat(Honest):
    """Right until a file appears, and then not."""
    def __init__(self, *, mark, **options):
        super().__init__(**options)
        self.mark = mark
    def run(self):
        return super().run() if not os.path.exists(self.mark) else [self.x]

class Absent:
    def __init__(self, **_):
        import a_package_that_nobody_has

class Shapeless(Honest):
    def run(self):
        return [self.x[:1] * 2]

class NotANumber(Honest):
    def run(self):
        y = self.x * 2
        y[3] = float("nan")
        return [y]
'''
FEEDS = {"x": np.arange(1, 200_001, dtype=np.float32)}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("planted") / "planted.py"
    path.write_text(RUNTIMES, encoding="utf-8")
    return str(path)


def hold(planted: str, *runtimes: str, **options: object) -> list[stage.Standing]:
    players = [stage.Contestant(name, f"{planted}:{name}", dict(options)) for name in runtimes]
    reference = stage.Contestant("reference", f"{planted}:Honest", {})
    standings: list[stage.Standing] = stage.hold(
        players, reference, FEEDS, threads=1, sittings=2, rounds=2, block_s=0.05
    )
    return standings


def test_honest_runtimes_get_figures(planted: str) -> None:
    first, second = hold(planted, "Honest", "Honest")
    assert (first.status, second.status) == ("ok", "ok")
    row = second.row(first)
    assert row["ratio"]["pairs"] == 4
    assert row["ratio"]["low"] <= row["ratio"]["value"] <= row["ratio"]["high"]
    assert row["error"] == 0.0
    assert row["peak_mb"] > 1
    assert [len(blocks) for blocks in first.sittings] == [2, 2]
    assert len(first.opened_s) == 2


@pytest.mark.parametrize(
    ("runtime", "status", "word"),
    [
        ("Forgetful", "wrong", "differs"),
        ("Shapeless", "wrong", "shapes"),
        ("NotANumber", "wrong", "finite"),
        ("Sleepy", "asleep", "processor"),
        ("Failing", "failed", "no such kernel"),
        ("Crashing", "crashed", "SIGABRT"),
        ("Leaving", "crashed", "7"),
        ("Absent", "missing", "a_package_that_nobody_has"),
    ],
)
def test_a_planted_lie_is_called_what_it_is(planted: str, runtime: str, status: str, word: str) -> None:
    honest, liar = hold(planted, "Honest", runtime)
    assert honest.status == "ok"
    assert liar.status == status
    assert word in liar.sentence
    row = liar.row(honest)
    assert "median_us" not in row
    assert "ratio" not in row


def test_a_runtime_that_hangs_ends_its_part_alone(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "GRACE", 1.0)
    honest, liar = hold(planted, "Honest", "Hanging")
    assert (honest.status, liar.status) == ("ok", "hung")


def test_wrong_by_a_factor(planted: str) -> None:
    (standing,) = hold(planted, "Honest", factor=2.01)
    assert standing.status == "wrong"


def test_who_is_far_slower_plays_one_block_and_has_no_interval(planted: str) -> None:
    honest, heavy = hold(planted, "Honest", "Heavy")
    assert (honest.status, heavy.status, heavy.slow, honest.slow) == ("ok", "ok", True, False)
    assert [len(blocks) for blocks in heavy.sittings] == [1]
    assert [len(blocks) for blocks in honest.sittings] == [2, 2]
    found = heavy.row(honest)["ratio"]
    assert found["pairs"] == 1
    assert found["value"] < 0.1
    assert "low" not in found


def test_a_slow_liar_is_still_caught(planted: str) -> None:
    honest, liar = hold(planted, "Honest", "HeavyForgetful")
    assert (honest.status, liar.status) == ("ok", "wrong")
    assert "ratio" not in liar.row(honest)


def test_who_takes_long_to_open_is_opened_once_and_sits_every_time(
    planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "LONG_OPEN_SECONDS", 0.0)
    late, again = (hold(planted, "Honest")[0] for _ in range(2))
    assert [len(blocks) for blocks in late.sittings] == [2, 2]
    assert len(late.opened_s) == 1
    assert again.row(late)["opened_once"] is True
    assert again.row(late)["ratio"]["pairs"] == 4
    monkeypatch.setattr(stage, "LONG_OPEN_SECONDS", 60.0)
    (late,) = hold(planted, "Honest")
    assert len(late.opened_s) == 2
    assert late.row(None)["opened_once"] is False


def test_a_liar_that_keeps_its_process_is_caught_in_a_later_sitting(
    planted: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stage, "LONG_OPEN_SECONDS", 0.0)
    mark = tmp_path / "second sitting"
    player = stage.Contestant("late", f"{planted}:Turncoat", {"mark": str(mark)})
    reference = stage.Contestant("reference", f"{planted}:Honest", {})
    sit = stage._sit

    def sit_and_mark(*arguments: Any) -> None:
        sit(*arguments)
        mark.touch()

    monkeypatch.setattr(stage, "_sit", sit_and_mark)
    (standing,) = stage.hold([player], reference, FEEDS, threads=1, sittings=2, rounds=1, block_s=0.05)
    assert len(standing.sittings) == 2
    assert (standing.status, len(standing.opened_s)) == ("wrong", 1)


def test_no_process_is_left_behind(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Child] = []

    class Counted(Child):
        def __init__(self, python: str) -> None:
            super().__init__(python)
            started.append(self)

    monkeypatch.setattr(stage, "Child", Counted)
    monkeypatch.setattr(stage, "LONG_OPEN_SECONDS", 0.0)
    hold(planted, "Honest", "Heavy", "Crashing")
    assert len(started) == 4
    assert all(child._process.poll() is not None for child in started)


def test_ratios_follow_the_blocks() -> None:
    first, second = [[[10.0, 11.0, 12.0], [20.0, 22.0]]], [[[5.0, 5.5, 6.0], [10.0, 11.0]]]
    found = stage.ratio(first, second)
    assert math.isclose(found["value"], 2.0)
    assert found["pairs"] == 2


def test_intervals_take_in_what_differs_between_sittings() -> None:
    """Blocks of one process agree with each other however lucky that process was."""
    steady = [[[10.0]] * 8] * 3
    lucky = [[[5.0]] * 8, [[8.0]] * 8, [[10.0]] * 8]
    found = stage.ratio(steady, lucky)
    assert found["value"] == 1.25
    assert found["low"] == 1.0
    assert found["high"] == 2.0
