"""What the child process does: check and time a kernel, profile a model."""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from korch_cli.core.artifact import KernelJob, KernelResult
from korch_cli.core.kernel import Timing, TimingSource
from korch_cli.core.types import Array, TensorType

if TYPE_CHECKING:
    import onnxruntime

_ROUNDS = 6
_BLOCK_SECONDS = 0.008
_SETTLE_SECONDS = 0.0015
"""The start of a block in which the other session's threads may still spin."""
_MIN_RUNS = 20
_PROFILED_RUNS = 400


def run_kernel(job: KernelJob, baseline: Path, threads: int, seed: int) -> KernelResult:
    """Check a kernel against its function, then time both side by side."""
    rng = np.random.default_rng(seed)
    feeds = {name: _operand(typed, rng) for name, typed in job.inputs}
    expected = _session(job, threads, library=False, optimize=False).run(None, feeds)
    with_library = _session(job, threads, library=True, optimize=True)
    got = with_library.run(None, feeds)
    failure = next(filter(None, (_difference(g, e, job) for g, e in zip(got, expected, strict=True))), None)
    if failure is not None:
        return KernelResult(job.name, None, None, failure)
    without = _session(job, threads, library=False, optimize=True)
    runs = [_Bound(session, feeds) for session in (with_library, without)]
    for _ in range(_ROUNDS):
        for run in runs:
            run.block(_BLOCK_SECONDS)
    overhead_us = _overhead_us(baseline, threads)
    timing, alternative = (_timing(run.times_us, overhead_us, job.replicas) for run in runs)
    return KernelResult(job.name, timing, alternative, None)


def run_profile(
    path: Path, feeds: dict[str, Array], threads: int, optimize: bool, folder: Path, seconds: float
) -> tuple[dict[str, float], float, Path]:
    """Return each node's time in place and the time of a run, both in microseconds, and ONNX Runtime's own graph."""
    optimized = folder / f"optimized-{'all' if optimize else 'none'}.onnx"
    options = _options(threads, optimize=optimize)
    options.optimized_model_filepath = str(optimized)
    plain = _Bound(_opened(path, options), feeds)
    options = _options(threads, optimize=optimize)
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    profiled = _Bound(_opened(path, options), feeds)
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline and len(profiled.times_us) < _PROFILED_RUNS:
        plain.block(seconds / 10)
        profiled.block(seconds / 10)
    trace = Path(profiled.session.end_profiling())
    times = _node_times(json.loads(trace.read_text(encoding="utf-8")))
    trace.unlink()
    return times, statistics.median(plain.times_us), optimized


def _node_times(events: list[dict[str, Any]]) -> dict[str, float]:
    """Return a low percentile of every node's times: what is above it comes from other processes."""
    seen: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            seen[event["name"].removesuffix("_kernel_time")].append(float(event["dur"]))
    return {name: _low_mean(times) for name, times in seen.items()}


def _low_mean(times: list[float]) -> float:
    """The mean of the lower half: finer than the whole microseconds that the trace has."""
    ordered = sorted(times)
    return statistics.fmean(ordered[: max(1, len(ordered) // 2)])


class _Bound:
    """A session with its operands and results in place."""

    def __init__(self, session: onnxruntime.InferenceSession, feeds: dict[str, Array]) -> None:
        import onnxruntime

        self.session = session
        self.times_us: list[float] = []
        self._binding = session.io_binding()
        self._kept = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
        for info in session.get_inputs():
            self._binding.bind_ortvalue_input(info.name, self._kept[info.name])
        for info in session.get_outputs():
            self._binding.bind_output(info.name)
        for _ in range(2):
            session.run_with_iobinding(self._binding)

    def block(self, seconds: float) -> None:
        """Run for some time, and keep the times of all runs but the first ones."""
        begin = time.perf_counter()
        settled = begin + min(_SETTLE_SECONDS, seconds / 4)
        end = begin + seconds
        runs = 0
        while True:
            start = time.perf_counter()
            if start >= end and runs >= 2:
                break
            self.session.run_with_iobinding(self._binding)
            stop = time.perf_counter()
            runs += 1
            if start >= settled or runs > 1:
                self.times_us.append((stop - start) * 1e6)


def _timing(times_us: list[float], overhead_us: float, replicas: int) -> Timing:
    low, median, high = (
        max(0.05, (q - overhead_us) / replicas) for q in np.quantile(times_us, (0.25, 0.5, 0.75)).tolist()
    )
    return Timing(median, low, high, len(times_us), TimingSource.MEASURED)


_OVERHEADS: dict[tuple[Path, int], float] = {}


def _overhead_us(baseline: Path, threads: int) -> float:
    """Return the time of a run that does nothing; measured once in the life of the process."""
    key = (baseline, threads)
    if key not in _OVERHEADS:
        session = _opened(baseline, _options(threads, optimize=True))
        run = _Bound(session, {info.name: np.zeros(1, np.float32) for info in session.get_inputs()})
        run.block(0.05)
        _OVERHEADS[key] = float(np.quantile(run.times_us, 0.25))
    return _OVERHEADS[key]


def _session(job: KernelJob, threads: int, *, library: bool, optimize: bool) -> onnxruntime.InferenceSession:
    options = _options(threads, optimize=optimize)
    if library:
        options.register_custom_ops_library(str(job.library))
    return _opened(job.model, options)


def _options(threads: int, *, optimize: bool) -> onnxruntime.SessionOptions:
    import onnxruntime

    level = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
    return options


def _opened(model: Path, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
    import onnxruntime

    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def _operand(typed: TensorType, rng: np.random.Generator) -> Array:
    if typed.dtype.is_float:
        return np.asarray(rng.standard_normal(typed.shape) * 2, typed.dtype.numpy)
    if typed.dtype.is_integer:
        return rng.integers(0, 8, typed.shape).astype(typed.dtype.numpy)
    return np.asarray(rng.integers(0, 2, typed.shape), bool)


def _difference(got: Array, expected: Array, job: KernelJob) -> str | None:
    """Return what is wrong with an output, or None. Errors count against the size of the largest element too."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"It returns {got.dtype}{list(got.shape)}: expected was {expected.dtype}{list(expected.shape)}"
    if not np.issubdtype(got.dtype, np.floating):
        wrong = got != expected
    else:
        finite = np.abs(expected[np.isfinite(expected)])
        atol = job.atol * max(1.0, float(finite.max(initial=0.0)))
        wrong = ~np.isclose(got, expected, rtol=job.rtol, atol=atol, equal_nan=True)
    if not wrong.any():
        return None
    place = tuple(np.argwhere(wrong)[0].tolist())
    return f"It computes something else: {got[place]} instead of {expected[place]} at {list(place)}"
