from __future__ import annotations

import math
import signal
import threading

import pytest

from korch_cli.core.errors import ExitCode, KorchError
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.plan import Plan, Priced
from korch_cli.core.text import parse_graph
from korch_cli.solve import check_plan, greedy, solve


def graph(*lines: str) -> PrimitiveGraph:
    return parse_graph("\n".join(lines))


def port(text: str) -> Port:
    """`3` is value 3, plain; `3b` is value 3, blocked."""
    return Port(int(text[:-1]), "blocked") if text.endswith("b") else Port(int(text))


def kernel(body: str, reads: str, writes: str, cost_us: float, *, kind: str = "generated") -> Priced:
    ids = tuple(map(int, body.split()))
    read, written = tuple(map(port, reads.split())), tuple(map(port, writes.split()))
    operators = ids if kind == "vendor" else ()
    return Priced(Candidate(CandidateKind(kind), ids, read, written, f"{body}|{reads}|{writes}", operators), cost_us)


def bodies(plan: Plan) -> list[tuple[int, ...]]:
    return [p.candidate.body for p in plan.kernels]


CHAIN = graph(
    '%0 "x" f32[8] = input',
    '%1 "a" f32[8] = elementwise neg (%0) @0',
    '%2 "b" f32[8] = elementwise neg (%1) @1',
    '%3 "c" f32[8] = elementwise neg (%2) @2',
    "outputs (%3)",
)
SINGLES = [kernel("1", "0", "1", 4), kernel("2", "1", "2", 4), kernel("3", "2", "3", 4)]

CROSS = graph(
    '%0 "x" f32[8] = input',
    '%1 "a" f32[8] = elementwise neg (%0) @0',
    '%2 "b" f32[8] = elementwise neg (%0) @1',
    '%3 "c" f32[8] = elementwise neg (%1) @2',
    '%4 "d" f32[8] = elementwise neg (%2) @3',
    "outputs (%3, %4)",
)
"""Two chains; {1, 4} and {2, 3} are kernels that wait for each other."""
LOOP = [kernel("1 4", "0 2", "1 4", 1), kernel("2 3", "0 1", "2 3", 1)]


def test_the_cheapest_cover_wins_and_runs_in_order() -> None:
    pair, whole = kernel("2 3", "1", "3", 5), kernel("1 2 3", "0", "3", 9.5)
    plan = solve(CHAIN, [whole, pair, *SINGLES], time_limit_s=10)
    assert plan == Plan((SINGLES[0], pair), 9.0, 9.0)


def test_a_value_is_computed_twice_where_that_is_cheaper() -> None:
    both = graph(
        '%0 "x" f32[8] = input',
        '%1 "a" f32[8] = elementwise neg (%0) @0',
        '%2 "b" f32[8] = elementwise neg (%1) @1',
        '%3 "c" f32[8] = elementwise tanh (%1) @2',
        "outputs (%2, %3)",
    )
    options = [kernel("1", "0", "1", 4), kernel("2", "1", "2", 4), kernel("3", "1", "3", 4)]
    plan = solve(both, [*options, kernel("1 2", "0", "2", 4.5), kernel("1 3", "0", "3", 4.5)], time_limit_s=10)
    assert bodies(plan) == [(1, 2), (1, 3)]
    check_plan(both, plan)


def test_kernels_that_wait_for_each_other_are_not_a_plan() -> None:
    rest = [kernel("1", "0", "1", 7), kernel("2", "0", "2", 8), kernel("3", "1", "3", 9), kernel("4", "2", "4", 9)]
    plan = solve(CROSS, [*LOOP, *rest], time_limit_s=10)
    check_plan(CROSS, plan)
    # One chain's first half alone lets both fused kernels run: 7 + 1 + 1.
    assert (bodies(plan), plan.cost_us, plan.bound_us) == ([(1,), (2, 3), (1, 4)], 9.0, 9.0)
    assert plan.status == "optimal"


def test_only_kernels_that_wait_for_each_other_are_no_plan_at_all() -> None:
    with pytest.raises(KorchError, match=r"no kernel can compute value %[12] \(plain\)"):
        solve(CROSS, LOOP, time_limit_s=10)


def test_conversions_are_paid_once_for_a_run_of_blocked_kernels() -> None:
    blocked = [kernel(str(v), f"{v - 1}b", f"{v}b", 1, kind="vendor") for v in (1, 2, 3)]
    conversions = [kernel("", "0", "0b", 2, kind="reorder"), kernel("", "3b", "3", 2, kind="reorder")]
    between = [kernel("", f"{v}", f"{v}b", 2, kind="reorder") for v in (1, 2)]
    plan = solve(CHAIN, [*SINGLES, *blocked, *conversions, *between], time_limit_s=10)
    check_plan(CHAIN, plan)
    assert plan.cost_us == 7.0
    assert [p.candidate.kind.value for p in plan.kernels] == ["reorder", "vendor", "vendor", "vendor", "reorder"]
    dear = [Priced(c.candidate, 5) for c in conversions]
    assert solve(CHAIN, [*SINGLES, *blocked, *dear, *between], time_limit_s=10).cost_us == 12.0


def test_outputs_that_are_sources_need_no_kernel() -> None:
    passes = graph('%0 "x" f32[8] = input', '%1 "w" f32[8] = const', "outputs (%0, %1, %0)")
    assert solve(passes, [], time_limit_s=10) == Plan((), 0.0, 0.0)


def test_kernels_that_nothing_needs_are_dropped_though_free() -> None:
    free = kernel("1", "0", "1", 0)
    assert bodies(solve(CHAIN, [free, kernel("1 2 3", "0", "3", 1)], time_limit_s=10)) == [(1, 2, 3)]


def test_what_cannot_be_computed_is_named() -> None:
    with pytest.raises(KorchError, match=r"no kernel can compute value %1 \(plain\)") as raised:
        solve(CHAIN, SINGLES[1:], time_limit_s=10)
    assert raised.value.where == "a"
    assert raised.value.exit_code is ExitCode.BUG
    infinite = [Priced(SINGLES[0].candidate, math.inf), *SINGLES[1:]]
    with pytest.raises(KorchError, match="value %1"):
        solve(CHAIN, infinite, time_limit_s=10)


@pytest.mark.parametrize("cost", [-1.0, math.nan])
def test_costs_make_sense(cost: float) -> None:
    with pytest.raises(ValueError, match="negative or not a number"):
        solve(CHAIN, [*SINGLES, Priced(SINGLES[0].candidate, cost)], time_limit_s=10)


def test_a_hint_is_priced_anew_and_a_wrong_one_is_ignored() -> None:
    whole = kernel("1 2 3", "0", "3", 9)
    old = Plan((Priced(whole.candidate, 1.0),), 1.0, 1.0)
    assert solve(CHAIN, [*SINGLES, whole], time_limit_s=10, hint=old).cost_us == 9.0
    unknown = Plan((kernel("1 2 3", "0", "3 2", 1),), 1.0, 1.0)
    useless = Plan((SINGLES[0],), 4.0, 0.0)
    for hint in (unknown, useless):
        assert solve(CHAIN, SINGLES, time_limit_s=10, hint=hint).cost_us == 12.0


def grid(width: int, depth: int) -> tuple[PrimitiveGraph, list[Priced]]:
    """A dense graph with every small body as a candidate, far too hard for the time that the tests give it."""
    lines = [f'%{i} "x{i}" f32[8] = input' for i in range(width)]
    for level in range(1, depth):
        for i in range(width):
            v, below = level * width + i, (level - 1) * width
            pair = f"(%{below + i}, %{below + (i + 1) % width})"
            lines.append(f'%{v} "v{v}" f32[8] = elementwise add {pair} @{v}')
    last = range((depth - 1) * width, depth * width)
    of = graph(*lines, f"outputs ({', '.join(f'%{v}' for v in last)})")
    from korch_cli.candidates import SearchLimits, enumerate_candidates

    found = enumerate_candidates(of, SearchLimits(max_primitives=6, per_seed=40)).candidates
    return of, [Priced(c, 3 + len(c.reads) + len(c.writes) + (7919 * i % 101) / 100) for i, c in enumerate(found)]


def test_without_time_the_greedy_plan_is_returned_as_it_is() -> None:
    of, priced = grid(6, 10)
    plan = solve(of, priced, time_limit_s=0)
    check_plan(of, plan)
    baseline = greedy(of, priced)
    assert plan.status == "feasible"
    assert plan.cost_us <= baseline.cost_us
    assert plan.bound_us <= plan.cost_us


def test_an_interrupt_ends_the_search() -> None:
    of, priced = grid(6, 20)
    timer = threading.Timer(1.0, signal.raise_signal, (signal.SIGINT,))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        solve(of, priced, time_limit_s=500)
    timer.join()
