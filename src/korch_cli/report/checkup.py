"""What `korch doctor` found, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from korch_cli.report.table import align, count


class Level(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that korch needs or would like to have.

    Attributes:
        level: how it came out.
        subject: what was looked at, e.g. "compiler".
        finding: what was found.
        advice: what to do about it, "" if nothing.
    """

    level: Level
    subject: str
    finding: str
    advice: str = ""


def render_checks(checks: Sequence[Check]) -> str:
    """Return one line a check, advice below what it is for, and the sum of it."""
    lines = align([[check.level, check.subject, check.finding] for check in checks], left=3, indent="").split("\n")
    advised = []
    for check, line in zip(checks, lines, strict=True):
        advised += [line, f"    {check.advice}"] if check.advice else [line]
    problems = sum(check.level is Level.PROBLEM for check in checks)
    warnings = sum(check.level is Level.WARNING for check in checks)
    return "\n".join([*advised, "", f"{count(problems, 'problem')}, {count(warnings, 'warning')}"])
