"""Run what `prepare_gpu_check` prepared on the GPU of this machine, in under four minutes; write down what is found.

Checks every kernel against the primitives' meaning in float64, times kernels against torch.compile and CuPy, compares
both with what the roofline estimates, runs compute-sanitizer over the kernels, and whole models through ONNX Runtime.
It needs this checkout, numpy, ml_dtypes and CuPy; what needs torch, onnxruntime-gpu or compute-sanitizer is left out
where that is missing, with the reason. Ends with 1 if a kernel computes something else, with 4 if it
cannot begin.

    PYTHONPATH=src python -m scripts.gpu_check build/gpu-check -o build/gpu-check.json
"""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from korch_cli.core.gpu import Gpu
from korch_cli.measure.cuda import Roofline, known_gpus
from korch_cli.measure.cuda.device import copies_to_make
from scripts.gpu_bench import SIZES, WORKLOADS, Deadline, KernelBench, calibration
from scripts.gpu_plans import Plans, PreparedKernel, read_plans
from scripts.gpu_rivals import Step, matrix_rates, or_why, time_in_cupy, time_in_torch
from scripts.gpu_sessions import run_models
from scripts.gpu_workloads import workloads

SCHEMA = "korch.gpu-check/1"
_SECONDS = 210.0
_SHARES = {"kernels": 0.5, "rivals": 0.75, "models": 0.85, "sanitizer": 1.0}
"""Of the time, when each part has to be done; what comes later takes what is left."""
_TOOLS = ("memcheck", "racecheck", "synccheck")
_UNABLE = 4
"""Exit code where there is no GPU, no CuPy, or nothing that was prepared."""
_LATE = {"left_out": "time is up"}


@dataclass(frozen=True, slots=True)
class Budget:
    """The time that a check may take: `seconds` from `start` on."""

    start: float
    seconds: float

    def left(self) -> float:
        """Return the seconds that are left."""
        return self.start + self.seconds - time.monotonic()

    def until(self, share: float) -> Deadline:
        """Return what says whether this share of the time is over."""
        return lambda: self.left() < (1 - share) * self.seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit code."""
    given = _parser().parse_args(arguments)
    try:
        plans = read_plans(given.folder)
        cupy = _cupy()
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        print(f"The check cannot begin: {error}", file=sys.stderr)
        return _UNABLE
    budget = Budget(time.monotonic(), given.seconds)
    document = check(cupy, plans, given.folder, budget, bare=given.bare)
    document["seconds"] = round(time.monotonic() - budget.start, 1)
    text = json.dumps(document, indent=1) + "\n"
    if given.output is None:
        print(text, end="")
    else:
        given.output.write_text(text, encoding="utf-8")
    checked = [entry for entry in document["kernels"] if "failure" in entry]
    failed = [entry for entry in checked if entry["failure"] is not None]
    for entry in failed:
        print(f"FAILED  {entry['group']}: {entry['label']}: {entry['failure']}", file=sys.stderr)
    total = len(document["kernels"])
    print(f"{len(checked)} of {total} kernels checked, {len(failed)} failed, {document['seconds']} s", file=sys.stderr)
    return int(bool(failed))


def check(cupy: Any, plans: Plans, folder: Path, budget: Budget, *, bare: bool = False) -> dict[str, Any]:
    """Return all findings.

    Args:
        cupy: the module.
        plans: what was prepared.
        folder: where.
        budget: of time; steps that it forbids are named as left out.
        bare: only check what the kernels of all schedules and types compute.
    """
    device = cupy.cuda.Device()
    capability = int(device.compute_capability)
    name = cupy.cuda.runtime.getDeviceProperties(device.id)["name"].decode()
    roofline = Roofline(_gpu(name, capability))
    late = {part: budget.until(1.0 if bare else share) for part, share in _SHARES.items()}
    bench = KernelBench(cupy, folder, capability, roofline, late["kernels"], timing=not bare)
    chosen = [kernel for kernel in plans.kernels if kernel.group == SIZES or not bare]
    kernels = [bench.run(kernel) for kernel in chosen]
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "made_with": dict(plans.made_with),
        "machine": {
            "gpu": name,
            "capability": capability,
            "estimates_for": roofline.gpu.name,
            "driver": cupy.cuda.runtime.driverGetVersion(),
            "cupy": cupy.__version__,
        },
        "kernels": kernels,
    }
    if bare:
        return document
    return document | {
        "calibration": calibration(kernels, roofline),
        "products": _LATE if late["rivals"]() else or_why(lambda: matrix_rates(_torch())),
        "rivals": _rivals(cupy, plans.kernels, bench, late["rivals"]),
        "models": or_why(lambda: run_models(plans.models, folder, late["models"])),
        "sanitizer": _sanitized(folder, budget),
    }


def _rivals(cupy: Any, kernels: Sequence[PreparedKernel], bench: KernelBench, late: Deadline) -> dict[str, Any]:
    """Time the workloads in CuPy and in torch, by label."""
    texts = {kernel.label.split(";")[0]: kernel for kernel in kernels if kernel.group == WORKLOADS}
    found: dict[str, Any] = {}
    for label, kernel in texts.items():
        if late():
            found[label] = _LATE
            continue
        operands = bench.case(kernel.graph).operands
        workload = next(one for one in workloads() if one.name == label.rsplit(", ", 1)[0])
        copies = copies_to_make(cupy, kernel.kernel.read_bytes + kernel.kernel.written_bytes)
        torch_us = functools.partial(_in_torch, workload.torch, operands, copies)
        steps: dict[str, Step] = {
            "cupy_us": functools.partial(time_in_cupy, cupy, workload.cupy, operands, copies),
            "torch_us": functools.partial(torch_us, compiled=False),
            "torch_compiled_us": functools.partial(torch_us, compiled=True),
        }
        found[label] = {key: _LATE if late() else or_why(step) for key, step in steps.items()}
    return found


def _in_torch(*given: Any, compiled: bool) -> float:
    return time_in_torch(_torch(), *given, compiled=compiled)


def _cupy() -> Any:
    """Return CuPy. Raises ImportError: it is missing; RuntimeError: there is no GPU, or no driver."""
    import cupy

    cupy.cuda.runtime.getDeviceCount()
    return cupy


def _torch() -> Any:
    import torch

    return torch


def _gpu(name: str, capability: int) -> Gpu:
    """Return the figures of this GPU, or of the nearest one that there are figures of."""
    words = name.replace("-", " ").split()
    same = [gpu for gpu in known_gpus() if all(word in words for word in gpu.name.split("-"))]
    near = sorted(known_gpus(), key=lambda gpu: abs(gpu.capability - capability))
    return (same or near)[0]


def _sanitized(folder: Path, budget: Budget) -> dict[str, Any]:
    """Run the kernels of all schedules and types under compute-sanitizer, tool by tool, in equal shares of the time."""
    program = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if program is None:
        return {"left_out": "there is no compute-sanitizer here"}
    found: dict[str, Any] = {}
    for at, tool in enumerate(_TOOLS):
        limit_s = budget.left() / (len(_TOOLS) - at)
        command = [program, "--tool", tool, "--error-exitcode", "9", sys.executable, "-m", "scripts.gpu_check"]
        command += [str(folder), "--bare", "--seconds", str(limit_s / 2)]
        found[tool] = _LATE if limit_s <= 0 else or_why(functools.partial(_sanitizer_run, command, limit_s))
    return found


def _sanitizer_run(command: Sequence[str], limit_s: float) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    return {"status": done.returncode, "log": [*done.stdout.splitlines()[-8:], *done.stderr.splitlines()[-4:]]}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what prepare_gpu_check wrote")
    parser.add_argument("-o", "--output", type=Path, help="write the findings to this file, not to stdout")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="start nothing after this time (%(default)s)")
    parser.add_argument("--bare", action="store_true", help="only check kernels of all schedules and types")
    return parser


if __name__ == "__main__":
    sys.exit(main())
