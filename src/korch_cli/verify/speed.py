"""Models timed against each other, end to end."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np

from korch_cli.core.errors import MissingError, ModelError
from korch_cli.core.progress import Progress
from korch_cli.core.record import Comparison, Contest, Ratio, Samples
from korch_cli.core.types import Array
from korch_cli.verify.child import ChildError, Subject, child

_BLOCK_SECONDS = 1.0
_USUAL_ROUNDS = 9
_LEAST_ROUNDS = 5
_PATIENCE = 4.0
"""A comparison of slow models may take this many times the time it was given; then it ends, with a warning if early."""
_MOST_SAMPLES = 2000
_WIDE = 0.10
_RESAMPLES = 4000
_BOOTSTRAP_SEED = 20


def compare_speed(
    subjects: Sequence[Subject],
    feeds: Mapping[str, Array],
    *,
    threads: int,
    seconds: float,
    progress: Progress,
) -> Comparison:
    """Time models in alternating blocks, each in a process of its own that waits while another one runs.

    The ratio of two models is the median over rounds of the ratio of their median times in the round, with a 95 %
    interval from resampling the rounds; whatever slows the machine for longer than a block affects both alike.

    Args:
        subjects: what to compare; the first one is what the others are compared with.
        feeds: the inputs.
        threads: that each model runs with.
        seconds: for all blocks together; there are nine rounds at least, unless they take four times as long.
        progress: told of each round.

    Raises:
        MissingError: ONNX Runtime refuses a library.
        ModelError: a model does not run.
    """
    warnings = _load_warnings()
    blocks = _timed_blocks(subjects, feeds, threads, seconds, progress)
    warnings += _spread_warnings([s.name for s in subjects], blocks)
    return Comparison(
        samples=_samples(subjects, blocks),
        ratios=tuple(_ratio(blocks[0], other) for other in blocks[1:]),
        threads=threads,
        warnings=tuple(warnings),
    )


def compare_all(
    subjects: Sequence[Subject],
    feeds: Mapping[str, Array],
    *,
    threads: int,
    seconds: float,
    progress: Progress,
) -> Contest:
    """Time models as `compare_speed` does, and compare each with each."""
    blocks = _timed_blocks(subjects, feeds, threads, seconds, progress)
    return Contest(_samples(subjects, blocks), tuple(tuple(_ratio(a, b) for b in blocks) for a in blocks))


Blocks = list[list[tuple[float, ...]]]
"""For each model, for each round, the times of its runs in microseconds."""


def _samples(subjects: Sequence[Subject], blocks: Blocks) -> tuple[Samples, ...]:
    return tuple(Samples(s.name, _thinned([t for b in bs for t in b])) for s, bs in zip(subjects, blocks, strict=True))


def _timed_blocks(
    subjects: Sequence[Subject], feeds: Mapping[str, Array], threads: int, seconds: float, progress: Progress
) -> Blocks:
    block = min(_BLOCK_SECONDS, seconds / (_USUAL_ROUNDS * len(subjects)))
    rounds = max(_USUAL_ROUNDS, round(seconds / (block * len(subjects))))
    blocks: Blocks = [[] for _ in subjects]
    with ExitStack() as processes:
        children = [processes.enter_context(child()) for _ in subjects]
        for subject, process in zip(subjects, children, strict=True):
            with explained(subject):
                process.open(subject, threads)
                process.time(feeds, 0.0)
        deadline = time.monotonic() + _PATIENCE * seconds
        for done in range(rounds):
            order = range(len(subjects)) if done % 2 == 0 else reversed(range(len(subjects)))
            for i in order:
                with explained(subjects[i]):
                    blocks[i].append(children[i].time(feeds, block))
            progress.step(done + 1, rounds)
            if time.monotonic() > deadline:
                break
    return blocks


@contextmanager
def explained(subject: Subject) -> Iterator[None]:
    """Tell a user why a model did not run: MissingError if its library is refused, else ModelError."""
    try:
        yield
    except ChildError as error:
        kind = MissingError if error.stage == "library" else ModelError
        message = f"the model {subject.name!r} did not run: {error.sentence}"
        raise kind(message, where=str(subject.model)) from error


def _ratio(first: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> Ratio:
    ratios = np.array([statistics.median(a) / statistics.median(b) for a, b in zip(first, other, strict=True)])
    rng = np.random.default_rng(_BOOTSTRAP_SEED)
    medians = np.median(ratios[rng.integers(0, len(ratios), (_RESAMPLES, len(ratios)))], axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return Ratio(float(np.median(ratios)), float(low), float(high), len(ratios))


def _thinned(times: Sequence[float]) -> tuple[float, ...]:
    """Keep an evenly spaced part of many samples."""
    if len(times) <= _MOST_SAMPLES:
        return tuple(times)
    return tuple(times[i * len(times) // _MOST_SAMPLES] for i in range(_MOST_SAMPLES))


def _load_warnings() -> list[str]:
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return [f"The machine is busy: its load average is {load:.1f} on {cores} processors."] if load > cores else []


def _spread_warnings(names: Sequence[str], blocks: Sequence[Sequence[tuple[float, ...]]]) -> list[str]:
    warnings = []
    for name, timed in zip(names, blocks, strict=True):
        times = np.array([t for b in timed for t in b])
        median = float(np.median(times))
        spread = float(np.median(np.abs(times - median))) / median
        if spread > _WIDE:
            warnings.append(
                f"The times of {name!r} spread widely: half of them are more than {spread:.0%} off the median."
            )
    if len(blocks[0]) < _LEAST_ROUNDS:
        warnings.append(f"Only {len(blocks[0])} rounds were run: the models take too long for the time given.")
    return warnings
