"""A model that can be written in two ways: both are searched together, and each region of the output is one of them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import parser

from korch_cli.core.model import Bindings
from korch_cli.core.progress import Silent
from korch_cli.core.record import OptimizeRecord
from korch_cli.pipeline import Settings, optimize

TEXT = """<ir_version: 8, opset_import: ["": 17]> g (bool c, float[1, 2, 6, 6] x)
    => (float[1, 2, 6, 6] y, float[1, 2, 6, 6] z)
    <float[2, 2, 1, 1] w = {1, 2, 3, 4}, float[1] s = {0.3}, float[1] t = {-0.2}> {
    [first] p = Conv(x, w)
    [scale] q = Mul(p, s)
    [shift] r = Add(q, t)
    [outer] z = Tanh(r)
    [either] y = If (c) <
        then_branch = a () => (float[1, 2, 6, 6] u) {
            [inner] h = Conv(r, w) [inner_scale] k = Mul(h, s) [inner_last] u = Sigmoid(k) },
        else_branch = b () => (float[1, 2, 6, 6] u) { [neither] u = Neg(r) }> }"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "in.onnx"
    path.write_bytes(parser.parse_model(TEXT).SerializeToString())
    return path


def made(source: Path, output: Path, **rest: Any) -> OptimizeRecord:
    return optimize(Settings(source, output, bindings=Bindings({}, {}), **rest), Silent())


def test_kernels_of_both_ways_are_built_and_built_again(source: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    record = made(source, first, force_fusion=True)
    assert record.changed
    assert len(record.verdicts) == 3
    assert all(verdict.passed for verdict in record.verdicts)
    again = made(source, second, plan=first.with_suffix(".plan.json"))
    assert again.changed
    assert second.read_bytes() == first.read_bytes()


def planned(source: Path, path: Path, nodes: list[str]) -> Path:
    """Write a plan that runs these nodes, one after the other, and no kernel."""
    document = {
        "schema": "korch.plan/2",
        "model_sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
        "changed": True,
        "status": "optimal",
        "cost_us": 0.0,
        "bound_us": 0.0,
        "shapes": {},
        "kernels": [],
        "sequence": [{"nodes": [name]} for name in nodes],
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.mark.parametrize("in_body", [True, False])
@pytest.mark.parametrize("in_graph", [True, False])
def test_every_region_is_written_or_rewritten(source: Path, tmp_path: Path, *, in_graph: bool, in_body: bool) -> None:
    graph = ["first/rewritten"] if in_graph else ["first", "scale", "shift"]
    body = ["inner/rewritten"] if in_body else ["inner", "inner_scale"]
    then = [f"either.then_branch/{name}" for name in [*body, "inner_last"]]
    steps = [*graph, "outer", *then, "either.else_branch/neither", "either"]
    output = tmp_path / "out.onnx"
    record = made(source, output, plan=planned(source, tmp_path / "plan.json", steps))
    assert record.changed
    assert [verdict.variant for verdict in record.verdicts] == ["rewritten", "subgraphs on their own"]
    assert all(verdict.passed for verdict in record.verdicts)
    assert not output.with_suffix(".korch.so").exists()
    found = onnx.load(output).graph
    assert [node.name for node in found.node] == [*graph, "outer", "either"]
    branches = {a.name: a.g for node in found.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH}
    assert [node.name for node in branches["then_branch"].node] == [*body, "inner_last"]
    assert [node.name for node in branches["else_branch"].node] == ["neither"]
