"""Steps of `gpu_check` in a process of their own, so that none of them can end or hold up the check.

A kernel that reads outside of memory makes the GPU refuse all that its process asks for afterwards, and one that never
ends cannot be stopped from within. So `gpu_check` starts this, reads a line of JSON for each step, and starts it again
behind a step that gave none.

    python -m scripts.gpu_parts kernels build/gpu-check --seconds 60 --after 12
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from korch_cli.core.gpu import Gpu
from korch_cli.core.text import parse_graph
from korch_cli.measure.cuda import Roofline, known_gpus
from korch_cli.measure.cuda.device import copies_to_make
from scripts.gpu_bench import SIZES, WORKLOADS, KernelBench, draw_operands, left_out, timed_kernels
from scripts.gpu_plans import Plans, PreparedKernel, read_plans
from scripts.gpu_rivals import Step, matrix_rates, or_why, time_in_cupy, time_in_torch
from scripts.gpu_sessions import run_model
from scripts.gpu_workloads import workloads

READY = "ready"
"""The first line, when the modules are there and the GPU answers."""
LATE = left_out("time is up")
PARTS = ("kernels", "bare", "rivals", "models")
_LOST = 3
"""Exit code where the GPU no longer answers this process."""

Late = Callable[[], bool]


def main(words: Sequence[str] | None = None) -> int:
    """Do the steps of a part, and print what each one finds; return the exit code."""
    given = _parser().parse_args(words)
    end = time.monotonic() + given.seconds
    plans = read_plans(given.folder)
    steps = list(steps_of(given.part, plans, given.folder, lambda: time.monotonic() > end).values())
    _say(READY)
    for step in steps[given.after :]:
        found = LATE if time.monotonic() > end else or_why(step)
        _say(found)
        if isinstance(found, dict) and ("left_out" in found or found.get("failure")) and not _answers():
            return _LOST
    return 0


def names_of(part: str, plans: Plans) -> list[Any]:
    """Return what each step of a part is called, in the order of the steps."""
    if part == "models":
        return list(plans.models)
    if part != "rivals":
        return [_named(kernel) for kernel in _chosen(part, plans)]
    keys = ("cupy_us", "torch_us", "torch_compiled_us")
    return [("products", ""), *((label, key) for label in _labels(plans) for key in keys)]


def steps_of(part: str, plans: Plans, folder: Path, late: Late) -> Mapping[int, Step]:
    """Return the steps of a part by their place; `late` says whether the time of a part is up."""
    if part == "models":
        found = [functools.partial(run_model, model, folder) for model in plans.models.values()]
        return dict(enumerate(found))
    import cupy

    if part == "rivals":
        return dict(enumerate([lambda: matrix_rates(_torch()), *_rivals(cupy, plans)]))
    capability = int(cupy.cuda.Device().compute_capability)
    bench = KernelBench(cupy, folder, capability, Roofline(gpu_here(cupy)), late)
    chosen = _chosen(part, plans)
    timed = timed_kernels(chosen) if part == "kernels" else frozenset()
    return {at: functools.partial(_checked, bench, kernel, at in timed) for at, kernel in enumerate(chosen)}


def gpu_here(cupy: Any) -> Gpu:
    """Return the figures of the GPU of this machine, or of the nearest one that there are figures of."""
    device = cupy.cuda.Device()
    name = cupy.cuda.runtime.getDeviceProperties(device.id)["name"].decode()
    words = name.replace("-", " ").split()
    same = [gpu for gpu in known_gpus() if all(word in words for word in gpu.name.split("-"))]
    near = sorted(known_gpus(), key=lambda gpu: abs(gpu.capability - int(device.compute_capability)))
    return (same or near)[0]


def _chosen(part: str, plans: Plans) -> list[PreparedKernel]:
    return [kernel for kernel in plans.kernels if kernel.group == SIZES or part != "bare"]


def _named(kernel: PreparedKernel) -> dict[str, Any]:
    return {"group": kernel.group, "label": kernel.label, "name": kernel.kernel.name}


def _checked(bench: KernelBench, kernel: PreparedKernel, timed: bool) -> dict[str, Any]:
    """An error of a kernel is a finding about it."""
    try:
        return _named(kernel) | bench.run(kernel, timed=timed)
    except Exception as error:
        lines = str(error).splitlines() or [""]
        return _named(kernel) | {"failure": f"{type(error).__name__}: {lines[0]}"}


def _labels(plans: Plans) -> dict[str, PreparedKernel]:
    return {kernel.label.split(";")[0]: kernel for kernel in plans.kernels if kernel.group == WORKLOADS}


def _rivals(cupy: Any, plans: Plans) -> list[Step]:
    """Time each workload in CuPy, in torch, and in torch compiled."""
    steps: list[Step] = []
    for label, kernel in _labels(plans).items():
        workload = next(one for one in workloads() if one.name == label.rsplit(", ", 1)[0])
        operands = functools.cache(functools.partial(_operands, kernel.graph))
        copies = copies_to_make(cupy, kernel.kernel.read_bytes + kernel.kernel.written_bytes)
        steps.append(functools.partial(_in_cupy, cupy, workload.cupy, operands, copies))
        in_torch = functools.partial(_in_torch, workload.torch, operands, copies)
        steps += [functools.partial(in_torch, compiled=compiled) for compiled in (False, True)]
    return steps


def _operands(text: str) -> tuple[Any, ...]:
    return draw_operands(parse_graph(text))


def _in_cupy(cupy: Any, function: Any, operands: Any, copies: int) -> float:
    return time_in_cupy(cupy, function, operands(), copies)


def _in_torch(function: Any, operands: Any, copies: int, *, compiled: bool) -> float:
    return time_in_torch(_torch(), function, operands(), copies, compiled=compiled)


def _torch() -> Any:
    import torch

    return torch


def _answers() -> bool:
    """Return whether the GPU still does what this process asks for; true where nothing asked it for anything."""
    cupy = sys.modules.get("cupy")
    try:
        if cupy is not None:
            cupy.cuda.runtime.deviceSynchronize()
    except Exception:
        return False
    return True


def _say(found: Any) -> None:
    print(json.dumps(found), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("folder", type=Path, help="what prepare_gpu_check wrote")
    parser.add_argument("--seconds", type=float, required=True, help="start nothing after this time")
    parser.add_argument("--after", type=int, default=0, help="leave out so many steps")
    return parser


if __name__ == "__main__":
    sys.exit(main())
