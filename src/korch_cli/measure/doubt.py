"""Measurements that stay in the store, and doubt about those that were taken beside other processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from korch_cli.measure.store import ProfileStore

AGAIN_S = 3600.0
"""When what was measured on a busy machine is measured again: runs that follow each other shall come to one result."""
BUSY = 0.15
"""Share of all processors that others may take while something is measured."""
_STATISTICS = Path("/proc/stat")
_IDLE = (3, 4)
"""Columns of the time that no process took."""
_SPENT = 8
"""Columns that make up the whole; those after them are counted in the first two as well."""
_T = TypeVar("_T")


class Watch:
    """Looks at what other processes take while this one, and children that end before `others`, measures."""

    def __init__(self) -> None:
        self._before = _spent_s()

    def others(self) -> float:
        """Return the share of all processors that others took since the watch began; 0 where nothing tells."""
        if self._before is None or (after := _spent_s()) is None:
            return 0.0
        busy, own, whole = (b - a for a, b in zip(self._before, after, strict=True))
        return min(1.0, max(0.0, (busy - own) / whole)) if whole > 0 else 0.0


def _spent_s() -> tuple[float, float, float] | None:
    """Return the seconds of all processors that anyone took, that this process and its children took, and all."""
    try:
        with _STATISTICS.open(encoding="ascii") as lines:
            columns = [int(column) for column in lines.readline().split()[1 : 1 + _SPENT]]
        ticks = os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return None
    whole = sum(columns) / ticks
    return whole - sum(columns[i] for i in _IDLE) / ticks, sum(os.times()[:4]), whole


def kept(
    store: ProfileStore,
    key: str,
    measure: Callable[[], _T],
    encode: Callable[[_T], dict[str, Any]],
    decode: Callable[[dict[str, Any]], _T],
) -> _T:
    """Return what the store has under `key`, or measure it and keep it.

    What was measured beside other processes is kept too, but measured again by a run an hour later, and the quieter of
    both counts, until one finds the machine quiet.

    Args:
        store: where the figures are kept.
        key: names all that they depend on.
        measure: takes the figures; its child processes end before it returns.
        encode: makes a document of them.
        decode: makes figures of a document.
    """
    known = store.read(key, lambda document: (decode(document), document))
    if known is not None and not is_due(known[1]):
        return known[0]
    watch = Watch()
    measured = measure()
    doubt = {"others": watch.others(), "at": time.time()}
    if known is None:
        return store.keep(key, encode(measured) | doubt, decode)
    figures, document = known
    if doubt["others"] < document["others"]:
        figures, document = measured, encode(measured) | doubt
    store.replace(key, document | {"at": doubt["at"]})
    return figures


def is_due(document: dict[str, Any]) -> bool:
    """Whether figures are to be taken again."""
    return float(document.get("others", 0.0)) > BUSY and time.time() - float(document.get("at", 0.0)) > AGAIN_S
