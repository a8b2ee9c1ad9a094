"""The result of `korch optimize --dry-run`, as text."""

from __future__ import annotations

import math
from pathlib import PurePath

from korch_cli.core.record import DryRunRecord
from korch_cli.report.table import count, format_seconds, format_us


def render_dry_run(record: DryRunRecord, *, verbose: bool = False) -> str:
    """Return what a run would do; `verbose` lists every reason."""
    parts = [f"korch {record.environment.get('korch', '')}".rstrip(), PurePath(record.model).name]
    if "machine" in record.environment:
        parts.append(record.environment["machine"])
    left = ", ".join(f"{op_type} ×{number}" for op_type, number, _ in record.opaque)
    opaque = sum(number for _, number, _ in record.opaque)
    head = [
        " · ".join(parts),
        f"  {count(record.operators, 'operator')} → {count(record.primitives, 'primitive')} · opaque {opaque}"
        + (f" ({left})" if left else ""),
        f"  {count(record.candidates, 'candidate')} ({record.distinct:,} distinct) · {_stored(record)}",
        f"  {_gain(record)}",
        f"  {_effort(record)}",
    ]
    details = []
    if verbose:
        details += [f"  opaque: {op_type} ×{number}: {reason}" for op_type, number, reason in record.opaque]
        details += [f"  rejected: {number:,}× {reason}" for reason, number in sorted(record.rejected.items())]
    details += [f"  note: {note}" for note in record.notes]
    closing = [f"DRY RUN in {format_seconds(sum(record.seconds.values()))}: nothing was written."]
    return "\n\n".join("\n".join(block) for block in (head, details, closing) if block)


def _stored(record: DryRunRecord) -> str:
    kernels = f"the store knows {record.stored:,} of {count(record.kernels, 'kernel')}"
    if record.looked_up == record.distinct:
        return kernels
    return f"{kernels} of {record.looked_up:,} candidates looked up"


def _gain(record: DryRunRecord) -> str:
    bound = f"no plan takes less than {format_us(record.bound_us)}"
    if not math.isfinite(record.vendor_us):
        return bound
    most = record.vendor_us / record.bound_us if record.bound_us > 0 else math.inf
    return f"ONNX Runtime's kernels: {format_us(record.vendor_us)} · {bound}: {most:.2f}× as fast at most"


def _effort(record: DryRunRecord) -> str:
    if record.searched:
        return "This was searched before: a run would repeat the result and measure no kernel."
    if record.hopeless:
        return "This is so little that no kernel would be measured."
    return (
        f"A search would measure about {count(record.to_measure, 'kernel')}, in about "
        f"{format_seconds(record.search_seconds)} of a budget of {format_seconds(record.budget_s)}."
    )
