from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.plan import Priced
from korch_cli.core.text import parse_graph
from korch_cli.solve import SearchResult, check_plan, orchestrate, solve

LENGTH = 6


def chain() -> PrimitiveGraph:
    lines = ['%0 "x" f32[8] = input']
    lines += [f'%{i} "t{i}" f32[8] = elementwise neg (%{i - 1}) @{i - 1}' for i in range(1, LENGTH + 1)]
    return parse_graph("\n".join([*lines, f"outputs (%{LENGTH})"]))


CHAIN = chain()
INTERVALS = [(a, b) for a in range(1, LENGTH + 1) for b in range(a, LENGTH + 1)]
GENERATED = [
    Candidate(CandidateKind.GENERATED, tuple(range(a, b + 1)), (Port(a - 1),), (Port(b),), f"{a}-{b}")
    for a, b in INTERVALS
]
VENDOR = [
    Priced(Candidate(CandidateKind.VENDOR, (v,), (Port(v - 1),), (Port(v),), f"vendor:{v}", (v - 1,)), 10.0)
    for v in range(1, LENGTH + 1)
]


class Instrument:
    """Knows the true times, and remembers what was asked for."""

    def __init__(self, times: Mapping[str, float]) -> None:
        self.times = times
        self.asked: list[str] = []

    def __call__(self, digests: Sequence[str]) -> dict[str, float]:
        assert digests
        assert not set(digests) & set(self.asked)
        self.asked += digests
        return {digest: self.times[digest] for digest in digests}


def search(
    times: Mapping[str, float], bounds: Mapping[str, float], *, gap: float = 0.0, seconds: float = 60.0
) -> tuple[SearchResult, Instrument]:
    instrument = Instrument(times)
    deadline = time.monotonic() + seconds
    result = orchestrate(CHAIN, VENDOR, GENERATED, bounds, {}, instrument, gap=gap, deadline=deadline, solver_time_s=10)
    check_plan(CHAIN, result.plan)
    return result, instrument


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(st.floats(1.0, 40.0), min_size=len(INTERVALS), max_size=len(INTERVALS)),
    st.lists(st.floats(0.05, 1.0), min_size=len(INTERVALS), max_size=len(INTERVALS)),
)
def test_it_finds_the_optimum_of_all_measurements_with_fewer(times: list[float], shares: list[float]) -> None:
    digests = [c.digest for c in GENERATED]
    truth = dict(zip(digests, times, strict=True))
    bounds = {d: truth[d] * share for d, share in zip(digests, shares, strict=True)}
    result, instrument = search(truth, bounds)
    everything = [*VENDOR, *(Priced(c, truth[c.digest]) for c in GENERATED)]
    best = solve(CHAIN, everything, time_limit_s=10)
    assert result.plan.cost_us == pytest.approx(best.cost_us, abs=0.01)
    assert result.plan.bound_us <= best.cost_us + 0.01
    assert len(instrument.asked) == len(set(instrument.asked))


def test_tight_bounds_leave_most_kernels_unmeasured() -> None:
    truth = {c.digest: 4.0 + len(c.body) for c in GENERATED}
    result, instrument = search(truth, truth)
    assert [p.candidate.digest for p in result.plan.kernels] == [f"1-{LENGTH}"]
    assert len(instrument.asked) <= 3
    assert result.plan.gap == pytest.approx(0.0, abs=1e-3)


def test_failed_kernels_are_left_out() -> None:
    truth = {c.digest: math.inf if len(c.body) > 2 else 4.0 for c in GENERATED}
    result, _ = search(truth, {c.digest: 1.0 for c in GENERATED})
    assert result.plan.cost_us == pytest.approx(LENGTH / 2 * 4.0)


def test_a_gap_ends_the_search_early_and_is_honest() -> None:
    truth = {c.digest: 5.0 for c in GENERATED}
    bounds = {c.digest: 4.0 for c in GENERATED}
    result, instrument = search(truth, bounds, gap=0.5)
    _, thorough = search(truth, bounds)
    assert len(instrument.asked) <= len(thorough.asked)
    assert result.plan.cost_us * 0.5 <= result.plan.bound_us <= 5.0


def test_after_the_deadline_nothing_is_measured() -> None:
    result, instrument = search({}, {c.digest: 1.0 for c in GENERATED}, seconds=-1.0)
    assert not instrument.asked
    assert result.plan.cost_us == pytest.approx(10.0 * LENGTH)
    assert result.plan.bound_us <= 1.0
