"""`korch optimize --dry-run` on a small model: what it says, and that it leaves nothing behind."""

from __future__ import annotations

import json
import math
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner
from onnx import parser

from korch_cli.cli.entry import korch
from korch_cli.measure import ProfileStore

MODEL = """<ir_version: 8, opset_import: ["": 17]> g (float[64, 512] x) => (float[64, 512] y) {
    a = Tanh(x)
    b = Mul(a, x)
    y = Exp(b) }"""


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    path = folder / "in.onnx"
    onnx.save(parser.parse_model(MODEL), path)
    return path


def dry_run(model: Path, *arguments: str) -> dict[str, object]:
    result = CliRunner().invoke(korch, ["optimize", str(model), "--dry-run", "-q", "--format", "json", *arguments])
    assert result.exit_code == 0, result.output
    document: dict[str, object] = json.loads(result.stdout)
    return document


@pytest.mark.slow
def test_a_dry_run_writes_nothing_and_says_what_there_is(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("KORCH_CACHE_DIR", str(cache))
    before = snapshot(tmp_path)
    found = dry_run(model)
    assert snapshot(tmp_path) == before
    assert not cache.exists()
    assert (found["operators"], found["primitives"], found["distinct"], found["looked_up"]) == (3, 3, 6, 6)
    assert found["stored"] == 0
    assert math.isfinite(float(str(found["vendor_us"])))
    assert float(str(found["bound_us"])) <= float(str(found["vendor_us"]))
    assert found["notes"] == []

    # A real run fills the store; a dry run reads it, and leaves it as it is.
    output = tmp_path / "models" / "out.onnx"
    run = CliRunner().invoke(korch, ["optimize", str(model), "-o", str(output), "-q", "--gap", "0", "--budget", "5m"])
    assert run.exit_code == 0, run.output
    before = snapshot(tmp_path / "models")
    kept = entries(cache)
    found = dry_run(model, "--gap", "0", "--budget", "5m")
    assert snapshot(tmp_path / "models") == before
    assert entries(cache) == kept
    assert found["searched"]
    assert found["to_measure"] == 0
    assert int(str(found["stored"])) == sum(key.startswith("kernel/") for key in kept)


def entries(cache: Path) -> set[str]:
    store = ProfileStore(cache)
    try:
        return {key for (key,) in store.strict("SELECT key FROM documents")}
    finally:
        store.close()


def test_an_output_is_needed_without_a_dry_run(model: Path) -> None:
    result = CliRunner().invoke(korch, ["optimize", str(model)])
    assert result.exit_code == 2
    assert "--output" in result.output


@pytest.mark.parametrize("other", [["--force-fusion"], ["--from-plan", "plan.json"]])
def test_a_dry_run_excludes_other_ways_to_run(model: Path, other: list[str]) -> None:
    result = CliRunner().invoke(korch, ["optimize", str(model), "--dry-run", *other])
    assert result.exit_code == 2
    assert "exclude each other" in result.output
    assert not list(model.parent.glob("*.json"))
