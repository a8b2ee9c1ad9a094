"""The same work in torch and in CuPy, timed for `gpu_check`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from korch_cli.core.types import Array
from korch_cli.measure.cuda.device import time_runs

_WARM_UP, _ROUNDS, _SERIES = 5, 15, 20
_WARM_UP_US = 20_000.0
"""Of running, at least: clocks fall while torch compiles."""
_PRODUCT = 4096

Step = Callable[[], Any]


def or_why(step: Step) -> Any:
    """Return what a step finds, or why it finds nothing: none may end the check."""
    try:
        return step()
    except Exception as error:
        lines = str(error).splitlines() or [""]
        return {"left_out": f"{type(error).__name__}: {lines[0]}"}


def time_in_cupy(cupy: Any, function: Callable[..., Any], operands: Sequence[Array], copies: int) -> float:
    """Return the time of one run of CuPy's kernels in microseconds, over copies of the operands."""
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        given = [[cupy.asarray(array) for array in operands] for _ in range(copies)]
        return float(np.median(time_runs(cupy, stream, [functools.partial(function, cupy, *one) for one in given])))


def time_in_torch(
    torch: Any, function: Callable[..., Any], operands: Sequence[Array], copies: int, *, compiled: bool
) -> float:
    """Return the time of one run of torch's kernels, compiled or not, in microseconds."""
    given = [[torch.from_numpy(np.array(array)).cuda() for array in operands] for _ in range(copies)]
    whole = functools.partial(function, torch)
    work = torch.compile(whole, dynamic=False) if compiled else whole
    return _captured_us(torch, [functools.partial(work, *one) for one in given])


def matrix_rates(torch: Any) -> dict[str, float]:
    """Return operations a second of large products, by element type."""
    found = {}
    for name, dtype, reduced in (
        ("float16", torch.float16, True),
        ("tensor float32", torch.float32, True),
        ("float32", torch.float32, False),
    ):
        torch.backends.cuda.matmul.allow_tf32 = reduced
        a, b = (torch.randn(_PRODUCT, _PRODUCT, device="cuda", dtype=dtype) for _ in range(2))
        found[name] = 2.0 * _PRODUCT**3 / _captured_us(torch, [functools.partial(torch.matmul, a, b)]) * 1e6
    return found


def _captured_us(torch: Any, runs: Sequence[Step]) -> float:
    """Time a CUDA graph of the runs, which take turns."""
    length = max(_SERIES, len(runs))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(max(_WARM_UP, len(runs))):
            runs[i % len(runs)]()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(length):
            runs[i % len(runs)]()

    def replay_us() -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(1e3 * begin.elapsed_time(end))

    spent_us = sum(replay_us() for _ in range(_WARM_UP))
    while spent_us < _WARM_UP_US:
        spent_us += replay_us()
    return float(np.median([replay_us() / length for _ in range(_ROUNDS)]))
