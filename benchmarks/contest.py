"""Models that run in turns: each in a process of its own, in alternating blocks, on the same inputs, outputs compared.

How fast a process runs depends on where its memory happens to lie, so a contest has several sittings, each with
processes of its own, and intervals take the differences between sittings in.

A contestant that computes something else, fails, crashes, hangs or does nothing for most of its time is reported as
such; no time of it counts then. One that is far slower than the baseline plays a single block; one that takes long to
open is opened once and keeps its process. Both can be seen in their rows.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from child import Child, ChildFailure

BLOCK_SECONDS = 1.0
OPEN_SECONDS = 900.0
"""Some runtimes compile when they open a model."""
GRACE = 20.0
"""A block may take as many times as long as it was told, for a run cannot be cut short, before it counts as hung."""
LEAST_BUSY = 0.5
"""A runtime whose threads run, or wait for a processor, for less of its time than this is asleep."""
SCALED_ERROR = 1e-3
"""Outputs may differ by this share of the largest element of the reference."""
SLOW = 10.0
"""A contestant that needs more than so many times the baseline's time plays one block, in one sitting."""
LONG_OPEN_SECONDS = 60.0
"""A contestant that takes longer to open and to run once keeps its process for all sittings."""
_RESAMPLES = 4000
_MOST_SAMPLES = 50


@dataclass(frozen=True, slots=True)
class Contestant:
    """A model in a runtime.

    Attributes:
        name: unique in its contest.
        runtime: a class of `runtimes`, or "path/to/file.py:Class".
        options: what the class is made with, beside the inputs and the number of threads.
        python: interpreter that has the runtime's packages.
    """

    name: str
    runtime: str
    options: Mapping[str, Any]
    python: str = sys.executable


@dataclass(slots=True)
class Standing:
    """What became of a contestant.

    Attributes:
        name: of the contestant.
        status: "ok", "wrong", "asleep", "failed", "crashed", "hung" or "missing".
        sentence: why it is not ok.
        sittings: microseconds of each run, by sitting and block.
        opened_s: seconds to load, and compile where the runtime does, by sitting.
        peak_mb: largest resident size of its processes.
        awake_s: the time that its threads ran or waited for a processor while it was timed.
        wall_s: the time that its blocks took.
        error: largest difference from the reference, as a share of the reference's largest element.
        slow: whether it was so much slower than the baseline that it played one block.
    """

    name: str
    status: str = "ok"
    sentence: str = ""
    sittings: list[list[list[float]]] = field(default_factory=list)
    opened_s: list[float] = field(default_factory=list)
    peak_mb: float = 0.0
    awake_s: float = 0.0
    wall_s: float = 0.0
    error: float = 0.0
    slow: bool = False

    @property
    def plays(self) -> bool:
        """Whether there are blocks to come for it."""
        return self.status == "ok" and not self.slow

    @property
    def open_s(self) -> float:
        """Seconds to load, the median over sittings."""
        return statistics.median(self.opened_s) if self.opened_s else 0.0

    @property
    def busy(self) -> float:
        """The time that its threads ran or waited for a processor, over the wall time of its blocks."""
        return self.awake_s / max(self.wall_s, 1e-9)

    def row(self, baseline: Standing | None) -> dict[str, Any]:
        """Return the figures as they are published; ratios say how many times as fast as `baseline` this is."""
        row: dict[str, Any] = {"runtime": self.name, "status": self.status}
        if self.status != "ok":
            return row | {"sentence": self.sentence}
        times = [t for blocks in self.sittings for block in blocks for t in block]
        row |= {
            "median_us": round(statistics.median(times), 2),
            "p5_us": round(float(np.quantile(times, 0.05)), 2),
            "p95_us": round(float(np.quantile(times, 0.95)), 2),
            "runs": len(times),
            "samples_us": [round(t, 2) for t in thinned(times)],
            "open_s": round(self.open_s, 3),
            "opened_once": len(self.opened_s) < len(self.sittings),
            "peak_mb": round(self.peak_mb, 1),
            "busy": round(self.busy, 3),
            "error": float(f"{self.error:.2e}"),
        }
        if baseline is not None and baseline.status == "ok" and baseline is not self:
            row["ratio"] = ratio(baseline.sittings, self.sittings)
        return row


def hold(
    contestants: Sequence[Contestant],
    reference: Contestant,
    feeds: Mapping[str, np.ndarray[Any, Any]],
    *,
    threads: int,
    sittings: int,
    rounds: int,
    block_s: float = BLOCK_SECONDS,
) -> list[Standing]:
    """Run contestants in alternating blocks; return their standings in order.

    Args:
        contestants: who takes part, the baseline first; the order is reversed in every second round.
        reference: says what the outputs have to be; it is not timed.
        feeds: the inputs, by name.
        threads: that each may use.
        sittings: how often every contestant starts anew.
        rounds: blocks of each contestant in a sitting.
        block_s: seconds of one block.
    """
    standings = [Standing(c.name) for c in contestants]
    with tempfile.TemporaryDirectory(prefix="contest-") as scratch:
        inputs = Path(scratch) / "inputs.npz"
        np.savez(inputs, **feeds)  # type: ignore[arg-type]
        expected = _reference_outputs(reference, inputs, threads, Path(scratch))
        pairs = zip(contestants, standings, strict=True)
        players = [_Player(c, s, inputs, threads, Path(scratch)) for c, s in pairs]
        try:
            for first in range(sittings):
                seated = [player for player in players if player.standing.plays]
                _sit(seated, expected, range(first, first + rounds), block_s)
        finally:
            for player in players:
                player.end()
    return standings


def _sit(players: Sequence[_Player], expected: Sequence[np.ndarray[Any, Any]], rounds: range, block_s: float) -> None:
    for player in players:
        player.enter(expected)
    for number in rounds:
        for player in players if number % 2 == 0 else reversed(players):
            player.block(block_s)
        if number == 0:
            _mark_slow([player.standing for player in players])
    for player in players:
        player.leave(expected)


def _mark_slow(standings: Sequence[Standing]) -> None:
    """After the first round, say who is far slower than the first."""
    middles = [statistics.median(s.sittings[0][0]) if s.status == "ok" else 0.0 for s in standings]
    for standing, middle in zip(standings, middles, strict=True):
        standing.slow = middle > SLOW * middles[0] > 0.0


class _Player:
    """A contestant while it plays; its first failure ends its part."""

    def __init__(self, contestant: Contestant, standing: Standing, inputs: Path, threads: int, scratch: Path) -> None:
        self.standing = standing
        self._contestant, self._inputs, self._threads, self._scratch = contestant, inputs, threads, scratch
        self._child: Child | None = None
        self._ready_s = self._first_run_s = 0.0

    def enter(self, expected: Sequence[np.ndarray[Any, Any]]) -> None:
        """Begin a sitting; open the model, warm it up and check what it computes, unless it is still open."""
        with self._watched():
            if self._child is None:
                self._child = Child(self._contestant.python)
                self._open(self._child)
                self._check(self._child, expected)
            self.standing.sittings.append([])

    def block(self, seconds: float) -> None:
        """Run for about so many seconds."""
        if not self.standing.plays or self._child is None:
            return
        with self._watched():
            limit_s = GRACE * seconds + GRACE + 2 * self._first_run_s
            answer = self._child.ask({"do": "block", "seconds": seconds}, limit_s)
            self.standing.sittings[-1].append([float(t) for t in answer["times_us"]])
            self.standing.awake_s += float(answer["awake_s"])
            self.standing.wall_s += float(answer["wall_s"])

    def leave(self, expected: Sequence[np.ndarray[Any, Any]]) -> None:
        """End a sitting: check the last outputs too, and whether there was work behind the times."""
        if self.standing.status == "ok" and self._child is not None:
            with self._watched():
                self._check(self._child, expected)
                peak_mb = float(self._child.ask({"do": "memory"}, GRACE)["peak_mb"])
                self.standing.peak_mb = max(self.standing.peak_mb, peak_mb)
                if self.standing.busy < LEAST_BUSY:
                    raise ChildFailure("asleep", f"It wants a processor for {self.standing.busy:.0%} of its time.")
        if not self.standing.plays or self._ready_s <= LONG_OPEN_SECONDS:
            self.end()

    def end(self) -> None:
        """End the process, if it is still there."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def _open(self, child: Child) -> None:
        request = {"do": "open", "runtime": self._contestant.runtime, "options": dict(self._contestant.options)}
        started = time.monotonic()
        child.ask(request | {"inputs": str(self._inputs), "threads": self._threads}, OPEN_SECONDS)
        opened = time.monotonic()
        child.ask({"do": "block", "seconds": 0.0}, OPEN_SECONDS)
        self._ready_s, self._first_run_s = time.monotonic() - started, time.monotonic() - opened
        self.standing.opened_s.append(opened - started)

    def _check(self, child: Child, expected: Sequence[np.ndarray[Any, Any]]) -> None:
        path = self._scratch / f"{len(list(self._scratch.iterdir()))}.npz"
        child.ask({"do": "outputs", "path": str(path)}, GRACE * 10)
        found = read_outputs(path)
        path.unlink()
        sentence, error = difference(found, expected)
        self.standing.error = max(self.standing.error, error)
        if sentence:
            raise ChildFailure("wrong", sentence)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except ChildFailure as failure:
            self.standing.status, self.standing.sentence = failure.status, failure.sentence
            self.end()


def _reference_outputs(reference: Contestant, inputs: Path, threads: int, scratch: Path) -> list[np.ndarray[Any, Any]]:
    child = Child(reference.python)
    path = scratch / "reference.npz"
    try:
        request = {"do": "open", "runtime": reference.runtime, "options": dict(reference.options)}
        child.ask(request | {"inputs": str(inputs), "threads": threads}, OPEN_SECONDS)
        child.ask({"do": "block", "seconds": 0.0}, OPEN_SECONDS)
        child.ask({"do": "outputs", "path": str(path)}, OPEN_SECONDS)
        return read_outputs(path)
    finally:
        child.end()


def read_outputs(path: Path) -> list[np.ndarray[Any, Any]]:
    """Return the outputs that a worker wrote, in order."""
    with np.load(path, allow_pickle=False) as archive:
        return [archive[f"o{i}"] for i in range(len(archive.files))]


def difference(found: Sequence[np.ndarray[Any, Any]], expected: Sequence[np.ndarray[Any, Any]]) -> tuple[str, float]:
    """Return why outputs are wrong, "" if they are not, and their largest difference over the largest element."""
    if [o.shape for o in found] != [o.shape for o in expected]:
        return f"Its outputs have the shapes {[o.shape for o in found]}, not {[o.shape for o in expected]}.", 0.0
    worst = 0.0
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        if not b.size:
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        if not np.array_equal(np.isfinite(x), np.isfinite(y)):
            return f"Its output {number} is not finite where the reference is, or the other way round.", 0.0
        finite = np.isfinite(y)
        scale = float(np.max(np.abs(y[finite]), initial=1e-30))
        worst = max(worst, float(np.max(np.abs(x[finite] - y[finite]), initial=0.0)) / scale)
        if worst > SCALED_ERROR:
            return f"Its output {number} differs from the reference by {worst:.1e} of the largest element.", worst
    return "", worst


def ratio(first: Sequence[Sequence[Sequence[float]]], second: Sequence[Sequence[Sequence[float]]]) -> dict[str, float]:
    """Return how many times as fast the second is: the median over rounds, with a 95 % interval.

    Both are times by sitting and block; what only one of them has does not count. The interval comes from resampling
    sittings, and rounds within them; a single round has none.
    """
    middles = [[[statistics.median(block) for block in blocks] for blocks in sittings] for sittings in (first, second)]
    shape = [min(lengths) for lengths in zip(*((len(m), len(m[0])) for m in middles), strict=True)]
    numerator, denominator = (np.array([blocks[: shape[1]] for blocks in m[: shape[0]]]) for m in middles)
    pairs = numerator / denominator
    numbers = {"value": float(np.median(pairs))}
    if pairs.size > 1:
        rng = np.random.default_rng(0)
        sittings = rng.integers(0, pairs.shape[0], (_RESAMPLES, pairs.shape[0], 1))
        rounds = rng.integers(0, pairs.shape[1], (_RESAMPLES, *pairs.shape))
        low, high = np.quantile(np.median(pairs[sittings, rounds], axis=(1, 2)), (0.025, 0.975))
        numbers |= {"low": float(low), "high": float(high)}
    return {name: round(number, 4) for name, number in numbers.items()} | {"pairs": pairs.size}


def thinned(times: Sequence[float]) -> list[float]:
    """Keep an evenly spaced part of many samples."""
    if len(times) <= _MOST_SAMPLES:
        return list(times)
    return [times[i * len(times) // _MOST_SAMPLES] for i in range(_MOST_SAMPLES)]
