"""Two runs agree where their intervals meet, and what does not is named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import agreement

SCRIPT = agreement.__file__


def document(value: float, low: float, high: float) -> dict[str, Any]:
    ratio = {"value": value, "low": low, "high": high}
    rows = [{"runtime": "ORT"}, {"runtime": "korch", "ratio": ratio}, {"runtime": "copy", "ratio": ratio}]
    return {
        "models": [{"model": "net", "rows": rows}, {"model": "broken", "failure": "It is not there."}],
        "kernels": [{"pattern": "norm", "rows": rows[:2]}],
    }


def run(tmp_path: Path, *documents: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    paths = []
    for number, content in enumerate(documents):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(json.dumps(content), encoding="utf-8")
    command = [sys.executable, SCRIPT, *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_copies_and_failures_have_no_ratio_to_compare() -> None:
    assert set(agreement.ratios(document(1.5, 1.4, 1.6))) == {("net", "korch"), ("norm", "korch")}


def test_intervals_that_meet_agree(tmp_path: Path) -> None:
    done = run(tmp_path, document(1.5, 1.4, 1.6), document(1.7, 1.6, 1.8))
    assert (done.returncode, done.stdout) == (0, "2 of 2 ratios agree; 0 are in one run only.\n")


def test_intervals_apart_are_named(tmp_path: Path) -> None:
    slow, fast = document(1.5, 1.4, 1.6), document(1.7, 1.61, 1.8)
    for pair in ((slow, fast), (fast, slow)):
        done = run(tmp_path, *pair)
        assert done.returncode == 1
        assert "net, korch: 1." in done.stdout
        assert "0 of 2 ratios agree" in done.stdout


def test_runs_with_nothing_in_common_do_not_agree(tmp_path: Path) -> None:
    done = run(tmp_path, document(1.5, 1.4, 1.6), {"models": [], "kernels": []})
    assert done.returncode == 1
    assert "2 are in one run only" in done.stdout


def test_what_played_one_block_has_no_interval_to_compare() -> None:
    alone = document(1.5, 1.4, 1.6)
    alone["models"][0]["rows"].append({"runtime": "TVM", "ratio": {"value": 0.02, "pairs": 1}})
    assert set(agreement.ratios(alone)) == {("net", "korch"), ("norm", "korch")}
