"""The table of fission functions: which one splits which operator at which opset version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.fission.build import Builder
from korch_cli.fission.view import OperatorView

Result = Value | tuple[Value | None, ...]
FissionFunction = Callable[[OperatorView, Builder], Result]

LATEST: Mapping[str, int] = {"": 28, "com.microsoft": 1}
"""The newest opset version of each domain whose operators' definitions were read; a newer one stays opaque."""


@dataclass(frozen=True, slots=True)
class Row:
    """One function and the opset versions for which it is right.

    Attributes:
        op_type: the operator.
        domain: its domain, "" for ONNX's own.
        since: the version of the operator's definition that the function was written for.
        until: the last opset version it may be used for, None for the newest one known.
        also: versions of the definition after `since` in this range, each read and found to mean the same.
        function: it returns the operator's outputs in order, or raises Refusal.
    """

    op_type: str
    domain: str
    since: int
    until: int | None
    also: tuple[int, ...]
    function: FissionFunction


_ROWS: dict[tuple[str, str], list[Row]] = {}


def fission(
    op_type: str, *, since: int, until: int | None = None, also: tuple[int, ...] = (), domain: str = ""
) -> Callable[[FissionFunction], FissionFunction]:
    """Enter the decorated function into the table; see `Row` for the arguments."""

    def enter(function: FissionFunction) -> FissionFunction:
        _ROWS.setdefault((domain, op_type), []).append(Row(op_type, domain, since, until, also, function))
        return function

    return enter


def rows() -> tuple[Row, ...]:
    """Return the whole table."""
    return tuple(row for group in _ROWS.values() for row in group)


def find(domain: str, op_type: str, version: int) -> FissionFunction:
    """Return the function for an operator at an imported opset version.

    Raises:
        Refusal: there is none for exactly this version.
    """
    name = f"{domain}:{op_type}" if domain else op_type
    group = _ROWS.get((domain, op_type))
    if group is None:
        raise Refusal(f"there is no fission of {name}")
    if version > LATEST[domain]:
        raise Refusal(f"opset {version} is newer than the newest one known, {LATEST[domain]}")
    for row in group:
        if row.since <= version and (row.until is None or version <= row.until):
            return row.function
    raise Refusal(f"there is no fission of {name} at opset {version}")
