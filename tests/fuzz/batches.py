"""Many random models at once: one library for all of them, since compiling takes most of the time."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from korch_cli.core.errors import KorchError
from korch_cli.toolchain import Compiler, find_compiler
from tests.fuzz.graphs import Network, networks
from tests.fuzz.oracle import Expectation
from tests.fuzz.trials import Finding, Planned, build, expectations, plan, try_functions, try_kernels, try_primitives


@dataclass
class Tally:
    """What a batch did, and what it found.

    Attributes:
        graphs: models that were drawn.
        kernels: distinct kernels that were built.
        judged: output elements that were compared.
        elements: all output elements.
        findings: what is wrong.
        seconds: by stage.
    """

    graphs: int = 0
    kernels: int = 0
    judged: int = 0
    elements: int = 0
    findings: list[Finding] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def count(self, expected: Sequence[Expectation | None]) -> None:
        """Count the elements that these expectations judge."""
        for each in expected:
            judged, elements = (0, 0) if each is None else each.judged
            self.judged += judged
            self.elements += elements


def draw(number: int, count: int) -> list[Network]:
    """Return `count` random models, the same for the same number."""
    return [_drawn(number * 1000 + i) for i in range(count)]


def _drawn(number: int) -> Network:
    """Draw one model; hypothesis begins with the simplest one there is, and mutates what it drew before."""
    found: list[Network] = []

    @seed(number)
    @settings(
        max_examples=2,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(networks())
    def collect(network: Network) -> None:
        found.append(network)

    collect()
    return found[-1]


def quick_compiler() -> Compiler:
    """Return the compiler as kernels are built with it, but for less optimisation."""
    found = find_compiler(None)
    flags = tuple("-O1" if flag == "-O3" else flag for flag in found.flags)
    return Compiler(found.command, flags, f"{found.identity} -O1")


def run_batch(
    drawn: Sequence[Network], folder: Path, *, kernels: bool, journal: Callable[[Network], None], jobs: int = 1
) -> Tally:
    """Try every model: its primitives, and with `kernels` its functions and its kernels too.

    Args:
        drawn: the models.
        folder: for files.
        kernels: whether to plan and build.
        journal: told of a model before it is tried, for the process may not survive it.
        jobs: compilers that run at the same time.
    """
    tally = Tally(len(drawn))
    planned: list[Planned] = []
    for network in drawn:
        journal(network)
        with _clock(tally, "reference"):
            expected = expectations(network)
        tally.count(expected)
        with _clock(tally, "primitives"):
            wrong = try_primitives(network, expected, folder)
        if wrong is not None:
            tally.findings.append(Finding(network, "primitives", wrong))
        if kernels:
            _plan(tally, planned, network, expected, folder)
    with _clock(tally, "kernels"):
        for each, wrong in _built(planned, folder, jobs, journal):
            if wrong is not None:
                tally.findings.append(Finding(each.network, "kernels", wrong))
    tally.kernels = len({k.name for each in planned for k in each.fusion.chosen.values()})
    return tally


def _plan(
    tally: Tally,
    planned: list[Planned],
    network: Network,
    expected: Sequence[Expectation | None],
    folder: Path,
) -> None:
    with _clock(tally, "functions"):
        try:
            each = plan(network, expected, folder)
            wrong = try_functions(each)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        if wrong is not None:
            tally.findings.append(Finding(network, "functions", wrong))
        elif each.fusion.bodies:
            planned.append(each)


def _built(
    planned: Sequence[Planned], folder: Path, jobs: int, journal: Callable[[Network], None]
) -> Iterator[tuple[Planned, str | None]]:
    """Build and run models with their kernels; where one does not build, each by itself."""
    compiler = quick_compiler()
    groups: list[Sequence[Planned]] = [planned] if planned else []
    while groups:
        group = groups.pop()
        try:
            outputs, library = build(group, compiler, folder, jobs)
        except KorchError as error:
            if len(group) == 1:
                yield group[0], str(error)
            else:
                groups += [group[: len(group) // 2], group[len(group) // 2 :]]
            continue
        for each, output in zip(group, outputs, strict=True):
            journal(each.network)
            yield each, try_kernels(each, output, library)


def judge(network: Network, level: str) -> str | None:
    """Return what is wrong with one model at a level, None if nothing is."""
    with tempfile.TemporaryDirectory(prefix="korch-fuzz-") as scratch:
        tally = run_batch([network], Path(scratch), kernels=level != "primitives", journal=lambda _: None)
    return next((f.sentence for f in tally.findings if f.level == level), None)


class _clock:  # noqa: N801 - reads as a function
    def __init__(self, tally: Tally, stage: str) -> None:
        self._tally, self._stage = tally, stage

    def __enter__(self) -> None:
        self._start = time.monotonic()

    def __exit__(self, *_: object) -> None:
        spent = time.monotonic() - self._start
        self._tally.seconds[self._stage] = self._tally.seconds.get(self._stage, 0.0) + spent
