"""The result of `korch cache`, as text."""

from __future__ import annotations

from korch_cli.core.storage import CacheContent, CacheRecord
from korch_cli.report.table import align, count, format_bytes

_KINDS = {
    "kernel": "measured kernels",
    "profile": "profiles of models",
    "search": "searches",
    "comparison": "comparisons",
    "limits": "machine limits",
}


def render_cache(record: CacheRecord) -> str:
    """Return what was done, and what the store holds now."""
    head = [record.folder]
    if record.content is not None:
        head.append(_content(record.content, record.limit_bytes))
    notes = [f"  note: {note}" for note in record.notes]
    closing = _DONE[record.action](record) if record.action in _DONE else []
    return "\n".join([*head, *notes, *closing])


def _content(content: CacheContent, limit_bytes: int) -> str:
    rows = [[_KINDS.get(kind, kind), f"{number:,}"] for kind, number in sorted(content.entries.items())]
    rows.append(["compiled kernels", f"{content.objects:,}"])
    if content.set_aside:
        rows.append(["leftovers", f"{content.set_aside:,}"])
    rows.append(["size", f"{format_bytes(content.size_bytes)} of {format_bytes(limit_bytes)}"])
    origins = [f"  {count(number, 'kernel')} from {origin}" for origin, number in sorted(content.origins.items())]
    return "\n".join([align(rows), *origins])


def _removed(record: CacheRecord) -> list[str]:
    return [f"REMOVED: {_entries(record.entries)} and {count(record.files or 0, 'file')}"]


def _exported(record: CacheRecord) -> list[str]:
    return [f"EXPORTED: {_entries(record.entries)} to {record.file}"]


def _imported(record: CacheRecord) -> list[str]:
    return [
        f"IMPORTED: {_entries(record.entries)} from {record.file}, and {record.known or 0:,} that were here already"
    ]


def _entries(number: int | None) -> str:
    return "1 entry" if number == 1 else f"{number or 0:,} entries"


_DONE = {"prune": _removed, "clear": _removed, "export": _exported, "import": _imported}
