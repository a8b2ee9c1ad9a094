"""What the child process does with a CUDA kernel: load the image that ships, check what it computes, time it.

CuPy's `RawModule` loads the very image of the library. Kernels are short, and starting one from Python takes longer
than many of them run, so that a series of them is captured in a CUDA graph and timed by events as one. The series walks
over copies of the operands that do not fit into the second-level cache together. Clocks are left as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from korch_cli.core.artifact import CudaJob, KernelResult
from korch_cli.core.kernel import Timing, TimingSource
from korch_cli.core.launch import Launch
from korch_cli.core.ortvalue import runner
from korch_cli.core.types import Array
from korch_cli.measure.correctness import difference, draw_operand

_CACHES = 2.0
"""How many times the second-level cache the copies of the operands take together."""
_MOST_COPIES = 64
_MEMORY_SHARE = 0.5
"""Of the free memory, for copies."""
_SERIES_US = 2000.0
_LONGEST_SERIES = 400
_WARM_UP, _ROUNDS = 3, 25
_QUARTILES = (0.25, 0.5, 0.75)

Buffers = dict[str, list[Any]]
"""Device memory by the kind of argument: "in", "out", "scratch"."""


def run_cuda_kernel(job: CudaJob, seed: int) -> KernelResult:
    """Check a kernel against its function, which runs on the CPU, then time it."""
    import cupy

    rng = np.random.default_rng(seed)
    feeds = {name: draw_operand(typed, rng) for name, typed in job.inputs}
    expected = runner(_reference(job))(feeds)
    operands = [feeds[name] for name, _ in job.inputs]
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        functions = _loaded(cupy, job)
        first = _buffers(cupy, job, operands)
        _launch(job.launches, functions, first)
        stream.synchronize()
        for buffer, typed, wanted in zip(first["out"], job.outputs, expected, strict=True):
            got = np.frombuffer(buffer.get().tobytes()[: typed.size_bytes], typed.dtype.numpy).reshape(typed.shape)
            failure = difference(got, np.asarray(wanted), job)
            if failure is not None:
                return KernelResult(job.name, None, None, failure)
        copies = [first, *(_buffers(cupy, job, operands) for _ in range(_copies(cupy, job) - 1))]
        times_us = _timed(cupy, stream, [functools.partial(_launch, job.launches, functions, one) for one in copies])
    low, median, high = np.quantile(times_us, _QUARTILES).tolist()
    return KernelResult(job.name, Timing(median, low, high, len(times_us), TimingSource.MEASURED), None, None)


def _reference(job: CudaJob) -> Any:
    """The kernel's function as ONNX Runtime runs it on the CPU without any optimisation."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(job.model), options, providers=["CPUExecutionProvider"])


def _loaded(cupy: Any, job: CudaJob) -> dict[str, Any]:
    module = cupy.RawModule(path=str(job.image))
    functions = {}
    for launch in job.launches:
        function = module.get_function(launch.function)
        if launch.shared_bytes:
            function.max_dynamic_shared_size_bytes = launch.shared_bytes
        functions[launch.function] = function
    return functions


def _buffers(cupy: Any, job: CudaJob, operands: Sequence[Array]) -> Buffers:
    """Bytes, because CuPy has no type for some elements; what has no element gets one byte all the same."""
    given = [cupy.asarray(np.frombuffer(array.tobytes() or b"\0", np.uint8)) for array in operands]
    made = [_poisoned(cupy, typed.size_bytes) for typed in job.outputs]
    return {"in": given, "out": made, "scratch": [_poisoned(cupy, size) for size in job.scratch]}


def _poisoned(cupy: Any, size: int) -> Any:
    """Memory that is NaN for floats, so that what no thread writes is seen."""
    made = cupy.empty(max(1, size), cupy.uint8)
    made.data.memset_async(0xFF, made.nbytes)
    return made


def _launch(launches: Sequence[Launch], functions: dict[str, Any], buffers: Buffers) -> None:
    for launch in launches:
        if 0 in launch.grid:
            continue
        arguments = tuple(buffers[kind][index] for kind, index in launch.arguments)
        functions[launch.function](launch.grid, launch.block, arguments, shared_mem=launch.shared_bytes)


def _copies(cupy: Any, job: CudaJob) -> int:
    """How many sets of operands and results it takes to overflow the second-level cache, one at least."""
    touched = sum(typed.size_bytes for _, typed in job.inputs) + sum(typed.size_bytes for typed in job.outputs)
    each = max(1, touched + sum(job.scratch))
    cache = int(cupy.cuda.Device().attributes["L2CacheSize"])
    free, _ = cupy.cuda.runtime.memGetInfo()
    return max(1, min(_MOST_COPIES, int(_CACHES * cache / each) + 1, int(_MEMORY_SHARE * free / each)))


def _timed(cupy: Any, stream: Any, runs: Sequence[Callable[[], None]]) -> list[float]:
    """Return times of one run in microseconds."""
    once_us = max(0.5, _series_us(cupy, stream, runs, len(runs)) / len(runs))
    length = max(len(runs), min(_LONGEST_SERIES, int(_SERIES_US / once_us)))
    stream.begin_capture()
    for i in range(length):
        runs[i % len(runs)]()
    graph = stream.end_capture()
    times_us = []
    for turn in range(_WARM_UP + _ROUNDS):
        elapsed_us = _elapsed_us(cupy, stream, functools.partial(graph.launch, stream))
        if turn >= _WARM_UP:
            times_us.append(elapsed_us / length)
    return times_us


def _series_us(cupy: Any, stream: Any, runs: Sequence[Callable[[], None]], length: int) -> float:
    def series() -> None:
        for i in range(length):
            runs[i % len(runs)]()

    return _elapsed_us(cupy, stream, series)


def _elapsed_us(cupy: Any, stream: Any, work: Callable[[], None]) -> float:
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record(stream)
    work()
    end.record(stream)
    end.synchronize()
    return 1e3 * float(cupy.cuda.get_elapsed_time(begin, end))
