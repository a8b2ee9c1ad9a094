"""The table of operators that random graphs are made of: one row each, for a range of opset versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx

from korch_cli.fission.registry import LATEST
from tests.fuzz.sketch import Call, Sketch

Make = Callable[[Sketch], Call]

NEWEST = min(LATEST[""], onnx.defs.onnx_opset_version())
OLDEST = 7
MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Row:
    """An operator, the opset versions of the default domain at which `make` is right, and what draws a call of it."""

    op_type: str
    since: int
    until: int
    domain: str
    make: Make


_ROWS: list[Row] = []


def enter(names: str, make: Make, *, since: int = OLDEST, until: int = NEWEST, domain: str = "") -> None:
    """Enter a row for each of the operators `names`, which are separated by spaces."""
    _ROWS.extend(Row(name, since, until, domain, make) for name in names.split())


def operator(names: str, *, since: int = OLDEST, until: int = NEWEST, domain: str = "") -> Callable[[Make], Make]:
    """Enter the decorated function as `enter` does."""

    def decorate(make: Make) -> Make:
        enter(names, make, since=since, until=until, domain=domain)
        return make

    return decorate


def rows(opset: int) -> tuple[Row, ...]:
    """Return the rows that apply at an opset version."""
    return tuple(row for row in _ROWS if row.since <= opset <= row.until)
