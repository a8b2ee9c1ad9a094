"""One program over both ways to write a model: its plan beside those of each way alone."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import onnx
import pytest

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "models")]

import joint  # noqa: E402

ONE_WAY = "g (float[4,8] x) => (float[4,8] y) { s = Sigmoid (x) y = Sqrt (s) }"
TWO_WAYS = """g (float[1,8,16,16] x, float[8,8,1,1] w) => (float[1,8,16,16] y)
<float[1] three = {3}, float[1] six = {6}, float[1] zero = {0}> {
  c = Conv (x, w) s = Add (c, three) t = Clip (s, zero, six) u = Mul (c, t) y = Div (u, six)
}"""


@pytest.mark.parametrize(("text", "names"), [(ONE_WAY, set()), (TWO_WAYS, {"together", "written", "rewritten"})])
def test_each_way_has_a_row(tmp_path: Path, text: str, names: set[str]) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}'), path)
    found = joint.studied(path, {}, argparse.Namespace(threads=1, budget=5.0, rounds=1))
    if not names:
        assert set(found) == {"reason"}
        return
    rows = {row["plan"]: row for row in found["rows"]}
    assert set(rows) == names
    assert all(row["status"] == "ok" and rows[row["like"]]["ratio"] == row["ratio"] for row in rows.values())
    assert all(found["least_us"] <= rows[name]["predicted_us"] + 0.02 for name in names)
