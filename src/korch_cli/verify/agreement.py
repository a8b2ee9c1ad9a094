"""Whether two models compute the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from korch_cli.core.record import OutputError, Verdict
from korch_cli.core.types import Array
from korch_cli.verify.child import ChildError, NamedArrays, Subject, child
from korch_cli.verify.compare import Difference, compare


def verify_models(
    reference: Subject,
    candidate: Subject,
    feeds: Sequence[Mapping[str, Array]],
    *,
    rtol: float,
    atol: float,
    variant: str,
    threads: int,
) -> Verdict:
    """Run both models on the same inputs, each in a process of its own, and compare all outputs.

    A model that does not load, fails, crashes or hangs makes a verdict with a `failure`, not an exception. Outputs are
    matched by name if both models have the same names, else by position.

    Args:
        reference: is right.
        candidate: must agree with it.
        feeds: sets of inputs.
        rtol: relative tolerance, |a - b| <= atol + rtol * |a| where a is the reference; more for half precision.
        atol: absolute tolerance.
        variant: what is compared, for the report.
        threads: that each model runs with.
    """
    worst: tuple[OutputError, ...] = ()
    failure: str | None = None
    passed = False
    try:
        expected = _outputs(reference, feeds, threads)
        actual = _outputs(candidate, feeds, threads)
    except _SubjectError as error:
        failure = error.sentence
    else:
        failure = _unlike(expected, actual)
        if failure is None:
            differences = _worst_differences(expected, actual, rtol, atol)
            worst = tuple(d.error for d in differences)
            failure = next((d.reason for d in differences if d.reason is not None), None)
            passed = all(d.excess <= 1.0 for d in differences)
    return Verdict(passed, variant, rtol, atol, len(feeds), worst, failure)


def why_it_does_not_run(subject: Subject, feed: Mapping[str, Array], threads: int) -> str | None:
    """Run a model once in a process of its own; return a sentence if that fails."""
    try:
        _outputs(subject, [feed], threads)
    except _SubjectError as error:
        return error.sentence
    return None


class _SubjectError(Exception):
    def __init__(self, subject: Subject, error: ChildError) -> None:
        self.sentence = f"The model {subject.name!r} did not run: {error.sentence}."
        super().__init__(self.sentence)


def _outputs(subject: Subject, feeds: Sequence[Mapping[str, Array]], threads: int) -> tuple[NamedArrays, ...]:
    try:
        with child() as process:
            process.open(subject, threads)
            return tuple(process.run(feed) for feed in feeds)
    except ChildError as error:
        raise _SubjectError(subject, error) from error


def _unlike(expected: Sequence[NamedArrays], actual: Sequence[NamedArrays]) -> str | None:
    for a, b in zip(expected, actual, strict=True):
        if len(a) != len(b):
            return f"The models have different numbers of outputs: {len(a)} and {len(b)}."
    return None


def _worst_differences(
    expected: Sequence[NamedArrays], actual: Sequence[NamedArrays], rtol: float, atol: float
) -> tuple[Difference, ...]:
    """For each output, the worst difference over the runs."""
    worst: dict[str, Difference] = {}
    for a, b in zip(expected, actual, strict=True):
        by_name = dict(b)
        matched = [by_name[name] for name, _ in a] if {n for n, _ in a} == set(by_name) else [array for _, array in b]
        for (name, wanted), got in zip(a, matched, strict=True):
            found = compare(name, wanted, got, rtol=rtol, atol=atol)
            if name not in worst or found.excess > worst[name].excess:
                worst[name] = found
    return tuple(worst.values())
