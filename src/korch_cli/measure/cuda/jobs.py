"""Measuring CUDA kernels through child processes, one a GPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence

from korch_cli.core.artifact import CudaJob, KernelResult
from korch_cli.core.progress import Progress
from korch_cli.measure.crew import ask_crew


def can_measure() -> bool:
    """Whether CuPy, which kernels are measured through, is installed."""
    return importlib.util.find_spec("cupy") is not None


def measure_cuda_kernels(
    jobs: Sequence[CudaJob], devices: Sequence[int], *, seed: int, time_limit_s: float, progress: Progress
) -> Iterator[KernelResult]:
    """Check and time each kernel, in any order; one that crashes or hangs costs only itself.

    Args:
        jobs: the kernels.
        devices: numbers of GPUs, all of one kind; each measures one kernel at a time.
        seed: of the operands.
        time_limit_s: seconds that one kernel may take in all.
        progress: told of each kernel.
    """
    requests = [(job.name, ("cuda-kernel", {"job": job, "seed": seed})) for job in jobs]
    members = [{"device": device} for device in devices]
    return ask_crew(requests, members, time_limit_s=time_limit_s, progress=progress)
