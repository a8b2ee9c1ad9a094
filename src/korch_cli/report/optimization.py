"""The result of `korch optimize`, as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from korch_cli.core.record import Comparison, ContestantRecord, KernelRecord, OptimizeRecord, SearchRecord
from korch_cli.report.comparison import percentile, render_ratio, render_times
from korch_cli.report.table import align, count, format_bytes, format_seconds, format_us
from korch_cli.report.verdict import summarize_verdict

_SHOWN_KERNELS = 8
_SHOWN_NODES = 3
_LEAST_SHOWN = 0.0005
_DENSE = ("body: beyond the share of its seed", "body: more candidates than the limit")
"""How the enumeration counts what it left out because there was too much of it."""


def render_optimize(record: OptimizeRecord, *, verbose: bool = False) -> str:
    """Return what was found and written; `verbose` lists every kernel and every reason."""
    blocks = [
        [_headline(record), *_search(record)],
        _contest(record.contest),
        _speed(record),
        [f"  verify: {summarize_verdict(verdict)}" for verdict in record.verdicts],
        _kernels(record.kernels, None if verbose else _SHOWN_KERNELS),
        _reasons(record, verbose),
        [f"  wrote {' · '.join(record.written)}", _closing(record)],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _headline(record: OptimizeRecord) -> str:
    parts = [f"korch {record.environment.get('korch', '')}".rstrip(), PurePath(record.model).name]
    if "machine" in record.environment:
        parts.append(record.environment["machine"])
    return " · ".join(parts)


def _search(record: OptimizeRecord) -> list[str]:
    search = record.search
    left = ", ".join(f"{op_type} ×{number}" for op_type, number, _ in record.opaque)
    opaque = sum(number for _, number, _ in record.opaque)
    whole = f"{count(search.operators, 'operator')} → {count(search.primitives, 'primitive')}"
    priced = "timed" if record.estimated_for is None else "estimated"
    estimated = "" if record.estimated_for is None else f" (estimated for {record.estimated_for})"
    return [
        f"  {whole} · opaque {opaque}" + (f" ({left})" if left else ""),
        f"  {count(search.candidates, 'candidate')} ({search.distinct:,} distinct) · "
        f"{count(search.measured, 'kernel')} {priced}, {search.from_store:,} from the store · "
        f"{_share(search.tried, search.distinct)} of the distinct candidates tried",
        f"  solver: {search.solver_status} (gap {_gap(search.gap)}) in {format_seconds(search.solve_seconds)}, "
        f"{count(search.rounds, 'round')} · plan {format_us(search.plan_us)}, "
        f"bound {format_us(search.bound_us)}{estimated}",
        *_limited(search),
        *_alone(search),
    ]


def _gap(share: float) -> str:
    """Return a gap as text, which is 0 only where the gap is."""
    return "below 0.1%" if 0.0 < share < _LEAST_SHOWN else f"{share:.1%}"


def _alone(search: SearchRecord) -> list[str]:
    """Say what plans without alternatives would cost."""
    if not search.alone_us:
        return []
    each = ", ".join(f"{name} {format_us(cost_us)}" for name, cost_us in search.alone_us.items())
    return [f"  without alternatives: {each}; together {format_us(search.plan_us)}"]


def _limited(search: SearchRecord) -> list[str]:
    """Say where regions were too dense to look at all of them: the bound holds for what was looked at."""
    left = sum(search.rejected.get(reason, 0) for reason in _DENSE)
    return [f"  dense regions: {count(left, 'set')} of primitives beyond the limits were not looked at"] if left else []


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "none"


def _speed(record: OptimizeRecord) -> list[str]:
    comparison = record.comparison
    if comparison is None:
        return []
    first, *others = comparison.samples
    pairs = zip(others, comparison.ratios, strict=True)
    return [
        render_times(comparison),
        *(render_ratio(f"the {other.name}", f"the {first.name}", ratio) for other, ratio in pairs),
        *_prediction(record, comparison),
        *(f"  warning: {warning}" for warning in comparison.warnings),
    ]


def _prediction(record: OptimizeRecord, comparison: Comparison) -> list[str]:
    """Return what the sum of the kernels' times promised beside what was measured: whether times add up."""
    found = record.prediction
    if found is None:
        return []
    before_us = percentile(comparison.samples[0].times_us, 50)
    return [
        f"  predicted: {format_us(found.input_us or record.search.vendor_us)} → {format_us(found.predicted_us)}; "
        f"measured: {format_us(before_us)} → {format_us(found.measured_us)}; "
        f"predicted / measured, at the pace of the comparison: {found.ratio:.2f}"
    ]


def _contest(contestants: Sequence[ContestantRecord]) -> list[str]:
    if not contestants:
        return []
    rows = [["plan", "custom nodes", "predicted", "measured", "as fast as the input", ""]]
    for plan in contestants:
        predicted = "" if plan.predicted_us is None else format_us(plan.predicted_us)
        ratio = f"{plan.ratio.value:.2f}× ({plan.ratio.low:.2f} to {plan.ratio.high:.2f})"
        mark = "chosen" if plan.chosen else ""
        rows.append([plan.name, f"{plan.custom_nodes}", predicted, format_us(plan.measured_us), ratio, mark])
    return [align(rows)]


def _kernels(kernels: Sequence[KernelRecord], limit: int | None) -> list[str]:
    if not kernels:
        return []
    shown = kernels[:limit]
    estimated = any(kernel.source == "estimated" for kernel in shown)
    time = "estimated time" if estimated else "time"
    rows = [["kernel", "computes", "uses", time, "instead of", "bytes", "operations", "of limit"]]
    for kernel in shown:
        instead = "?" if kernel.alternative_us is None else format_us(kernel.alternative_us)
        share = "?" if kernel.share_of_limit is None else f"{kernel.share_of_limit:.0%}"
        work = [format_bytes(kernel.bytes_moved), f"{kernel.flops:,.0f}"]
        rows.append([kernel.name, _nodes(kernel), f"{kernel.uses}", format_us(kernel.time_us), instead, *work, share])
    hidden = len(kernels) - len(shown)
    return [align(rows, left=2), *([f"  and {count(hidden, 'kernel')} more (-v lists them)"] if hidden else [])]


def _nodes(kernel: KernelRecord) -> str:
    names = " + ".join(kernel.nodes[:_SHOWN_NODES])
    hidden = len(kernel.nodes) - _SHOWN_NODES
    return f"{names} + {hidden} more" if hidden > 0 else names


def _reasons(record: OptimizeRecord, verbose: bool) -> list[str]:
    lines = [f"  left out: {name}: {reason}" for name, reason in record.guilty]
    if verbose:
        lines += [f"  opaque: {op_type} ×{number}: {reason}" for op_type, number, reason in record.opaque]
        lines += [f"  rejected: {number:,}× {reason}" for reason, number in sorted(record.search.rejected.items())]
        stages = " · ".join(f"{stage} {format_seconds(spent)}" for stage, spent in record.seconds.items())
        lines += [f"  time: {stages}"] if stages else []
        lines += [f"  {key}: {value}" for key, value in record.environment.items()]
    return lines + [f"  note: {note}" for note in record.notes]


def _closing(record: OptimizeRecord) -> str:
    answer = "OPTIMIZED" if record.changed else "UNCHANGED"
    spent = f" in {format_seconds(sum(record.seconds.values()))}" if record.seconds else ""
    return f"{answer}{spent}: {record.reason}"
