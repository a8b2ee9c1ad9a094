"""What the child process does with models: check and time a kernel, profile a whole one."""

from __future__ import annotations

import contextlib
import functools
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from korch_cli.core.artifact import KernelJob, KernelResult
from korch_cli.core.kernel import Timing, TimingSource
from korch_cli.core.ortvalue import runner, to_value
from korch_cli.core.types import Array
from korch_cli.measure.calibrate import DISPATCH_US
from korch_cli.measure.correctness import difference, draw_operand

if TYPE_CHECKING:
    import onnxruntime

_FEWEST_ROUNDS = 3
_MOST_ROUNDS = 9
_STEADY = 0.04
"""Distance of the quartiles, relative to the median, at which more rounds would tell nothing."""
_BLOCK_SECONDS = 0.008
_EMPTY_SECONDS = 0.004
_SETTLE_SECONDS = 0.0015
"""The start of a block in which the other session's threads may still spin."""
_PROFILED_RUNS = 400
_QUARTILES = (0.25, 0.5, 0.75)
_KERNEL_TIME = "_kernel_time"


def run_kernel(job: KernelJob, baseline: Path, threads: int, seed: int) -> KernelResult:
    """Check a kernel against its function, then time both side by side."""
    rng = np.random.default_rng(seed)
    feeds = {name: draw_operand(typed, rng) for name, typed in job.inputs}
    expected = runner(_session(job, threads, library=False, optimize=False))(feeds)
    with_library = _session(job, threads, library=True, optimize=True)
    got = runner(with_library)(feeds)
    failure = next(
        filter(None, (difference(g, e, job.rtol, job.atol) for g, e in zip(got, expected, strict=True))), None
    )
    if failure is not None:
        return KernelResult(job.name, None, None, failure)
    runs = [_Bound(with_library, feeds)]
    # What ONNX Runtime makes of the function may fail where the function as it stands does not.
    with contextlib.suppress(Exception):
        runs.append(_Bound(_session(job, threads, library=False, optimize=True), feeds))
    empty = _empty(baseline, threads)
    empty.times_us.clear()
    _alternate(runs, empty)
    timings = [_timing(run.times_us, empty.times_us, job.replicas) for run in runs]
    return KernelResult(job.name, timings[0], timings[1] if len(timings) > 1 else None, None)


def _alternate(runs: list[_Bound], empty: _Bound) -> None:
    """Run all in turn, in short blocks, until the times are steady: what disturbs the machine disturbs all alike.

    That goes for the empty run too: taken at another moment, its time may be more than that of a small kernel.
    """
    for done in range(1, _MOST_ROUNDS + 1):
        for run in runs:
            run.block(_BLOCK_SECONDS)
        empty.block(_EMPTY_SECONDS)
        if done >= _FEWEST_ROUNDS and all(run.spread() < _STEADY for run in runs):
            return


def run_profile(
    path: Path, feeds: dict[str, Array], threads: int, optimize: bool, folder: Path, seconds: float
) -> tuple[dict[str, float], float, Path]:
    """Return each node's time and that of a run, low percentiles in microseconds, and ONNX Runtime's own graph."""
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
    with trace.open(encoding="utf-8") as lines:
        times = _node_times(lines)
    trace.unlink()
    return times, float(np.quantile(plain.times_us, 0.25)), optimized


def run_rewriting(path: Path, folder: Path) -> Path:
    """Return the graph that ONNX Runtime makes of a model for any processor: without layouts that only CPUs have."""
    import onnxruntime

    optimized = folder / "extended.onnx"
    options = _options(1, optimize=True)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(optimized)
    _opened(path, options)
    return optimized


def _node_times(lines: Iterable[str]) -> dict[str, float]:
    """Return a low percentile of every node's times: what is above it comes from other processes.

    The trace is JSON with one event a line. Line by line it takes little memory, however long the model.
    """
    seen: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        if _KERNEL_TIME not in line:
            continue
        event = json.loads(line.strip().rstrip(","))
        if event["cat"] == "Node" and event["name"].endswith(_KERNEL_TIME):
            seen[event["name"].removesuffix(_KERNEL_TIME)].append(float(event["dur"]))
    return {name: _low_mean(times) for name, times in seen.items()}


def _low_mean(times: list[float]) -> float:
    """The mean of the lower half: finer than the whole microseconds that the trace has."""
    ordered = sorted(times)
    return statistics.fmean(ordered[: max(1, len(ordered) // 2)])


class _Bound:
    """A session with its operands and results in place; strings, sequences and the like cannot be."""

    def __init__(self, session: onnxruntime.InferenceSession, feeds: dict[str, Array]) -> None:
        self.session = session
        self.times_us: list[float] = []
        self._run: Callable[[], object] = functools.partial(runner(session), feeds)
        ends = (*session.get_inputs(), *session.get_outputs())
        if all(end.type.startswith("tensor(") and end.type != "tensor(string)" for end in ends):
            # What is written into an earlier result must have the shape that the model declares, and some models lie.
            with contextlib.suppress(Exception):
                bound = self._bound(feeds)
                bound()
                bound()
                self._run = bound
                return
        for _ in range(2):
            self._run()

    def _bound(self, feeds: dict[str, Array]) -> Callable[[], object]:
        binding = self.session.io_binding()
        self._kept = {name: to_value(array) for name, array in feeds.items()}
        for info in self.session.get_inputs():
            binding.bind_ortvalue_input(info.name, self._kept[info.name])
        for info in self.session.get_outputs():
            binding.bind_output(info.name)
        return functools.partial(self.session.run_with_iobinding, binding)

    def block(self, seconds: float) -> None:
        """Run for some time, at least once, and keep the times of all runs but the first ones."""
        begin = time.perf_counter()
        settled = begin + min(_SETTLE_SECONDS, seconds / 4)
        end = begin + seconds
        kept = 0
        while True:
            start = time.perf_counter()
            if start >= end and kept:
                break
            self._run()
            stop = time.perf_counter()
            if start >= settled:
                kept += 1
                self.times_us.append((stop - start) * 1e6)

    def spread(self) -> float:
        """Return the distance of the quartiles of all times, relative to their median."""
        low, median, high = np.quantile(self.times_us, _QUARTILES).tolist()
        return float((high - low) / median)


def _timing(times_us: list[float], empty_us: list[float], replicas: int) -> Timing:
    """Return the time of one replica: each quartile without that of the empty run, which the same noise has moved.

    No kernel takes less than its dispatch; where noise says so, it hides a small one.
    """
    net = np.quantile(times_us, _QUARTILES) - np.quantile(empty_us, _QUARTILES)
    low, median, high = np.sort(np.maximum(DISPATCH_US, net / replicas)).tolist()
    return Timing(median, low, high, len(times_us), TimingSource.MEASURED)


@functools.cache
def _empty(baseline: Path, threads: int) -> _Bound:
    """Return the run that does nothing, whose time every run takes too; made once in the life of the process."""
    session = _opened(baseline, _options(threads, optimize=True))
    return _Bound(session, {info.name: np.zeros(1, np.float32) for info in session.get_inputs()})


def _session(job: KernelJob, threads: int, *, library: bool, optimize: bool) -> onnxruntime.InferenceSession:
    options = _options(threads, optimize=optimize)
    if library:
        options.register_custom_ops_library(str(job.library))
    return _opened(job.model, options)


def _options(threads: int, *, optimize: bool) -> onnxruntime.SessionOptions:
    import onnxruntime

    level = onnxruntime.GraphOptimizationLevel
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
    return options


def _opened(model: Path, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
    import onnxruntime

    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
