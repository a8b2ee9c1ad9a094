"""The bounds of the relaxation hold for any multipliers, so that no tolerance of the solver can spoil a proof."""

from __future__ import annotations

import math
import random
from itertools import combinations

import pytest

from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.plan import Priced
from korch_cli.core.text import parse_graph
from korch_cli.solve import solve
from korch_cli.solve.execution import execute, goals
from korch_cli.solve.formulation import Formulation
from korch_cli.solve.relaxation import Relaxation

DIAMOND = parse_graph(
    "\n".join(
        [
            '%0 "x" f32[8] = input',
            '%1 "a" f32[8] = elementwise neg (%0) @0',
            '%2 "b" f32[8] = elementwise tanh (%1) @1',
            '%3 "c" f32[8] = elementwise neg (%1) @2',
            '%4 "d" f32[8] = elementwise add (%2, %3) @3',
            "outputs (%4, %3)",
        ]
    )
)


def kernel(body: tuple[int, ...], reads: tuple[int, ...], writes: tuple[int, ...], cost_us: float) -> Priced:
    read, written = tuple(map(Port, reads)), tuple(map(Port, writes))
    return Priced(Candidate(CandidateKind.GENERATED, body, read, written, f"{body}{writes}"), cost_us)


PRICED = [
    kernel((1,), (0,), (1,), 4),
    kernel((2,), (1,), (2,), 4),
    kernel((3,), (1,), (3,), 4),
    kernel((4,), (2, 3), (4,), 4),
    kernel((1, 2), (0,), (1, 2), 5),
    kernel((1, 2), (0,), (2,), 4.5),
    kernel((1, 3), (0,), (3,), 4.5),
    kernel((2, 4), (1, 3), (4,), 5),
    kernel((2, 3), (1,), (2, 3), 5),
    kernel((3, 4), (1, 2), (3, 4), 6),
]


def plans() -> dict[frozenset[int], int]:
    """Every set of kernels that can run and computes the outputs, with its cost in units."""
    found = {}
    for size in range(len(PRICED) + 1):
        for chosen in combinations(range(len(PRICED)), size):
            order, filled = execute(DIAMOND, [PRICED[i].candidate for i in chosen], lambda i: (i,))
            if len(order) == size and filled.issuperset(goals(DIAMOND)):
                found[frozenset(chosen)] = round(sum(PRICED[i].cost_us for i in chosen) * 1000)
    return found


PLANS = plans()


def test_what_the_relaxation_leaves_open_is_searched() -> None:
    relaxed = Relaxation(Formulation(DIAMOND, PRICED)).solve(10.0)
    best = min(PLANS.values())
    assert relaxed.whole_bound < best
    assert any(0.1 < share < 0.9 for share in relaxed.shares)
    plan = solve(DIAMOND, PRICED, time_limit_s=10)
    assert (plan.status, plan.cost_us * 1000, plan.bound_us * 1000) == ("optimal", best, best)


@pytest.mark.parametrize("seed", range(20))
def test_any_multipliers_prove_no_more_than_the_truth(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    formulation = Formulation(DIAMOND, PRICED)
    relaxation = Relaxation(formulation)
    honest = relaxation._bound
    noise = [draw.choice([-1e3, 0.0, draw.uniform(0, 5e3)]) for _ in formulation.rows]
    monkeypatch.setattr(
        relaxation, "_bound", lambda y, caps=(): honest([a + b for a, b in zip(y, noise, strict=True)], caps)
    )
    relaxed = relaxation.solve(10.0)
    assert relaxed.bound <= min(PLANS.values()) + 1e-6
    for i, excess in enumerate(relaxed.excess):
        cheapest = min((cost for chosen, cost in PLANS.items() if i in chosen), default=math.inf)
        assert relaxed.bound + excess <= cheapest + 1e-6
        assert cheapest == math.inf or i in relaxed.within(cheapest)


def test_without_time_it_proves_nothing() -> None:
    formulation = Formulation(DIAMOND, PRICED)
    relaxation = Relaxation(formulation)
    relaxation._solver.SetTimeLimit = lambda _: None
    relaxation._solver.Solve = lambda: relaxation._solver.NOT_SOLVED
    relaxed = relaxation.solve(0.0)
    assert (relaxed.bound, relaxed.support()) == (0.0, [])
    assert relaxed.within(0.0) == list(range(len(PRICED)))
