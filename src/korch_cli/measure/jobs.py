"""Measuring kernels and models through a child process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from korch_cli.core.artifact import KernelJob, KernelResult
from korch_cli.core.errors import ModelError
from korch_cli.core.progress import Progress
from korch_cli.core.types import Array
from korch_cli.measure.child import Worker, WorkerError, ask_each

_PROFILE_LIMIT_S = 600.0


def measure_kernels(
    jobs: Sequence[KernelJob],
    *,
    baseline: Path,
    threads: int,
    seed: int,
    time_limit_s: float,
    progress: Progress,
    worker: Worker | None = None,
) -> Iterator[KernelResult]:
    """Check and time each kernel; one that crashes or hangs costs only itself.

    Args:
        jobs: the kernels.
        baseline: a model that does nothing, whose time every run takes too.
        threads: of ONNX Runtime's pool.
        seed: of the operands.
        time_limit_s: seconds that one kernel may take in all.
        progress: told of each kernel.
        worker: the process to measure in, which goes on; None for one that ends with the last kernel.
    """
    common = {"baseline": baseline, "threads": threads, "seed": seed}
    requests = [(job.name, ("kernel", {"job": job, **common})) for job in jobs]
    return ask_each(requests, time_limit_s=time_limit_s, progress=progress, worker=worker)


@dataclass(frozen=True, slots=True)
class ModelTimes:
    """How long ONNX Runtime takes for a model and each of its nodes.

    Attributes:
        times_us: by node name, in the graph that ONNX Runtime made of the model; in place, a low percentile.
        total_us: lower quartile of runs without the profiler.
        optimized: that graph, as a file.
    """

    times_us: Mapping[str, float]
    total_us: float
    optimized: Path


def profile_model(
    path: Path, feeds: Mapping[str, Array], *, threads: int, optimize: bool, folder: Path, seconds: float = 3.0
) -> ModelTimes:
    """Run a model under ONNX Runtime's profiler.

    Args:
        path: the model.
        feeds: its inputs.
        threads: of ONNX Runtime's pool.
        optimize: with all of ONNX Runtime's optimisations, or with none.
        folder: for the graph that ONNX Runtime makes of the model.
        seconds: to spend, about.

    Raises:
        ModelError: the model does not run.
    """
    arguments = {
        "path": path,
        "feeds": dict(feeds),
        "threads": threads,
        "optimize": optimize,
        "folder": folder,
        "seconds": seconds,
    }
    with Worker() as worker:
        try:
            times_us, total_us, optimized = worker.ask(("profile", arguments), _PROFILE_LIMIT_S)
        except WorkerError as error:
            hint = "if it needs particular inputs, give them with --inputs FILE.npz"
            raise ModelError(f"ONNX Runtime does not run the model: {error}", where=path.name, hint=hint) from error
    return ModelTimes(times_us, total_us, optimized)


def rewritten_model(path: Path, folder: Path) -> Path:
    """Return the graph that ONNX Runtime makes of a model whatever it runs on, as a file in `folder`.

    Raises:
        ModelError: the model cannot be loaded.
    """
    with Worker() as worker:
        try:
            made: Path = worker.ask(("rewriting", {"path": path, "folder": folder}), _PROFILE_LIMIT_S)
        except WorkerError as error:
            raise ModelError(f"ONNX Runtime does not load the model: {error}", where=path.name) from error
    return made
