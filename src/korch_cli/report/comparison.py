"""How fast models are: tables of times, and what one model gains over another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from korch_cli.core.record import Comparison, KernelTime, NodeTime, Ratio
from korch_cli.report.table import align, format_bytes, format_us

_SHOWN_NODES = 3


@dataclass(frozen=True, slots=True)
class Profile:
    """The result of `korch profile`.

    Attributes:
        comparison: times of the model and of those that it is compared with, the model first.
        nodes: of the model, if they were asked for.
        kernels: generated ones that the model runs, if they were asked for.
    """

    comparison: Comparison
    nodes: Sequence[NodeTime] = ()
    kernels: Sequence[KernelTime] = ()


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """How many times as fast as `against` the model is."""

    model: str
    against: str
    ratio: Ratio


def percentile(times: Sequence[float], percent: float) -> float:
    """Return a percentile, interpolated between the two nearest samples; 50 is the median."""
    ordered = sorted(times)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def speed_ups(comparison: Comparison) -> tuple[SpeedUp, ...]:
    """Return what the first model gains over each of the others."""
    first, *others = comparison.samples
    return tuple(
        SpeedUp(first.name, other.name, Ratio(1 / found.value, 1 / found.high, 1 / found.low, found.pairs))
        for other, found in zip(others, comparison.ratios, strict=True)
    )


def render_times(comparison: Comparison) -> str:
    """Return a table with a column for each model."""
    samples = comparison.samples
    rows = [
        ["", *(s.name for s in samples)],
        ["median", *(format_us(percentile(s.times_us, 50)) for s in samples)],
        ["p5", *(format_us(percentile(s.times_us, 5)) for s in samples)],
        ["p95", *(format_us(percentile(s.times_us, 95)) for s in samples)],
        ["runs", *(f"{len(s.times_us):,}" for s in samples)],
    ]
    return align(rows)


def render_ratio(model: str, against: str, ratio: Ratio) -> str:
    """Return a sentence that says how many times as fast one model is as another."""
    return (
        f"  {model} is {ratio.value:.2f}× as fast as {against} "
        f"(95 % interval {ratio.low:.2f} to {ratio.high:.2f}, {ratio.pairs} alternating blocks)"
    )


def render_comparison(comparison: Comparison) -> str:
    """Return times of all models, what the first one gains over each of the others, and reasons for doubt."""
    threads = "1 thread" if comparison.threads == 1 else f"{comparison.threads} threads"
    lines = [f"ONNX Runtime, {threads}", "", render_times(comparison)]
    gains = [render_ratio(found.model, found.against, found.ratio) for found in speed_ups(comparison)]
    if gains:
        lines += ["", *gains]
    if comparison.warnings:
        lines += ["", *(f"  warning: {warning}" for warning in comparison.warnings)]
    return "\n".join(lines)


def render_nodes(nodes: Sequence[NodeTime]) -> str:
    """Return the nodes, the costliest first, and each one's share of them all."""
    ordered = sorted(nodes, key=lambda node: (-node.time_us, node.name))
    rows = [["operator", "node", "time", "share"]]
    rows += [[_operator(node), node.name, format_us(node.time_us), f"{node.share:.1%}"] for node in ordered]
    return align(rows, left=2)


def _operator(node: NodeTime) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


def render_kernels(kernels: Sequence[KernelTime]) -> str:
    """Return the kernels with their work, their time and their share of the limit, the costliest first."""
    rows = [["kernel", "computes", "limited by", "uses", "bytes", "operations", "time", "limit", "of limit"]]
    for kernel in kernels:
        figures = [f"{kernel.uses}", format_bytes(kernel.bytes_moved), f"{kernel.flops:,.0f}"]
        times = [format_us(kernel.time_us), format_us(kernel.limit_us), f"{kernel.share_of_limit:.0%}"]
        rows.append([kernel.name, _computed(kernel), kernel.limited_by, *figures, *times])
    return align(rows, left=3)


def _computed(kernel: KernelTime) -> str:
    """The nodes of the first use."""
    names = kernel.nodes[0] if kernel.nodes else ()
    hidden = len(names) - _SHOWN_NODES
    return " + ".join(names[:_SHOWN_NODES]) + (f" + {hidden} more" if hidden > 0 else "")


def render_profile(profile: Profile) -> str:
    """Return the comparison, and the nodes and kernels if there are any."""
    blocks = [render_comparison(profile.comparison)]
    blocks += [render_nodes(profile.nodes)] if profile.nodes else []
    blocks += [render_kernels(profile.kernels)] if profile.kernels else []
    return "\n\n".join(blocks)
