"""The result of `korch reduce`, as text."""

from __future__ import annotations

import shlex
from pathlib import PurePath

from korch_cli.core.record import PartRecord, ReduceRecord
from korch_cli.report.table import align, count, format_bytes, format_seconds
from korch_cli.version import __version__

_SHOWN_OPERATORS = 12
_SHOWN_LETTERS = 200


def render_reduce(record: ReduceRecord) -> str:
    """Return what is left of the model, and what the check says of it."""
    head = [f"korch {__version__} · {PurePath(record.model).name}", f"  check: {shlex.join(record.check)}"]
    if record.message:
        cut = record.message[:_SHOWN_LETTERS]
        head.append(f"  it says: {cut}{'…' if len(cut) < len(record.message) else ''}")
    spent = f"{count(record.trials, 'trial')} in {format_seconds(record.seconds)}"
    if not record.reduced:
        return "\n".join([*head, "", f"NOT REDUCED, {spent}: {record.reason}"])
    rows = [["", "before", "after"]]
    rows += [[name, *(_figure(part, name) for part in (record.before, record.after))] for name in _FIGURES]
    shown = ", ".join(record.operators[:_SHOWN_OPERATORS])
    more = len(record.operators) - _SHOWN_OPERATORS
    closing = [
        f"  what is left: {shown}" + (f" and {more:,} more" if more > 0 else ""),
        f"  wrote {' · '.join(record.written)}",
        f"REDUCED, {spent}: {record.reason}",
    ]
    return "\n".join([*head, "", align(rows), "", *closing])


_FIGURES = ("nodes", "inputs", "outputs", "weights", "size")


def _figure(part: PartRecord, name: str) -> str:
    return format_bytes(part.size_bytes) if name == "size" else f"{getattr(part, name):,}"
