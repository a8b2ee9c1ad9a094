"""How far the kernels of an output model are from the machine's limits, where they run."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from korch_cli.codegen import generate
from korch_cli.core.companions import plan_beside
from korch_cli.core.errors import MissingError, UsageError
from korch_cli.core.kernel import DOMAIN_PREFIX
from korch_cli.core.machine import MachineLimits, Work
from korch_cli.core.processor import NATIVE
from korch_cli.core.progress import Progress
from korch_cli.core.record import KernelTime, NodeTime
from korch_cli.load import describe_file
from korch_cli.measure import calibrate, machine_identity
from korch_cli.pipeline.inspection import plan_of
from korch_cli.pipeline.laboratory import Bench, probe_builder
from korch_cli.pipeline.storage import opened_store
from korch_cli.toolchain import find_compiler

_AGAIN = "run korch optimize again, or build the same output with its --from-plan"


def kernel_plan(model: Path) -> dict[str, Any]:
    """Return the plan of a model that runs generated kernels.

    Raises:
        UsageError: it runs none, or kernels for a GPU.
        MissingError: the plan is not beside it, or an earlier version wrote it.
    """
    file = describe_file(model)
    if not file.kernels:
        raise UsageError(
            "this model runs no generated kernels", where=str(model), hint="name an output of korch optimize"
        )
    document, _ = plan_of(model, file)
    where = str(plan_beside(model))
    if document is None:
        raise MissingError("the plan of the model is not beside it", where=where, hint=f"copy it there, or {_AGAIN}")
    if document.get("target", "cpu") != "cpu":
        raise UsageError("only the kernels of the processor are timed one by one", where=where)
    if not all(entry.keys() >= {"bytes", "flops"} for entry in document["kernels"]):
        raise MissingError("the plan does not say what its kernels have to do", where=where, hint=_AGAIN)
    return document


def kernel_times(
    plan: Mapping[str, Any], nodes: Sequence[NodeTime], *, threads: int, progress: Progress
) -> tuple[KernelTime, ...]:
    """Return the kernels among the nodes that ran, the costliest first, beside what this machine could do at best.

    The machine's limits come from the store, or are measured and kept there.

    Args:
        plan: of the model, from `kernel_plan`.
        nodes: what ONNX Runtime's profiler says of the model.
        threads: that the model ran with.
        progress: told what happens.

    Raises:
        MissingError: there is no C++ compiler to measure the machine's limits with.
    """
    with tempfile.TemporaryDirectory(prefix="korch-") as scratch, opened_store(Path(scratch)) as store:
        progress.stage("Calibrating the machine")
        compiler = find_compiler(None, plan.get("cpu") or NATIVE)
        bench = Bench(compiler, store, machine_identity(threads), Path(scratch), threads, 1, 0, 1, generate)
        limits = calibrate(threads, compiler.identity, store, probe_builder(bench, progress))
    return against_limits(plan, nodes, limits)


def against_limits(plan: Mapping[str, Any], nodes: Sequence[NodeTime], limits: MachineLimits) -> tuple[KernelTime, ...]:
    """Return the kernels among the nodes with their share of the limits, the costliest first."""
    ran: dict[str, list[float]] = {}
    for node in nodes:
        if node.domain.startswith(DOMAIN_PREFIX):
            ran.setdefault(node.op_type, []).append(node.time_us)
    times = [_time(entry, ran[entry["name"]], limits) for entry in plan["kernels"] if entry["name"] in ran]
    return tuple(sorted(times, key=lambda kernel: (-kernel.time_us * kernel.uses, kernel.name)))


def _time(entry: Mapping[str, Any], times_us: Sequence[float], limits: MachineLimits) -> KernelTime:
    work = Work(int(entry["bytes"]), float(entry["flops"]))
    time_us, limit_us = sum(times_us) / len(times_us), limits.least_us(work)
    return KernelTime(
        name=entry["name"],
        uses=len(times_us),
        nodes=tuple(map(tuple, entry["nodes"])),
        schedule=entry["schedule"],
        bytes_moved=work.bytes_moved,
        flops=work.flops,
        time_us=time_us,
        limit_us=limit_us,
        limited_by="memory" if limits.transfer_us(work) >= limits.arithmetic_us(work) else "arithmetic",
        share_of_limit=min(1.0, limit_us / max(time_us, 1e-9)),
    )
