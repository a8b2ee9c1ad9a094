"""The catalogue's graphs in text, with all that can be generated fused, against ONNX Runtime without optimisations."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from korch_cli.core.model import Bindings
from korch_cli.core.progress import Silent
from korch_cli.pipeline import Settings, optimize

_MODELS = Path(__file__).parents[2] / "models"
NAMES = sorted(path.stem for path in (_MODELS / "graphs").glob("*.onnxtxt"))


@pytest.fixture
def textual(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(_MODELS))
    return importlib.import_module("textual")


def test_every_graph_has_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(_MODELS))
    entries = importlib.import_module("fetch").catalogue().values()
    assert sorted({entry["graph"] for entry in entries if entry["source"] == "text"}) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_the_same_every_time(textual: ModuleType, name: str) -> None:
    once, again = textual.read(name), textual.read(name)
    assert once.SerializeToString(deterministic=True) == again.SerializeToString(deterministic=True)
    assert not [value.name for value in once.graph.input if value.name.startswith(textual.WEIGHT)]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_all_that_can_be_fused_computes_the_same(
    textual: ModuleType, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "cache"))
    source, output = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save_model(textual.read(name), str(source))
    bindings = Bindings({"N": 1}, {})
    # Every candidate is generated; larger ones would be thousands.
    settings = Settings(source, output, bindings, threads=2, force_fusion=True, max_primitives=6)
    record = optimize(settings, Silent())
    assert record.changed, record.reason
    rng = np.random.default_rng(7)
    feeds = {i.name: rng.standard_normal([1, *i.shape[1:]]).astype(np.float32) for i in _session(source).get_inputs()}
    (wanted,) = _session(source).run(None, feeds)
    for library in (None, output.with_suffix(".korch.so")):
        (got,) = _session(output, library).run(None, feeds)
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=2e-5)


def _session(model: Path, library: Path | None = None) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    if library is not None:
        options.register_custom_ops_library(str(library))
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
