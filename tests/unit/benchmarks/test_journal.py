"""An interrupted run goes on where it stopped, and nothing of another run gets into it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from journal import Journal

KEY = {"command": "run", "commit": "abc"}


def measured(journal: Journal, name: str, entry: dict[str, Any], *, kept: bool = True) -> tuple[dict[str, Any], bool]:
    """Return the entry, and whether it was measured for it."""
    asked: list[str] = []

    def measure() -> dict[str, Any]:
        asked.append(name)
        return entry

    return journal.once("models", name, measure, lambda _: kept), bool(asked)


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
    assert measured(Journal(path, KEY | {"commit": "abd"}), "net", {"us": 2}) == ({"us": 2}, True)
    Journal(path, KEY | {"commit": "abd"}).close()
    assert measured(Journal(path, KEY | {"commit": "abd"}), "net", {"us": 3}) == ({"us": 3}, True)


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
