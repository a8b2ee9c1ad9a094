"""What the child process does with a CUDA kernel: check what the image that ships computes, and time it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from korch_cli.core.artifact import CudaJob, KernelResult
from korch_cli.core.kernel import Timing, TimingSource
from korch_cli.core.ortvalue import runner
from korch_cli.measure.correctness import difference, draw_operand
from korch_cli.measure.cuda.device import (
    copies_to_make,
    launch_all,
    load_functions,
    make_buffers,
    read_results,
    time_runs,
)

_QUARTILES = (0.25, 0.5, 0.75)


def run_cuda_kernel(job: CudaJob, seed: int, device: int) -> KernelResult:
    """Check a kernel against its function, which runs on the CPU, then time it over copies of its operands."""
    import cupy

    rng = np.random.default_rng(seed)
    feeds = {name: draw_operand(typed, rng) for name, typed in job.inputs}
    expected = runner(_reference(job))(feeds)
    operands = [feeds[name] for name, _ in job.inputs]
    with cupy.cuda.Device(device), cupy.cuda.Stream(non_blocking=True) as stream:
        functions = load_functions(cupy, job.image, job.launches)
        first = make_buffers(cupy, operands, job.outputs, job.scratch)
        launch_all(job.launches, functions, first)
        stream.synchronize()
        for got, wanted in zip(read_results(first, job.outputs), expected, strict=True):
            failure = difference(got, np.asarray(wanted), job.rtol, job.atol)
            if failure is not None:
                return KernelResult(job.name, None, None, failure)
        size = sum(buffer.nbytes for buffers in first.values() for buffer in buffers)
        more = range(copies_to_make(cupy, size) - 1)
        copies = [first, *(make_buffers(cupy, operands, job.outputs, job.scratch) for _ in more)]
        runs = [functools.partial(launch_all, job.launches, functions, one) for one in copies]
        times_us = time_runs(cupy, stream, runs)
    low, median, high = np.quantile(times_us, _QUARTILES).tolist()
    return KernelResult(job.name, Timing(median, low, high, len(times_us), TimingSource.MEASURED), None, None)


def _reference(job: CudaJob) -> Any:
    """The kernel's function as ONNX Runtime runs it on the CPU without any optimisation."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(job.model), options, providers=["CPUExecutionProvider"])
