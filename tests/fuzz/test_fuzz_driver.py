"""What happens to a finding: it is made smaller, written to disk, and read again; a crash or a hang is one too."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest

from scripts import fuzz
from tests.fuzz.batches import draw
from tests.fuzz.graphs import Network
from tests.fuzz.records import read, save
from tests.fuzz.running import Session
from tests.fuzz.shrinking import shrink

_CHAIN = """<ir_version: 8, opset_import: ["": 17]>
g (float[2,3] x, float[3] unused) => (float[2,3] y, float[3,2] z)
<float[2,3] w = {1, 2, 3, 4, 5, 6}> {
  a = Abs (x)
  b = Add (a, w)
  c = Tanh (b)
  d = Mul (c, c)
  y = Sub (d, a)
  z = Transpose <perm = [1, 0]> (d)
}"""


def _chain() -> Network:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    feeds = {"x": x, "unused": x[0]}
    return Network(onnx.parser.parse_model(_CHAIN), {"ordinary": feeds, "special": feeds})


def _operators(network: Network) -> list[str]:
    return [node.op_type for node in network.model.graph.node]


@pytest.mark.parametrize(
    ("needed", "left"),
    [({"Tanh"}, ["Tanh"]), ({"Tanh", "Sub"}, ["Tanh", "Mul", "Sub"]), ({"Abs", "Add"}, ["Abs", "Add"])],
)
def test_a_model_loses_what_a_failure_does_not_need(needed: set[str], left: list[str]) -> None:
    small = shrink(_chain(), lambda network: needed <= set(_operators(network)), 60)
    assert _operators(small) == left
    assert len(small.feeds) == 1
    (feeds,) = small.feeds.values()
    (got,) = Session(small.model).run(feeds)
    assert got.shape == (2, 3)
    assert "unused" not in feeds


def test_what_fails_nowhere_stays_as_it_is() -> None:
    assert shrink(_chain(), lambda _: False, 60).model == _chain().model


def test_a_finding_is_read_as_it_was_written(tmp_path: Path) -> None:
    numbers = np.array([1, np.nan, -np.inf], ml_dtypes.bfloat16)
    network = Network(_chain().model, {"ordinary": {f"x{i}": numbers for i in range(12)}, "special": {}})
    save(network, tmp_path / "finding")
    found = read(tmp_path / "finding")
    assert found.model == network.model
    assert list(found.feeds) == ["ordinary", "special"]
    assert list(found.feeds["ordinary"]) == list(network.feeds["ordinary"])
    for array in found.feeds["ordinary"].values():
        assert array.dtype == numbers.dtype
        np.testing.assert_array_equal(array.view(np.uint16), numbers.view(np.uint16))


def test_a_number_names_its_models() -> None:
    def texts(number: int) -> list[bytes]:
        return [network.model.SerializeToString() for network in draw(number, 5)]

    assert texts(7) == texts(7)
    assert not set(texts(7)) & set(texts(8))
    assert len(set(texts(7))) == 5


def _impostor(folder: Path, body: str) -> Path:
    """Return a program to run instead of Python."""
    save(_chain(), folder / "model")
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("kill -SEGV $$", "exit code -11"),
        ("sleep 60", "did not finish within 1 s"),
    ],
)
def test_a_child_that_dies_or_hangs_is_a_finding(
    body: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    noting = f'case "$*" in *--batch*) cp -r {tmp_path / "model"} {out / "running-5"};; esac'
    program = _impostor(tmp_path, f"{noting}\nexec sh -c '{body}'")
    monkeypatch.setattr("sys.executable", str(program))
    monkeypatch.setattr(fuzz, "BATCH_SECONDS", 1.0)
    monkeypatch.setattr(fuzz, "REPLAY_SECONDS", 1.0)
    monkeypatch.setattr(fuzz, "SHRINK_SECONDS", 5.0)
    assert fuzz.batch(5, "kernels", out) == {"findings": 1, "names": ["crash-5"]}
    assert words in (out / "crash-5" / "finding.txt").read_text(encoding="utf-8")
    assert f"--replay {out / 'crash-5'}" in (out / "crash-5" / "finding.txt").read_text(encoding="utf-8")
    assert len(read(out / "crash-5").model.graph.node) < len(_chain().model.graph.node)
    assert not (out / "running-5").exists()


def test_a_batch_reports_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.fuzz.batches.draw", lambda number, count: [_chain(), _chain()])
    monkeypatch.setattr("tests.fuzz.batches.try_primitives", _dislikes_tanh)
    assert fuzz.work(3, "primitives", tmp_path) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["graphs"], summary["findings"], summary["names"]) == (2, 2, ["primitives-Tanh"])
    assert _operators(read(tmp_path / "primitives-Tanh")) == ["Tanh"]
    assert fuzz.replay(tmp_path / "primitives-Tanh") == 1
    monkeypatch.undo()
    assert fuzz.replay(tmp_path / "primitives-Tanh") == 0


def _dislikes_tanh(network: Network, *_: object) -> str | None:
    return "no" if "Tanh" in _operators(network) else None


@pytest.mark.parametrize(("findings", "code"), [((0, 0), 0), ((0, 1), 1)])
def test_the_exit_code_says_whether_there_is_a_finding(
    findings: tuple[int, ...], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = list(findings)
    clock = iter(range(100))
    monkeypatch.setattr("scripts.fuzz.time.monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(fuzz, "batch", lambda *_: {"graphs": 3, "findings": left.pop(0)})
    # The clock is read once to begin with, and then before each batch.
    options = argparse.Namespace(seconds=len(findings) + 0.5, seed=0, jobs=1, level=None, folder=tmp_path)
    assert fuzz.supervise(options) == code
    assert not left
