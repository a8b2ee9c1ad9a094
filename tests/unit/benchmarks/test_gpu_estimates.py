"""The page of estimates: every figure says what it is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from korch_cli.measure.cuda import named_gpu

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import gpu_estimates
from gpu_estimates import SUBJECTS, page, proof, row

PAPER, OTHER = SUBJECTS[0], SUBJECTS[-1]


def report(*, changed: bool) -> dict[str, Any]:
    search = {"vendor_us": 300.0, "plan_us": 200.0, "solver_status": "feasible", "gap": 0.0123}
    kernels = [{"uses": 3, "spill_bytes": 0}, {"uses": 1, "spill_bytes": 48}]
    return {"changed": changed, "search": search, "kernels": kernels if changed else []}


def cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.strip("|").split("|")]


def test_a_row_has_both_estimates_and_what_the_paper_measured_on_the_same_gpu() -> None:
    found = cells(row(PAPER, "A100-80GB", report(changed=True)))
    ratios = ", ".join(f"{ratio:.1f}" for ratio in PAPER.paper or ())
    expected = ["300 µs", "200 µs", "1.50", "2, used 4 times", "48", "within 1.2% of the best", ratios]
    assert found == [PAPER.title, "A100-80GB", *expected]
    assert cells(row(PAPER, "H100-SXM", report(changed=True)))[-1] == ""
    assert cells(row(OTHER, "A100-80GB", report(changed=True)))[-1] == ""


def test_an_input_that_is_written_unchanged_gains_nothing() -> None:
    assert cells(row(OTHER, "A100-80GB", report(changed=False)))[2:6] == ["300 µs", "300 µs", "1.00", "0, used 0 times"]


def test_a_search_that_its_budget_ended_is_not_called_optimal() -> None:
    assert proof({"gap": 0.179}) == "best found in the budget; the best may be up to 17.9% lower"
    assert proof({"gap": 0.02}) == "within 2.0% of the best"


def test_the_page_says_that_its_figures_are_estimates_and_has_whole_rows() -> None:
    text = page([(PAPER, "A100-80GB", report(changed=True)), (OTHER, "H100-SXM", "error: no such file")], "2m")
    assert "an estimate; none was measured" in " ".join(text.split())
    assert "error: no such file" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in rows}) == 1


@pytest.mark.parametrize("gpu", gpu_estimates._GPUS)
def test_the_gpus_are_known(gpu: str) -> None:
    assert gpu_estimates._GPUS[gpu].startswith(named_gpu(gpu).arch)
