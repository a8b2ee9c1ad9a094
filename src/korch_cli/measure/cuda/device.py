"""CUDA kernels on a GPU of this machine, through CuPy: loading the image that ships, launching, timing.

Kernels are short, and starting one from Python takes longer than many of them run, so that a series of them is captured
in a CUDA graph and timed by events as one. Clocks are left as they are. Every function takes the module `cupy`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from korch_cli.core.launch import Launch
from korch_cli.core.types import Array, TensorType

_CACHES = 2.0
"""How many times the second-level cache the copies of the operands take together."""
_MOST_COPIES = 64
_MEMORY_SHARE = 0.5
"""Of the free memory, for copies."""
_SERIES_US = 2000.0
_LONGEST_SERIES = 400
_WARM_UP_US, _ROUNDS = 20_000.0, 25
"""A GPU that had nothing to do needs milliseconds to reach its clocks again."""

Buffers = dict[str, list[Any]]
"""Device memory by the kind of argument: "in", "out", "scratch"."""
Run = Callable[[], object]
"""Puts work on the stream that is current."""


def load_functions(cupy: Any, image: Path, launches: Sequence[Launch]) -> dict[str, Any]:
    """Return what the launches start, by name, out of a cubin or PTX."""
    module = cupy.RawModule(path=str(image))
    functions = {}
    for launch in launches:
        function = module.get_function(launch.function)
        if launch.shared_bytes:
            function.max_dynamic_shared_size_bytes = launch.shared_bytes
        functions[launch.function] = function
    return functions


def make_buffers(
    cupy: Any, operands: Sequence[Array], results: Sequence[TensorType], scratch: Sequence[int]
) -> Buffers:
    """Return the memory of a run: bytes, because CuPy has no type for some elements, and one at least."""
    given = [cupy.asarray(np.frombuffer(array.tobytes() or b"\0", np.uint8)) for array in operands]
    made = [_poisoned(cupy, typed.size_bytes) for typed in results]
    return {"in": given, "out": made, "scratch": [_poisoned(cupy, size) for size in scratch]}


def read_results(buffers: Buffers, results: Sequence[TensorType]) -> list[Array]:
    """Return what is in the memory of the results."""
    return [
        np.frombuffer(buffer.get().tobytes()[: typed.size_bytes], typed.dtype.numpy).reshape(typed.shape)
        for buffer, typed in zip(buffers["out"], results, strict=True)
    ]


def launch_all(launches: Sequence[Launch], functions: dict[str, Any], buffers: Buffers) -> None:
    """Put a kernel's launches on the current stream."""
    for launch in launches:
        if 0 in launch.grid:
            continue
        arguments = tuple(buffers[kind][index] for kind, index in launch.arguments)
        functions[launch.function](launch.grid, launch.block, arguments, shared_mem=launch.shared_bytes)


def copies_to_make(cupy: Any, size_bytes: int) -> int:
    """Return how many sets of buffers of this size together overflow the second-level cache, one at least."""
    each = max(1, size_bytes)
    cache = int(cupy.cuda.Device().attributes["L2CacheSize"])
    free, _ = cupy.cuda.runtime.memGetInfo()
    return max(1, min(_MOST_COPIES, int(_CACHES * cache / each) + 1, int(_MEMORY_SHARE * free / each)))


def time_runs(cupy: Any, stream: Any, runs: Sequence[Run]) -> list[float]:
    """Return times of one run in microseconds.

    Args:
        cupy: the module.
        stream: the current one; not the default one, which cannot be captured.
        runs: the same work on different memory; they take turns.
    """
    once_us = max(0.5, _series_us(cupy, stream, runs, len(runs)) / len(runs))
    length = max(len(runs), min(_LONGEST_SERIES, int(_SERIES_US / once_us)))
    stream.begin_capture()
    for i in range(length):
        runs[i % len(runs)]()
    graph = stream.end_capture()
    replay = functools.partial(_elapsed_us, cupy, stream, functools.partial(graph.launch, stream))
    spent_us = replay()
    while spent_us < _WARM_UP_US:
        spent_us += replay()
    return [replay() / length for _ in range(_ROUNDS)]


def _poisoned(cupy: Any, size: int) -> Any:
    """Memory that is NaN for floats, so that what no thread writes is seen."""
    made = cupy.empty(max(1, size), cupy.uint8)
    made.data.memset_async(0xFF, made.nbytes)
    return made


def _series_us(cupy: Any, stream: Any, runs: Sequence[Run], length: int) -> float:
    def series() -> None:
        for i in range(length):
            runs[i % len(runs)]()

    return _elapsed_us(cupy, stream, series)


def _elapsed_us(cupy: Any, stream: Any, work: Run) -> float:
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record(stream)
    work()
    end.record(stream)
    end.synchronize()
    return 1e3 * float(cupy.cuda.get_elapsed_time(begin, end))
