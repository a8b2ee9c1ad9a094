"""What is found out about a trial, and how it travels from the process that finds it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Outcome(StrEnum):
    """How a trial ended."""

    TOUCHED = "touched"
    """The answers are equal, and a generated kernel took part."""
    OPAQUE = "opaque"
    """The answers are equal, but the output has no generated kernel."""
    EXCLUDED = "excluded"
    """It was optimised, but ONNX Runtime gives nothing to compare with."""
    FAILED = "failed"
    """The answers differ, something that a caller relies on changed, or there is no output at all."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found out about a trial.

    Attributes:
        key: case and variant.
        outcome: how it ended.
        reasons: why nothing was touched, which rule excludes it, or what went wrong; a sentence each.
    """

    key: str
    outcome: Outcome
    reasons: tuple[str, ...] = ()

    @property
    def variant(self) -> str:
        """The form in which the case was optimised."""
        return self.key.rpartition(" @ ")[2]

    @property
    def reason(self) -> str:
        """All reasons in one line."""
        return "; ".join(self.reasons)


class Journal:
    """Where a child process writes, line by line, what it begins and what it finds out, so that nothing is lost."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self, key: str, stage: str) -> None:
        """Note what is being done."""
        self._append({"begin": key, "stage": stage})

    def conclude(self, verdict: Verdict) -> None:
        """Note a verdict."""
        self._append({"key": verdict.key, "outcome": verdict.outcome, "reasons": list(verdict.reasons)})

    def verdicts(self) -> list[Verdict]:
        """Return what was found out."""
        lines = [line for line in self._lines() if "key" in line]
        return [Verdict(line["key"], Outcome(line["outcome"]), tuple(line["reasons"])) for line in lines]

    def last(self) -> tuple[str, str]:
        """Return the trial that was begun last, and what was done with it."""
        begun = [line for line in self._lines() if "begin" in line]
        return (begun[-1]["begin"], begun[-1]["stage"]) if begun else ("", "starting")

    def _append(self, line: dict[str, object]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _lines(self) -> list[dict[str, str]]:
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]
