"""korch profile --per-kernel on a model that korch wrote, and on models that have nothing to show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from onnx import parser

from korch_cli.cli.entry import korch
from korch_cli.core.progress import Silent
from korch_cli.pipeline import Settings, optimize

TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[64, 500] x) => (float[64, 500] y, float[500, 64] z) {
    e = Exp(x)
    y = Softmax<axis = 1>(e)
    t = Transpose<perm = [1, 0]>(x)
    z = Tanh(t)
}"""


def invoke(*arguments: object) -> Result:
    flags = ("--per-kernel", "--threads", "1", "--seconds", "0.3s", "-q")
    return CliRunner().invoke(korch, ["profile", *map(str, arguments), *flags])


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "in.onnx"
    path.write_bytes(parser.parse_model(TEXT).SerializeToString())
    return path


@pytest.fixture
def output(source: Path, tmp_path: Path) -> Path:
    path = tmp_path / "out.onnx"
    assert optimize(Settings(source, path, force_fusion=True), Silent()).changed
    return path


def test_kernels_are_listed_with_their_work(output: Path) -> None:
    result = invoke(output, "--format", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["nodes"] == []
    named = {name for kernel in document["kernels"] for names in kernel["nodes"] for name in names}
    assert len(named) == 4
    # Everything is read and written once, unless one kernel reads what another one wrote.
    elements = 64 * 500
    assert sum(kernel["bytes_moved"] for kernel in document["kernels"]) >= 4 * 3 * elements
    assert all(kernel["bytes_moved"] % (4 * elements) == 0 for kernel in document["kernels"])
    for kernel in document["kernels"]:
        assert 0 < kernel["share_of_limit"] <= 1
        assert kernel["limit_us"] > 0
        assert kernel["flops"] >= 20 * elements
    text = invoke(output)
    assert text.exit_code == 0, text.output
    assert {"limited", "operations", "limit"} <= set(text.stdout.split())
    assert all(kernel["name"] in text.stdout for kernel in document["kernels"])


def test_what_has_nothing_to_show_is_refused(source: Path, output: Path) -> None:
    plain = invoke(source)
    assert plain.exit_code == 2
    assert "runs no generated kernels" in plain.stderr
    plan = output.with_suffix(".plan.json")
    document = json.loads(plan.read_text(encoding="utf-8"))
    del document["kernels"][0]["bytes"]
    plan.write_text(json.dumps(document), encoding="utf-8")
    old = invoke(output)
    assert old.exit_code == 4
    assert "--from-plan" in old.stderr
    plan.unlink()
    alone = invoke(output)
    assert alone.exit_code == 4
    assert "is not beside it" in alone.stderr
