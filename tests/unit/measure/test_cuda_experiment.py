"""Measuring CUDA kernels, with a stand-in for CuPy: what is launched, checked, and how times come about."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from korch_cli.codegen import generate_cuda
from korch_cli.codegen.cuda import splitting
from korch_cli.core.artifact import CudaJob
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import TimingSource
from korch_cli.emit import probe_model, save_model
from korch_cli.measure.cuda import device
from korch_cli.measure.cuda.experiment import run_cuda_kernel
from tests.cuda_on_cpu.agreement import body_of
from tests.cuda_on_cpu.cupy_on_cpu import Clock, cupy_on_cpu
from tests.cuda_on_cpu.execution import build
from tests.unit.codegen import test_cuda_kernels as cases
from tests.unit.codegen.body_graphs import softmax as softmax_graph

LAUNCH_US = 5.0


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fibers are slow, and this device's clock needs no repetition."""
    for name, value in (("_SERIES_US", 40.0), ("_MOST_COPIES", 3), ("_WARM_UP_US", 1.0), ("_ROUNDS", 2)):
        monkeypatch.setattr(device, name, value)


def prepared(graph: PrimitiveGraph, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[CudaJob, Clock]:
    body = body_of(graph)
    kernel = generate_cuda(body)[0]
    proto, inputs = probe_model(body, kernel.name, "korch.probe", opset=18, replicas=1)
    save_model(proto, folder, folder / "probe.onnx")
    (folder / "image.cubin").write_bytes(b"an image")
    clock = Clock()
    monkeypatch.setitem(sys.modules, "cupy", cupy_on_cpu(build([kernel], folder), clock))
    outputs = tuple(graph.values[v].type for v in graph.outputs)
    files = (folder / "probe.onnx", folder / "image.cubin")
    job = CudaJob(kernel.name, *files, kernel.launches, kernel.scratch, inputs, outputs, rtol=1e-4, atol=1e-5)
    return job, clock


def test_a_kernel_is_checked_and_its_time_is_that_of_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, clock = prepared(softmax_graph("f32", "4,37", "1", "4,1"), tmp_path, monkeypatch)
    result = run_cuda_kernel(job, seed=0, device=0)
    assert result.failure is None
    assert result.timing is not None
    assert result.timing.source is TimingSource.MEASURED
    assert result.timing.median_us == pytest.approx(LAUNCH_US * len(job.launches))
    assert result.timing.low_us <= result.timing.median_us <= result.timing.high_us
    assert clock.captured is None


def test_only_the_gpu_that_is_asked_for_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, clock = prepared(softmax_graph("f32", "4,37", "1", "4,1"), tmp_path, monkeypatch)
    assert run_cuda_kernel(job, seed=0, device=2).failure is None
    assert clock.used == {2}
    assert clock.device == 0


def test_all_launches_of_a_kernel_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("_LONG", 128), ("_MUCH", 128), ("_LEAST_PART", 16)):
        monkeypatch.setattr(splitting, name, size)
    job, _ = prepared(softmax_graph("f32", "2,1031", "1", "2,1"), tmp_path, monkeypatch)
    result = run_cuda_kernel(job, seed=0, device=0)
    assert len(job.launches) > 1
    assert result.timing is not None, result.failure
    assert result.timing.median_us == pytest.approx(LAUNCH_US * len(job.launches))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "bool", "i64"])
def test_elements_that_cupy_has_no_type_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    graph = (
        cases.reduction(dtype, ["max"], "5,35", "0", "1,35")
        if dtype in ("bool", "i64")
        else cases.pointwise(dtype, "3,35", "1")
    )
    job, _ = prepared(graph, tmp_path, monkeypatch)
    result = run_cuda_kernel(job, seed=0, device=0)
    assert result.failure is None


def test_a_kernel_that_computes_something_else_has_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, clock = prepared(cases.pointwise("f32", "3,35", "1"), tmp_path, monkeypatch)
    wrong = replace(job, launches=())
    result = run_cuda_kernel(wrong, seed=0, device=0)
    assert result.timing is None
    assert result.failure is not None
    assert "nan instead of" in result.failure
    assert clock.launches == 0
    assert np.isfinite(clock.now_us)
