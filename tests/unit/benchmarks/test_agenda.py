"""What matters most is measured first."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[3] / "models"))

from agenda import FIRST, by_importance
from fetch import catalogue


def test_the_papers_models_come_first_and_the_rest_keeps_its_order() -> None:
    names = list(catalogue())
    found = by_importance(reversed(names))
    assert [name.rpartition("-")[0] for name in found[:6]] == [name.rpartition("-")[0] for name in found[6:12]]
    assert {name.rpartition("-")[2] for name in found[:6]} == {"dynamo"}
    assert {name.rpartition("-")[2] for name in found[6:12]} == {"script"}
    assert found[0] == "candy-dynamo"
    assert all(name.startswith("ppocr_") for name in found[12:15])
    ranked = [name for name in found if name.startswith(FIRST)]
    assert list(found[: len(ranked)]) == ranked
    assert list(found[len(ranked) :]) == [name for name in reversed(names) if not name.startswith(FIRST)]


def test_every_rank_is_some_models() -> None:
    names = list(catalogue())
    assert [start for start in FIRST if not any(name.startswith(start) for name in names)] == []
