"""Kernels and their library from clang, in ONNX Runtime: the other tests compile with GCC."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import parser

from korch_cli import load_session
from korch_cli.cli.entry import korch
from tests.compilers import CLANG

MODEL = """<ir_version: 8, opset_import: ["": 17]> g (float[64, 500] x) => (float[64, 500] y) {
    a = Softplus (x)
    t = Tanh (a)
    m = Mul (t, x)
    y = Softmax <axis = 1> (m) }"""


@pytest.mark.slow
def test_clang_makes_a_library_that_computes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "cache"))
    source, output = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(parser.parse_model(MODEL), source)
    words = ["optimize", str(source), "-o", str(output), "--cxx", CLANG, "--force-fusion", "-q"]
    result = CliRunner().invoke(korch, words)
    assert result.exit_code == 0, result.output
    assert output.with_suffix(".korch.so").exists()
    x = np.random.default_rng(0).standard_normal((64, 500)).astype(np.float32)
    (got,), (wanted,) = (load_session(path).run(None, {"x": x}) for path in (output, source))
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)
