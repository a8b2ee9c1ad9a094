"""Whether two models compute the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from korch_cli.core.record import OutputError, Verdict
from korch_cli.core.types import Array
from korch_cli.verify.child import ChildError, NamedArrays, Subject, child
from korch_cli.verify.compare import Difference, compare

_ROUNDING = 4
"""Two ways of rounding that are equally good may differ from a third one by as many times as much."""


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


def first_failure(subject: Subject, feed: Mapping[str, Array], threads: int) -> ChildError | None:
    """Run a model once in a process of its own; return what went wrong, if anything did."""
    try:
        with child() as process:
            process.open(subject, threads)
            process.run(feed)
    except ChildError as error:
        return error
    return None


def no_worse(verdict: Verdict, own: Verdict) -> bool:
    """Whether outputs that are beyond the tolerance differ by what a model's own optimisations make of it.

    A network may amplify rounding so much that any other order of its sums shows. Then ONNX Runtime's optimisations
    show too, and sums in a third order differ by as much again, within a factor that `_ROUNDING` allows.

    Args:
        verdict: on an output model.
        own: on the input model with all optimisations, against the input model without any; on the same inputs.
    """
    if verdict.failure is not None or own.failure is not None:
        return False
    allowed = {error.output: error for error in own.worst}
    return all(
        error.mismatches <= _ROUNDING * allowed[error.output].mismatches
        and error.max_abs <= _ROUNDING * allowed[error.output].max_abs
        for error in verdict.worst
        if error.mismatches
    )


class _SubjectError(Exception):
    def __init__(self, subject: Subject, error: ChildError) -> None:
        self.sentence = f"The model {subject.name!r} did not run: {error.sentence}."
        super().__init__(self.sentence)


def _outputs(subject: Subject, feeds: Sequence[Mapping[str, Array]], threads: int) -> tuple[NamedArrays, ...]:
    try:
        with child() as process:
            # Kernels of ours never round operands, so that what does is not held against them.
            process.open(replace(subject, exact=True), threads)
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
