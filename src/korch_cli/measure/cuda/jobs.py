"""Measuring CUDA kernels through a child process."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence

from korch_cli.core.artifact import CudaJob, KernelResult
from korch_cli.core.progress import Progress
from korch_cli.measure.child import ask_each


def can_measure() -> bool:
    """Whether CuPy, which kernels are measured through, is installed."""
    return importlib.util.find_spec("cupy") is not None


def measure_cuda_kernels(
    jobs: Sequence[CudaJob], *, seed: int, time_limit_s: float, progress: Progress
) -> Iterator[KernelResult]:
    """Check and time each kernel; one that crashes or hangs costs only itself.

    Args:
        jobs: the kernels.
        seed: of the operands.
        time_limit_s: seconds that one kernel may take in all.
        progress: told of each kernel.
    """
    requests = [(job.name, ("cuda-kernel", {"job": job, "seed": seed})) for job in jobs]
    # After a fault on the GPU a process can do nothing more with it.
    return ask_each(requests, time_limit_s=time_limit_s, progress=progress, again_after_failures=True)
