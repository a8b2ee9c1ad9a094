"""Aligned columns and readable figures."""

from __future__ import annotations

from collections.abc import Sequence

_MICROSECONDS_IN_MS, _MICROSECONDS_IN_S = 1e3, 1e6
_SECONDS_IN_MINUTE = 60.0
_STEP = 1024


def align(rows: Sequence[Sequence[str]], left: int = 1, indent: str = "  ") -> str:
    """Return rows as lines with columns of equal width; the first `left` columns to the left, others to the right."""
    if not rows:
        return ""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def format_us(microseconds: float) -> str:
    """Return a time with the unit that keeps it short."""
    if microseconds < _MICROSECONDS_IN_MS:
        return f"{microseconds:.1f} µs"
    if microseconds < _MICROSECONDS_IN_S:
        return f"{microseconds / _MICROSECONDS_IN_MS:.2f} ms"
    return f"{microseconds / _MICROSECONDS_IN_S:.2f} s"


def format_bytes(size: int) -> str:
    """Return a size with the unit that keeps it short, in steps of 1024."""
    if size < _STEP:
        return f"{size} B"
    shown = float(size)
    unit = "B"
    for larger in ("KiB", "MiB", "GiB"):
        if shown < _STEP:
            break
        shown, unit = shown / _STEP, larger
    return f"{shown:.1f} {unit}"


def format_seconds(seconds: float) -> str:
    """Return a duration as a person would say it, e.g. "4.2 s" or "2 min 14 s"."""
    if seconds < _SECONDS_IN_MINUTE:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), int(_SECONDS_IN_MINUTE))
    return f"{minutes} min {rest} s"


def count(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is not one."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
