"""Checking and timing prepared kernels on a GPU, for `gpu_check`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.interpreter import evaluate
from korch_cli.core.text import parse_graph
from korch_cli.core.types import Array, DType, TensorType
from korch_cli.measure.correctness import difference, draw_operand
from korch_cli.measure.cuda import Roofline
from korch_cli.measure.cuda.device import (
    Buffers,
    copies_to_make,
    launch_all,
    load_functions,
    make_buffers,
    read_results,
    time_runs,
)
from scripts.gpu_plans import PreparedKernel

SIZES, WORKLOADS = "sizes", "workloads"
"""Groups of kernels; each other one is of a model."""
_TOLERANCES = {DType.F32: 2e-5, DType.F64: 1e-13, DType.F16: 2.0**-7, DType.BF16: 2.0**-4}
_MODEL_KERNELS = 40
"""That are timed, of all models."""

Deadline = Callable[[], bool]
"""Whether time is up."""


@dataclass(frozen=True, slots=True)
class Case:
    """A body with operands and what it makes of them."""

    operands: tuple[Array, ...]
    results: tuple[TensorType, ...]
    expected: tuple[Array, ...]


def left_out(why: str) -> dict[str, str]:
    """Return what stands where nothing was found."""
    return {"left_out": why}


def draw_operands(graph: PrimitiveGraph) -> tuple[Array, ...]:
    """Return random operands of a body, the same each time."""
    rng = np.random.default_rng(0)
    return tuple(draw_operand(value.type, rng) for value in graph.inputs())


def case_of(text: str) -> Case:
    """Draw operands for a body and compute its results by the primitives' meaning, in float64."""
    graph: PrimitiveGraph = parse_graph(text)
    operands = draw_operands(graph)
    feeds = dict(zip((value.id for value in graph.inputs()), operands, strict=True))
    # Sixteen bits are rounded after each primitive, which is no error of a kernel.
    narrow = any(value.type.dtype in (DType.F16, DType.BF16) for value in graph.values)
    found = evaluate(graph, feeds, widen=not narrow)
    results = tuple(graph.values[v].type for v in graph.outputs)
    expected = (np.asarray(found[v]).reshape(graph.values[v].type.shape) for v in graph.outputs)
    stored = tuple(array.astype(typed.dtype.numpy) for array, typed in zip(expected, results, strict=True))
    return Case(operands, results, stored)


def timed_kernels(kernels: Sequence[PreparedKernel]) -> frozenset[int]:
    """Return the places of those to time: workloads, some of models, and a small one, as short as a launch."""
    groups = [kernel.group for kernel in kernels]
    small = [
        at for at, kernel in enumerate(kernels) if kernel.group == SIZES and kernel.label.startswith("points, f32")
    ]
    of_models = [at for at, group in enumerate(groups) if group not in (SIZES, WORKLOADS)]
    return frozenset([*small, *of_models[:_MODEL_KERNELS], *(at for at, g in enumerate(groups) if g == WORKLOADS)])


class KernelBench:
    """Checks and times kernels on one GPU; none is timed any more when it is `late`."""

    def __init__(self, cupy: Any, folder: Path, capability: int, roofline: Roofline, late: Deadline) -> None:
        self._cupy, self._folder, self._capability = cupy, folder, capability
        self._roofline, self._late = roofline, late
        # The kernels of a body follow each other.
        self._case = functools.lru_cache(maxsize=1)(case_of)

    def run(self, prepared: PreparedKernel, *, timed: bool) -> dict[str, Any]:
        """Return what is found about a kernel; `failure` is null if it computes what it should."""
        kernel = prepared.kernel
        image = prepared.capability_for(self._capability)
        if image is None:
            return left_out(f"no image runs on sm_{self._capability}")
        case = self._case(prepared.graph)
        found: dict[str, Any] = {}
        stream = self._cupy.cuda.Stream(non_blocking=True)
        with stream:
            functions = load_functions(self._cupy, self._folder / prepared.images[image], kernel.launches)
            launch = functools.partial(launch_all, kernel.launches, functions)
            buffers = make_buffers(self._cupy, case.operands, case.results, kernel.scratch)
            launch(buffers)
            stream.synchronize()
            found["failure"] = _failure(case, read_results(buffers, case.results))
            if found["failure"] is None and timed and not self._late():
                found |= self._times(stream, launch, case, prepared, buffers)
                found["estimated_us"] = self._roofline.kernel_us(kernel, prepared.resources[image])
        return found

    def _times(
        self, stream: Any, launch: Callable[[Buffers], None], case: Case, prepared: PreparedKernel, first: Buffers
    ) -> dict[str, Any]:
        size = sum(buffer.nbytes for several in first.values() for buffer in several)
        more = range(copies_to_make(self._cupy, size) - 1)
        scratch = prepared.kernel.scratch
        copies = [first, *(make_buffers(self._cupy, case.operands, case.results, scratch) for _ in more)]
        return {
            "us": self._median(stream, [functools.partial(launch, one) for one in copies]),
            # The same memory again and again: what a kernel finds that comes right after the one before it.
            "resident_us": self._median(stream, [functools.partial(launch, first)]),
            "bytes": prepared.kernel.read_bytes + prepared.kernel.written_bytes,
            "flops": prepared.kernel.flops,
        }

    def _median(self, stream: Any, runs: Sequence[Callable[[], None]]) -> float:
        return float(np.median(time_runs(self._cupy, stream, runs)))


def _failure(case: Case, got: Sequence[Array]) -> str | None:
    for typed, result, expected in zip(case.results, got, case.expected, strict=True):
        tolerance = _TOLERANCES.get(typed.dtype, 0.0)
        failure = difference(result, expected, tolerance, tolerance / 10)
        if failure is not None:
            return failure
    return None


def calibration(kernels: Sequence[dict[str, Any]], roofline: Roofline) -> dict[str, float | None]:
    """Return the constants of the roofline model as this GPU has them; null where that was not measured."""
    timed = {entry["label"].split(";")[0]: entry for entry in kernels if "us" in entry}
    found: dict[str, float | None] = dict.fromkeys(
        ("launch_us", "bandwidth_share", "resident_speedup", "arithmetic_share")
    )
    small, large = timed.get("points, f32"), timed.get("scale, 32 Mi elements, f32")
    if small is None:
        return found
    found["launch_us"] = launch_us = small["resident_us"]
    if large is None or large["us"] <= launch_us:
        return found
    rate = large["bytes"] / (large["us"] - launch_us) * 1e6
    found["bandwidth_share"] = rate / roofline.gpu.bytes_per_second
    cached = timed.get("scale, 1 Mi elements, f32")
    if cached is not None and cached["resident_us"] > launch_us:
        found["resident_speedup"] = cached["bytes"] / (cached["resident_us"] - launch_us) * 1e6 / rate
    busy = next((entry for label, entry in timed.items() if "products and sums" in label and "f32" in label), None)
    if busy is not None and busy["us"] > launch_us:
        found["arithmetic_share"] = busy["flops"] / (busy["us"] - launch_us) * 1e6 / roofline.gpu.flops_per_second
    return found
