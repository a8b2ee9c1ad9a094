"""Figures that were taken beside other processes are kept, and taken again later."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from korch_cli.measure import ProfileStore, Watch, doubt, kept
from korch_cli.measure.doubt import AGAIN_S


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    made = ProfileStore(tmp_path)
    yield made
    made.close()


def encode(number: int) -> dict[str, Any]:
    return {"number": number}


def decode(document: dict[str, Any]) -> int:
    return int(document["number"])


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What others take, and the hours that have gone by."""
    state = {"others": 0.0, "hours": 0.0}
    now = time.time
    monkeypatch.setattr(Watch, "others", lambda _: state["others"])
    monkeypatch.setattr(time, "time", lambda: now() + state["hours"] * AGAIN_S)
    return state


def ask(store: ProfileStore, number: int) -> int:
    return kept(store, "a figure", lambda: number, encode, decode)


def test_what_was_measured_in_quiet_is_kept_for_good(store: ProfileStore, scene: dict[str, float]) -> None:
    assert ask(store, 1) == 1
    scene["hours"] = 100.0
    assert ask(store, 2) == 1


def test_what_says_nothing_of_others_counts_as_measured_in_quiet(store: ProfileStore, scene: dict[str, float]) -> None:
    store.keep("a figure", encode(1), decode)
    scene.update(hours=100.0, others=0.0)
    assert ask(store, 2) == 1


def test_what_was_measured_beside_others_is_measured_again_an_hour_later(
    store: ProfileStore, scene: dict[str, float]
) -> None:
    scene["others"] = 0.9
    assert ask(store, 1) == 1
    scene["others"] = 0.0
    assert ask(store, 2) == 1  # Runs that follow each other come to the same result.
    scene["hours"] = 1.1
    assert ask(store, 3) == 3
    scene["hours"] = 100.0
    assert ask(store, 4) == 3


def test_the_quieter_of_two_disturbed_measurements_counts(store: ProfileStore, scene: dict[str, float]) -> None:
    for hours, others, number, expected in (
        (0, 0.5, 1, 1),
        (2, 0.9, 2, 1),
        (2.5, 0.2, 3, 1),
        (4, 0.2, 4, 4),
        (6, 0, 5, 5),
    ):
        scene.update(hours=hours, others=others)
        assert ask(store, number) == expected
    scene["hours"] = 100
    assert ask(store, 6) == 5


def statistics(path: Path, *, user: int, idle: int) -> None:
    path.write_text(f"cpu  {user} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3\n")


def test_others_are_told_from_children_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubt, "_STATISTICS", tmp_path / "stat")
    ticks = os.sysconf("SC_CLK_TCK")
    statistics(tmp_path / "stat", user=0, idle=0)
    watch = Watch()
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    statistics(tmp_path / "stat", user=10 * ticks, idle=10 * ticks)
    # Of 20 s in all, 10 s were busy, of which the child and this process took 0.3 s.
    assert 0.4 < watch.others() <= (10 - 0.25) / 20


def test_nothing_is_doubted_where_nothing_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubt, "_STATISTICS", tmp_path / "none")
    assert Watch().others() == 0.0
