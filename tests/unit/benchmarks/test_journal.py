"""An interrupted run goes on where it stopped, and nothing of another run gets into it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from journal import Journal, differences, names_in

KEY = {"budget": "5m", "runtimes": ("a", "b"), "versions": {"onnx": "1", "torch": "2"}, "code": {"src": "abc"}}


def measured(journal: Journal, name: str, entry: dict[str, Any], *, kept: bool = True) -> tuple[dict[str, Any], bool]:
    """Return the entry, and whether it was measured for it."""
    asked: list[str] = []

    def measure() -> dict[str, Any]:
        asked.append(name)
        return entry

    found = journal.once("models", name, measure, lambda _: kept)
    assert found is not None
    return {name: value for name, value in found.items() if name != "made"}, bool(asked)


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "work" / "journal.jsonl"
    assert measured(Journal(path, KEY), "net", {"us": 1}) == ({"us": 1}, True)
    assert measured(Journal(path, KEY), "net", {"us": 2}) == ({"us": 1}, False)
    assert measured(Journal(path, KEY), "other", {"us": 3}) == ({"us": 3}, True)


def test_what_is_not_worth_keeping_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    assert measured(Journal(path, KEY), "net", {"us": 1}, kept=False) == ({"us": 1}, True)
    assert measured(Journal(path, KEY), "net", {"us": 2}) == ({"us": 2}, True)


def test_other_code_and_complete_runs_start_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    measured(Journal(path, KEY), "net", {"us": 1})
    assert measured(Journal(path, KEY | {"code": {"src": "abd"}}), "net", {"us": 2}) == ({"us": 2}, True)
    Journal(path, KEY | {"code": {"src": "abd"}}).close()
    assert measured(Journal(path, KEY | {"code": {"src": "abd"}}), "net", {"us": 3}) == ({"us": 3}, True)


def test_a_line_cut_short_costs_that_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, KEY)
    measured(journal, "net", {"us": 1})
    measured(journal, "other", {"us": 2})
    path.write_text(path.read_text(encoding="utf-8")[:-9], encoding="utf-8")
    again = Journal(path, KEY)
    assert measured(again, "net", {"us": 3}) == ({"us": 1}, False)
    assert measured(again, "other", {"us": 4}) == ({"us": 4}, True)
    assert measured(Journal(path, KEY), "other", {"us": 5}) == ({"us": 4}, False)


def test_another_commit_with_the_same_code_goes_on_and_each_entry_says_where_it_is_from(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path, KEY, commit="one", processor="model 1").once("models", "net", lambda: {"us": 1}, lambda _: True)
    second = Journal(path, KEY, commit="two", processor="model 2")
    old = second.once("models", "net", lambda: {"us": 2}, lambda _: True)
    new = second.once("models", "other", lambda: {"us": 3}, lambda _: True)
    assert old is not None
    assert new is not None
    assert (old["us"], old["made"]["commit"], new["made"]["commit"]) == (1, "one", "two")
    assert {"call", "at", "commit", "processor", "minutes"} == set(new["made"])


def test_nothing_new_begins_when_the_time_is_up(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    measured(Journal(path, KEY), "net", {"us": 1})
    journal = Journal(path, KEY, minutes=0)
    assert journal.once("models", "other", lambda: pytest.fail("measured"), lambda _: True) is None
    assert measured(journal, "net", {"us": 2}) == ({"us": 1}, False)
    assert journal.left_out == ["other"]
    assert names_in(path, "models") == {"net"}
    assert measured(Journal(path, KEY), "other", {"us": 3}) == ({"us": 3}, True)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"budget": "60s"}, ["budget (5m, now 60s)"]),
        ({"versions": {"onnx": "1", "torch": "3"}}, ["versions torch (2, now 3)"]),
        ({"versions": {"onnx": "1"}}, ["versions torch (2, now None)"]),
        ({"runtimes": ("a",)}, ["runtimes (['a', 'b'], now ['a'])"]),
        ({}, []),
    ],
)
def test_what_is_different_in_another_run_is_named(tmp_path: Path, change: dict[str, Any], told: list[str]) -> None:
    path = tmp_path / "journal.jsonl"
    assert differences(path, KEY) == []
    Journal(path, KEY)
    assert differences(path, KEY | change) == told


def test_progress_is_told_with_what_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "journal.jsonl"
    agenda = {"models": ["net", "other", "third"], "kernels": ["norm"]}
    journal = Journal(path, KEY, agenda=agenda)
    measured(journal, "net", {"us": 1})
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(lines).replace('"minutes": 0.0', '"minutes": 20.0') + "\n", encoding="utf-8")
    again = Journal(path, KEY, agenda=agenda)
    measured(again, "other", {"us": 1})
    again.once("kernels", "norm", lambda: {"us": 1}, lambda _: False)
    measured(again, "third", {"us": 1})
    assert capsys.readouterr().err.splitlines() == [
        "net (0 of 4 done)",
        "other (1 of 4 done, more than 40 minutes to go)",
        "norm (2 of 4 done, more than 10 minutes to go)",
        "third (3 of 4 done, 10 minutes to go)",
    ]
