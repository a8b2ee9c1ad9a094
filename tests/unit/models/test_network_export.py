"""Networks that torch writes: only where the extra `export` is installed, as after `make models`."""

from __future__ import annotations

import importlib
import importlib.util
import math
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest

_FOLDER = Path(__file__).parents[3] / "models"
_WEIGHTS = {
    "candy": 1.68e6,
    "yolox_nano": 0.91e6,
    "yolov4": 64.4e6,
    "segformer_b0": 3.75e6,
    "efficientvit_b1_224": 9.1e6,
}
"""Parameters that the networks have by their authors' publications."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(importlib.util.find_spec(package) is None for package in ("torch", "timm", "transformers")),
        reason="the extra `export` is not installed",
    ),
]


@pytest.fixture
def fetching(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(_FOLDER))
    return importlib.import_module("fetch")


@pytest.mark.parametrize("network", _WEIGHTS)
def test_both_exporters_write_the_same_network(fetching: ModuleType, tmp_path: Path, network: str) -> None:
    outputs = []
    for exporter in ("dynamo", "script"):
        path = fetching.fetch(f"{network}-{exporter}", tmp_path)
        weights = sum(math.prod(tensor.dims) for tensor in onnx.load(path).graph.initializer if len(tensor.dims) > 0)
        assert weights == pytest.approx(_WEIGHTS[network], rel=0.03)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        (image,) = session.get_inputs()
        drawn = np.random.default_rng(0).standard_normal(image.shape).astype(np.float32)
        outputs.append(session.run(None, {image.name: drawn}))
    for dynamo, script in zip(*outputs, strict=True):
        assert 0 < script.std() < 10
        np.testing.assert_allclose(dynamo, script, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("exporter", ["dynamo", "script"])
def test_an_export_is_always_the_same(fetching: ModuleType, tmp_path: Path, exporter: str) -> None:
    first, second = (fetching.fetch(f"candy-{exporter}", tmp_path / name).read_bytes() for name in ("a", "b"))
    assert first == second
