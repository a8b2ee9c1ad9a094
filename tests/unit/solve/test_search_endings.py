"""Whatever ends a search, a plan is called optimal if and only if nothing can be cheaper."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from korch_cli.candidates import SearchLimits, enumerate_candidates
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.plan import Plan, Priced, bounded
from korch_cli.core.text import parse_graph
from korch_cli.solve import SearchResult, check_plan, greedy, orchestrate, program, solve
from korch_cli.solve.exact import Outcome, search
from korch_cli.solve.formulation import Formulation
from korch_cli.solve.relaxation import Relaxation, Relaxed

WIDTH, DEPTH = 4, 5


def grid() -> PrimitiveGraph:
    """Every value is read twice, so that the relaxation is not whole."""
    lines = [f'%{i} "x{i}" f32[8] = input' for i in range(WIDTH)]
    for level in range(1, DEPTH):
        for i in range(WIDTH):
            v, below = level * WIDTH + i, (level - 1) * WIDTH
            lines.append(f'%{v} "v{v}" f32[8] = elementwise add (%{below + i}, %{below + (i + 1) % WIDTH}) @{v}')
    last = ", ".join(f"%{v}" for v in range((DEPTH - 1) * WIDTH, DEPTH * WIDTH))
    return parse_graph("\n".join([*lines, f"outputs ({last})"]))


GRID = grid()
FOUND = enumerate_candidates(GRID, SearchLimits(max_primitives=5, per_seed=30)).candidates
PRICED = [Priced(c, 3 + len(c.reads) + len(c.writes) + (7919 * i % 101) / 100) for i, c in enumerate(FOUND)]
BEST = solve(GRID, PRICED, time_limit_s=60)


def no_relaxation(_self: Relaxation, _time_limit_s: float) -> Relaxed:
    nothing = [0.0] * len(PRICED)
    return Relaxed(nothing, 0.0, nothing)


def no_rows(_self: Formulation, _shares: Sequence[float]) -> bool:
    return False


def no_search(_of: Formulation, _kept: Sequence[int], start: Sequence[int], *_limits: float) -> Outcome:
    return Outcome(list(start), [], 0, False)


def parts_alone(of: Formulation, kept: Sequence[int], start: Sequence[int], *limits: float) -> Outcome:
    """Only parts of the graph are small enough for the time."""
    return search(of, kept, start, *limits) if len(kept) < len(PRICED) / 2 else no_search(of, kept, start)


def consistent(plan: Plan) -> None:
    assert plan.bound_us <= plan.cost_us
    assert (plan.status == "optimal") == plan.is_proven == (plan.gap == 0.0) == (plan.bound_us == plan.cost_us)


@pytest.mark.parametrize("searching", [search, parts_alone, no_search])
@pytest.mark.parametrize("tighten", [Formulation.tighten, no_rows])
@pytest.mark.parametrize("relaxed", [Relaxation.solve, no_relaxation])
def test_whatever_part_of_the_solver_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
    relaxed: Callable[..., Relaxed],
    tighten: Callable[..., bool],
    searching: Callable[..., Outcome],
) -> None:
    assert BEST.is_proven
    monkeypatch.setattr(Relaxation, "solve", relaxed)
    monkeypatch.setattr(Formulation, "tighten", tighten)
    monkeypatch.setattr(program, "search", searching)
    plan = solve(GRID, PRICED, time_limit_s=30)
    check_plan(GRID, plan)
    consistent(plan)
    assert plan.bound_us <= BEST.cost_us + 1e-3
    if plan.is_proven:
        assert plan.cost_us == pytest.approx(BEST.cost_us, abs=1e-3)
    if searching is search:
        assert plan.is_proven
    if relaxed is no_relaxation and searching is not search:
        assert (plan.status, plan.gap) == ("feasible", 1.0)


def test_time_that_is_up_before_anything_is_proven() -> None:
    for plan in (solve(GRID, PRICED, time_limit_s=0), greedy(GRID, PRICED)):
        consistent(plan)
        assert plan.cost_us > BEST.cost_us or not plan.is_proven


# A chain: what the search over kernels without a price has to say.
LENGTH = 6
CHAIN = parse_graph(
    "\n".join(
        ['%0 "x" f32[8] = input']
        + [f'%{i} "t{i}" f32[8] = elementwise neg (%{i - 1}) @{i - 1}' for i in range(1, LENGTH + 1)]
        + [f"outputs (%{LENGTH})"]
    )
)
GENERATED = [
    Candidate(CandidateKind.GENERATED, tuple(range(a, b + 1)), (Port(a - 1),), (Port(b),), f"{a}-{b}")
    for a in range(1, LENGTH + 1)
    for b in range(a, LENGTH + 1)
]
VENDOR = [
    Priced(Candidate(CandidateKind.VENDOR, (v,), (Port(v - 1),), (Port(v),), f"vendor:{v}", (v - 1,)), 10.0)
    for v in range(1, LENGTH + 1)
]
TIMES = {c.digest: 4.0 + len(c.body) for c in GENERATED}
CHEAPEST = 4.0 + LENGTH


def searched(
    *, share: float, gap: float = 0.0, seconds: float = 60.0, solver_time_s: float = 10.0, known: int = 0
) -> SearchResult:
    """Search with bounds that are a share of the times."""
    result = orchestrate(
        CHAIN,
        VENDOR,
        GENERATED,
        {d: share * time_us for d, time_us in TIMES.items()},
        dict(list(TIMES.items())[:known]),
        lambda digests: {d: TIMES[d] for d in digests},
        gap=gap,
        deadline=time.monotonic() + seconds,
        solver_time_s=solver_time_s,
    )
    check_plan(CHAIN, result.plan)
    consistent(result.plan)
    assert result.plan.bound_us <= CHEAPEST + 1e-3
    if result.plan.is_proven:
        assert result.plan.cost_us == pytest.approx(CHEAPEST)
    return result


@pytest.mark.parametrize("known", [0, len(TIMES)])
def test_a_search_that_proves_its_plan(known: int) -> None:
    result = searched(share=0.5, known=known)
    assert (result.plan.status, result.is_best_measured) == ("optimal", True)


def test_a_search_that_reaches_its_gap_is_not_optimal() -> None:
    result = searched(share=0.5, gap=0.5, known=1)
    assert (result.plan.status, result.rounds) == ("feasible", 1)
    assert 0.0 < result.plan.gap <= 0.5
    assert result.is_best_measured


def test_a_search_that_nothing_is_promised_to_is_not_optimal() -> None:
    result = searched(share=0.8, gap=0.99)
    assert (result.plan.status, result.rounds) == ("feasible", 0)


@pytest.mark.parametrize("known", [0, 3])
def test_a_search_that_its_budget_ends_is_not_optimal(known: int) -> None:
    result = searched(share=0.8, seconds=-1.0, known=known)
    assert result.plan.status == "feasible"
    assert result.plan.gap > 0.5
    assert result.is_best_measured


def test_a_search_whose_solver_has_no_time_is_not_optimal() -> None:
    result = searched(share=0.8, solver_time_s=0.0)
    assert not result.plan.is_proven or result.plan.cost_us == pytest.approx(CHEAPEST)


def test_a_search_that_is_interrupted_says_nothing_and_goes_on_from_what_it_measured() -> None:
    measured: dict[str, float] = {}

    def measure(digests: Sequence[str]) -> dict[str, float]:
        if measured:
            raise KeyboardInterrupt
        measured.update({d: TIMES[d] for d in digests})
        return dict(measured)

    bounds = dict.fromkeys(TIMES, 0.5)
    deadline = time.monotonic() + 60
    with pytest.raises(KeyboardInterrupt):
        orchestrate(CHAIN, VENDOR, GENERATED, bounds, {}, measure, gap=0.0, deadline=deadline, solver_time_s=10)
    assert measured
    assert searched(share=0.5, known=len(measured)).plan.is_proven


def test_a_kernel_that_cannot_be_used_takes_no_part_in_the_proof() -> None:
    times = TIMES | {f"1-{LENGTH}": math.inf}
    result = orchestrate(
        CHAIN,
        VENDOR,
        GENERATED,
        dict.fromkeys(TIMES, 0.5),
        {},
        lambda digests: {d: times[d] for d in digests},
        gap=0.0,
        deadline=time.monotonic() + 60,
        solver_time_s=10,
    )
    consistent(result.plan)
    assert result.plan.is_proven
    assert result.plan.cost_us > CHEAPEST


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.floats(0.0, 1e4), max_size=8), st.floats(0.0, 1.0), st.integers(-3000, 3000))
@example([4.5e-05], 0.0, -3)
def test_figures_written_with_three_decimals_say_the_same(costs: list[float], share: float, units: int) -> None:
    kernels = [Priced(VENDOR[0].candidate, cost_us) for cost_us in costs]
    for bound_us in (share * sum(costs), sum(costs) + units / 2000):
        plan = bounded(kernels, bound_us)
        consistent(plan)
        written = replace(plan, cost_us=round(plan.cost_us, 3), bound_us=round(plan.bound_us, 3))
        assert written.status == plan.status
