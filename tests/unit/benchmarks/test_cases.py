"""The case studies: graphs that there are, at batches that they can have."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import pytest

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "models")]

from cases import CASES, Case, findings  # noqa: E402
from korch_cli.core.model import Bindings  # noqa: E402
from korch_cli.load import load  # noqa: E402


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_has_a_graph_that_runs_at_its_batch(tmp_path: Path, case: Case) -> None:
    import textual

    path = tmp_path / "case.onnx"
    onnx.save(textual.read(case.graph), path)
    model = load(path, Bindings({"N": case.batch}, {}))
    assert all(model.types[name].shape[0] == case.batch for name in model.inputs)


def test_findings_name_each_plan() -> None:
    kernel = {"nodes": ["Add_0"], "schedule": "s", "uses": 2, "name": "left out"}
    search = {"vendor_us": 3.0, "plan_us": 1.0, "alone_us": {"as written": 2.0, "rewritten": 1.5}}
    found = findings({"kernels": [kernel], "search": search, "reason": "Faster."})
    assert found["kernels"] == [{"nodes": ["Add_0"], "schedule": "s", "uses": 2}]
    assert found["predicted_us"] == {"ONNX Runtime": 3.0, "together": 1.0, "as written": 2.0, "rewritten": 1.5}
