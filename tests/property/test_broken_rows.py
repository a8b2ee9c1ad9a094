"""Rows that the relaxation breaks: every plan keeps to them, and they lift its bound where it was far too low."""

from __future__ import annotations

import math
import time

from hypothesis import given, settings
from hypothesis import strategies as st
from test_alternatives import alone, candidates_of, ways
from test_orchestration import graphs

from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.plan import Priced
from korch_cli.core.text import parse_graph
from korch_cli.pipeline.ways import Ways
from korch_cli.solve import solve
from korch_cli.solve.execution import cover
from korch_cli.solve.formulation import UNITS_PER_US, Formulation
from korch_cli.solve.program import relax, runnable
from korch_cli.solve.relaxation import Relaxation


def check_rows(graph: PrimitiveGraph, candidates: list[Candidate], data: st.DataObject) -> None:
    """Add the rows that some solution, drawn, would break, and look for a drawn plan that breaks one."""
    formulation = Formulation(graph, runnable(graph, [Priced(candidate, 1.0) for candidate in candidates]))
    candidates = formulation.candidates
    share = st.sampled_from([0.0, 0.05, 0.25, 0.5])
    for _ in range(3):
        formulation.tighten([data.draw(share) for _ in candidates])
    random = data.draw(st.randoms(use_true_random=False))
    for _ in range(20):
        true = formulation.columns_of(cover(graph, candidates, lambda _: (random.random(),)))
        for row in formulation.rows:
            assert row.given not in {*true, -1} or not true.isdisjoint(row.one_of)


@settings(deadline=None, max_examples=60)
@given(graphs(8), st.data())
def test_every_plan_keeps_to_the_rows(graph: PrimitiveGraph, data: st.DataObject) -> None:
    check_rows(graph, alone(graph), data)


@settings(deadline=None, max_examples=60)
@given(ways(6), st.data())
def test_every_plan_over_two_ways_keeps_to_the_rows(found: Ways, data: st.DataObject) -> None:
    check_rows(found.graph, list(dict.fromkeys([*candidates_of(found, 0), *candidates_of(found, 1)])), data)


LAYERS, VARIANTS = 6, 4
"""Each layer is computed from one costly value in several forms, all of which are made of the layer before."""


def layers() -> tuple[PrimitiveGraph, list[Priced]]:
    lines, outputs = ['%0 "x" f32[8] = input'], [0]
    priced: list[Priced] = []
    for layer in range(LAYERS):
        before, costly = outputs[-1], 2 * layer + 1
        lines += [
            f'%{costly} "c{layer}" f32[8] = elementwise tanh (%{before}) @{costly}',
            f'%{costly + 1} "y{layer}" f32[8] = elementwise neg (%{costly}) @{costly + 1}',
        ]
        for form in map(str, range(VARIANTS)):
            made, read = Port(costly, form), Port(before) if before == 0 else Port(before, form)
            for kind, body, source, target, cost in (
                ("costly", (costly,), read, made, 100.0),
                ("cheap", (costly + 1,), made, Port(costly + 1, form), 1.0),
            ):
                priced.append(
                    Priced(Candidate(CandidateKind.VENDOR, body, (source,), (target,), f"{kind}{layer}{form}"), cost)
                )
        outputs.append(costly + 1)
    last = outputs[-1]
    for form in map(str, range(VARIANTS)):
        reorder = Candidate(CandidateKind.REORDER, (), (Port(last, form),), (Port(last),), form)
        priced.append(Priced(reorder, 1.0))
    return parse_graph("\n".join([*lines, f"outputs (%{last})"])), priced


def test_values_in_several_forms_are_paid_in_full() -> None:
    graph, priced = layers()
    optimum = LAYERS * 101.0 + 1.0
    formulation = Formulation(graph, runnable(graph, priced))
    relaxed = relax(formulation, Relaxation(formulation), time.monotonic() + 60)
    assert math.isclose(relaxed.bound, optimum * UNITS_PER_US)
    plan = solve(graph, priced, time_limit_s=60)
    assert (plan.cost_us, plan.bound_us, plan.status) == (optimum, optimum, "optimal")
