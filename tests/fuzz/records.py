"""Findings on disk: a folder with the model, its inputs, and what is wrong."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import numpy_helper

from tests.fuzz.graphs import Network


def save(network: Network, folder: Path) -> None:
    """Write a model and its sets of inputs to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(network.model, folder / "model.onnx")
    (folder / "model.txt").write_text(network.text, encoding="utf-8")
    for kind, feeds in network.feeds.items():
        (folder / kind).mkdir(exist_ok=True)
        for old in (folder / kind).glob("*.pb"):
            old.unlink()
        for position, (name, array) in enumerate(feeds.items()):
            tensor = numpy_helper.from_array(array, name)
            (folder / kind / f"input_{position:03}.pb").write_bytes(tensor.SerializeToString())


def read(folder: Path) -> Network:
    """Read what `save` wrote."""
    feeds = {}
    for kind in ("ordinary", "special"):
        if (folder / kind).is_dir():
            tensors = [onnx.load_tensor(path) for path in sorted((folder / kind).glob("*.pb"))]
            feeds[kind] = {tensor.name: numpy_helper.to_array(tensor) for tensor in tensors}
    return Network(onnx.load(folder / "model.onnx"), feeds)
