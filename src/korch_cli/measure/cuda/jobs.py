"""Measuring CUDA kernels through a child process."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence

from korch_cli.core.artifact import CudaJob, KernelResult
from korch_cli.core.progress import Progress
from korch_cli.measure.child import Worker, WorkerError


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
    with Worker() as worker:
        for done, job in enumerate(jobs, 1):
            try:
                result: KernelResult = worker.ask(("cuda-kernel", {"job": job, "seed": seed}), time_limit_s)
            except WorkerError as error:
                result = KernelResult(job.name, None, None, str(error))
            progress.step(done, len(jobs), job.name)
            if result.failure is not None:
                # After a fault on the GPU a process can do nothing more with it.
                worker.stop()
            yield result
