"""`korch explain` as a command: what it prints, and how it ends where nothing is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Invoke = Callable[..., Result]
PLAN = {
    "schema": "korch.plan/2",
    "model_sha256": "00",
    "changed": True,
    "cost_us": 12.5,
    "bound_us": 12.5,
    "status": "optimal",
    "shapes": {},
    "kernels": [{"name": "k_1", "time_us": 2.5, "nodes": [["first", "second"]]}],
    "sequence": [{"kernel": "k_1", "values": ["a"], "way": "written"}, {"nodes": ["third"]}],
}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "m.onnx"
    path.write_bytes(b"a model")
    return path


def test_the_plan_beside_the_model_is_shown(invoke: Invoke, model: Path) -> None:
    model.with_suffix(".plan.json").write_text(json.dumps(PLAN), encoding="utf-8")
    result = invoke("explain", model)
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.stdout.splitlines() if "µs" in line] == ["korch", "first", "second"]
    report = model.with_name("report.json")
    result = invoke("explain", model, "second", "--format", "json", "--report", report)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["schema"] == "korch.explain/1"
    assert document["nodes"][0]["choices"][0]["nodes"] == ["first", "second"]
    assert json.loads(report.read_text(encoding="utf-8")) == document


def test_a_model_that_was_never_searched_is_a_usage_error(invoke: Invoke, model: Path) -> None:
    result = invoke("explain", model)
    assert result.exit_code == 2
    assert "korch optimize" in result.stderr


def test_a_missing_model_is_a_bad_model(invoke: Invoke, tmp_path: Path) -> None:
    assert invoke("explain", tmp_path / "none.onnx").exit_code == 3
