"""What every trial is expected to come to: `expectations.toml` lists the exceptions, by exact key, and the counts."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tests.conformance.verdict import Outcome, Verdict

EXPECTATIONS = Path(__file__).with_name("expectations.toml")
_PACKAGES = ("onnx", "onnxruntime")
_STATUSES = ("opaque", "xfail", "skip")
_HEAD = """\
# What the backend tests of onnx come to that is not "equal, with a generated kernel". See docs/conformance.md.
# `make conformance-update` rewrites the versions, the counts and what is opaque; look at the difference before you
# commit it. "xfail" and "skip" are entered by hand, with the reason.
"""


@dataclass(frozen=True, slots=True)
class Expectation:
    """An exception.

    Attributes:
        status: "opaque" (equal, but without a generated kernel), "xfail" (known to fail), "skip" (not tried).
        reason: why.
    """

    status: str
    reason: str


@dataclass(frozen=True, slots=True)
class Expectations:
    """The content of the file.

    Attributes:
        versions: of the packages that decide what a trial comes to; with others only failures can be judged.
        touched: for each variant, how many trials have a generated kernel; it may not fall.
        excluded: for each variant, how many ONNX Runtime gives nothing to compare with; it may not rise.
        trials: exceptions by key.
    """

    versions: Mapping[str, str]
    touched: Mapping[str, int]
    excluded: Mapping[str, int]
    trials: Mapping[str, Expectation]

    @property
    def skipped(self) -> frozenset[str]:
        """The trials that are not to be tried."""
        return frozenset(key for key, expected in self.trials.items() if expected.status == "skip")

    @property
    def apply(self) -> bool:
        """Whether the file was written with the packages that are installed."""
        return dict(self.versions) == installed()


def installed() -> dict[str, str]:
    """Return the versions of the packages that decide what a trial comes to."""
    return {name: metadata.version(name) for name in _PACKAGES}


def read(path: Path) -> Expectations:
    """Return the content of the file. Raises ValueError for an unknown status or an exception without a reason."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    exceptions = {key: Expectation(entry["status"], entry["reason"]) for key, entry in document["trials"].items()}
    for key, expected in exceptions.items():
        if expected.status not in _STATUSES or not expected.reason:
            raise ValueError(f"{path.name}: {key} needs a reason and a status of {', '.join(_STATUSES)}")
    return Expectations(document["versions"], document["touched"], document["excluded"], exceptions)


def updated(old: Expectations, verdicts: Sequence[Verdict]) -> Expectations:
    """Return what to expect after these verdicts on everything; exceptions entered by hand stay while they hold."""
    exceptions = {key: old.trials[key] for key in old.skipped}
    for verdict in verdicts:
        known = old.trials.get(verdict.key)
        if verdict.outcome is Outcome.OPAQUE:
            exceptions[verdict.key] = Expectation("opaque", verdict.reason)
        elif verdict.outcome is Outcome.FAILED and known is not None and known.status == "xfail":
            exceptions[verdict.key] = known
    return Expectations(installed(), counts(verdicts, Outcome.TOUCHED), counts(verdicts, Outcome.EXCLUDED), exceptions)


def write(expectations: Expectations, path: Path) -> None:
    """Write the file, entries in order of their keys."""
    lines = [_HEAD]
    for name in ("versions", "touched", "excluded"):
        table: Mapping[str, object] = getattr(expectations, name)
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in sorted(table.items())), ""]
    lines.append("[trials]")
    for key, expected in sorted(expectations.trials.items()):
        reason = json.dumps(expected.reason, ensure_ascii=False)
        lines.append(f"{json.dumps(key)} = {{ status = {json.dumps(expected.status)}, reason = {reason} }}")
    partial = path.with_suffix(".partial")
    partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
    partial.replace(path)


def counts(verdicts: Iterable[Verdict], outcome: Outcome) -> dict[str, int]:
    """Return how many verdicts of each variant have this outcome."""
    found = Counter(verdict.variant for verdict in verdicts if verdict.outcome is outcome)
    return dict(sorted(found.items()))


def complaints(expectations: Expectations, verdicts: Iterable[Verdict]) -> list[str]:
    """Return a sentence on every verdict that is not the expected one."""
    found = ((verdict.key, _complaint(expectations, verdict)) for verdict in verdicts)
    return [f"{key}: {sentence}" for key, sentence in found if sentence]


def vanished(expectations: Expectations, keys: Iterable[str]) -> list[str]:
    """Return a sentence on every exception whose trial is not among all trials' keys."""
    if not expectations.apply:
        return []
    return [f"{key}: it is listed, but there is no such trial" for key in sorted({*expectations.trials} - {*keys})]


def worse_counts(expectations: Expectations, verdicts: Sequence[Verdict]) -> list[str]:
    """Return a sentence on every committed count that verdicts on everything do not reach."""
    if not expectations.apply:
        return []
    touched, excluded = counts(verdicts, Outcome.TOUCHED), counts(verdicts, Outcome.EXCLUDED)
    fallen = [
        f"{variant}: {touched.get(variant, 0)} trials are touched, and {count} were"
        for variant, count in expectations.touched.items()
        if touched.get(variant, 0) < count
    ]
    risen = [
        f"{variant}: {count} trials are excluded, and {expectations.excluded.get(variant, 0)} were"
        for variant, count in excluded.items()
        if count > expectations.excluded.get(variant, 0)
    ]
    return fallen + risen


def _complaint(expectations: Expectations, verdict: Verdict) -> str | None:
    expected = expectations.trials.get(verdict.key)
    status = "touched" if expected is None else expected.status
    if verdict.outcome is Outcome.FAILED:
        return None if status == "xfail" else verdict.reason
    if not expectations.apply:
        return None
    if verdict.outcome is Outcome.EXCLUDED:
        return None if expected is None else f"it is listed as {status}, but excluded: {verdict.reason}"
    if verdict.outcome == status:
        return None
    if verdict.outcome is Outcome.OPAQUE and status == "touched":
        return f"it has no generated kernel: {verdict.reason}"
    return f"it is listed as {status}, but it is equal and {verdict.outcome}"
