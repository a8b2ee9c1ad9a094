"""The names of the files that lie beside a model that korch wrote."""

from __future__ import annotations

from pathlib import Path


def library_beside(model: Path) -> Path:
    """Return `x.korch.so` for `x.onnx`, and for a name without that ending the whole name with `.korch.so`."""
    return _beside(model, ".korch.so")


def plan_beside(model: Path) -> Path:
    """Return `x.plan.json` for `x.onnx`, and for a name without that ending the whole name with `.plan.json`."""
    return _beside(model, ".plan.json")


def _beside(model: Path, ending: str) -> Path:
    # Another suffix may be part of the name (model.v1, model.v2), and belongs to one model alone.
    return model.with_suffix(ending) if model.suffix.lower() == ".onnx" else model.with_name(model.name + ending)
