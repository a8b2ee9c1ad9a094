from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

import korch_cli
from korch_cli.cli.entry import korch
from korch_cli.core.record import Comparison, OptimizeRecord, Ratio, Samples, SearchRecord

Invoke = Callable[..., Result]


@pytest.fixture
def invoke() -> Invoke:
    """Run `korch` with these arguments in this process."""
    return lambda *arguments: CliRunner().invoke(korch, [str(argument) for argument in arguments])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file that stands for a model where nothing reads it."""
    path = tmp_path / "in.onnx"
    path.write_bytes(b"model")
    return path


@pytest.fixture
def record() -> OptimizeRecord:
    search = SearchRecord(3, 5, 7, 6, 4, 2, {}, 1, "optimal", 10.0, 10.0, 12.0, 0.0, 0.1, 5)
    comparison = Comparison((Samples("input", (2.0,)), Samples("output", (1.0,))), (Ratio(2.0, 1.9, 2.1, 9),), 1)
    return OptimizeRecord(
        "in.onnx", ("out.onnx",), True, "It is faster.", search, (), (), comparison, (), (), (), {}, {"load": 0.1}
    )


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch, record: OptimizeRecord) -> SimpleNamespace:
    """Stands in for the pipeline: keeps the settings it gets, and returns `record` or raises `failure`."""
    stub = SimpleNamespace(settings=None, failure=None, Settings=SimpleNamespace)

    def optimize(settings: Any, progress: Any) -> OptimizeRecord:
        stub.settings = settings
        progress.stage("Optimizing")
        if stub.failure is not None:
            raise stub.failure
        return record

    stub.optimize = optimize
    monkeypatch.setitem(sys.modules, "korch_cli.pipeline", stub)
    monkeypatch.setattr(korch_cli, "pipeline", stub, raising=False)
    return stub
