"""Whether models agree, as text."""

from __future__ import annotations

from collections.abc import Sequence

from korch_cli.core.record import OutputError, Verdict
from korch_cli.report.table import align, count


def summarize_verdict(verdict: Verdict) -> str:
    """Return one line: the answer and the worst error of all outputs."""
    answer = "PASS" if verdict.passed else "FAIL"
    line = f"{answer} {verdict.variant} · {count(verdict.runs, 'input set')}"
    if verdict.failure is not None:
        return f"{line} · {verdict.failure}"
    if not verdict.worst:
        return line
    worst = max(verdict.worst, key=lambda error: (error.mismatches, error.max_abs))
    return f"{line} · worst error {worst.max_abs:.1e} at {_place(worst)}"


def render_verdicts(verdicts: Sequence[Verdict]) -> str:
    """Return, for each variant, the answer and the worst error of every output."""
    parts = []
    for verdict in verdicts:
        rows = [["output", "absolute", "relative", "outside", "worst at"]]
        rows += [
            [e.output, f"{e.max_abs:.1e}", f"{e.max_rel:.1e}", f"{e.mismatches:,} of {e.elements:,}", _index(e)]
            for e in verdict.worst
        ]
        tolerance = f"rtol {verdict.rtol:g}, atol {verdict.atol:g}"
        table = f"\n\n{align(rows)}" if verdict.worst else ""
        parts.append(f"{summarize_verdict(verdict)} · {tolerance}{table}")
    answer = "PASSED" if all(verdict.passed for verdict in verdicts) else "FAILED"
    return "\n\n".join([*parts, answer])


def _index(error: OutputError) -> str:
    return "[" + ", ".join(map(str, error.worst_index)) + "]"


def _place(error: OutputError) -> str:
    return f"{error.output!r}{_index(error)}"
