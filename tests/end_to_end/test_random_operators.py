"""Models that draw numbers are optimised around them, and compared with the numbers given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

from korch_cli.core.progress import Silent
from korch_cli.pipeline import Settings, optimize

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
ROWS = {
    "in the main graph": """g (float[3] x) => (float[3] y) {
        a = RandomNormalLike(x) b = Exp(x) c = Neg(b) d = Mul(a, c) y = Tanh(d) }""",
    "with a body beside it": """g (bool k, float[3] x) => (float[3] y) {
        a = RandomUniform<shape = [3]>()
        b = If(k) <then_branch = p () => (float[3] t) { e = Exp(x) t = Mul(e, a) },
                   else_branch = q () => (float[3] t) { t = Neg(x) }>
        y = Tanh(b) }""",
    "drawn and given out": """g (float[3] x) => (float[3] a, float[3] y) {
        a = RandomNormalLike(x) d = Mul(a, x) y = Tanh(d) }""",
}


@pytest.mark.parametrize("name", ROWS)
def test_kernels_lie_around_what_is_drawn(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "cache"))
    source, output = tmp_path / "in.onnx", tmp_path / "out.onnx"
    source.write_bytes(parser.parse_model(f"{HEAD} {ROWS[name]}").SerializeToString())
    record = optimize(Settings(source, output, force_fusion=True), Silent())
    assert record.changed, record.reason
    assert all(verdict.passed for verdict in record.verdicts)
    graph = onnx.load(output).graph
    assert any(node.op_type.startswith("Random") for node in graph.node)
    assert [i.name for i in graph.input] == [i.name for i in onnx.load(source).graph.input]
    assert sorted(p.name for p in tmp_path.glob("out*")) == ["out.korch.so", "out.onnx", "out.plan.json"]

    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(tmp_path / "out.korch.so"))
    session = onnxruntime.InferenceSession(output.read_bytes(), options, providers=["CPUExecutionProvider"])
    feeds = {"x": np.ones(3, np.float32), "k": np.array(True)}
    given = {i.name: feeds[i.name] for i in session.get_inputs()}
    assert all(np.isfinite(np.asarray(result)).all() for result in session.run(None, given))
