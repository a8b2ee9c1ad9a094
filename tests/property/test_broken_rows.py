"""Rows that the relaxation breaks: every plan keeps to them, and they lift its bound where it was far too low."""

from __future__ import annotations

import math
import time

from hypothesis import given, settings
from hypothesis import strategies as st
from test_alternatives import alone, candidates_of, ways
from test_orchestration import graphs

from korch_cli.core.errors import KorchError
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.plan import UNITS_PER_US, Priced
from korch_cli.core.text import parse_graph
from korch_cli.pipeline.ways import Ways
from korch_cli.solve import check_plan, solve
from korch_cli.solve.execution import cover
from korch_cli.solve.formulation import Formulation, Lessons
from korch_cli.solve.program import relax, runnable
from korch_cli.solve.relaxation import Relaxation, Relaxed


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


def check_lessons(graph: PrimitiveGraph, candidates: list[Candidate], data: st.DataObject) -> None:
    """Solve programs with drawn prices, some of which say that a candidate cannot be used from then on."""
    lessons, usable = Lessons(), [True] * len(candidates)
    for _ in range(3):
        prices = [data.draw(st.integers(0, 40)) / 8 if able else math.inf for able in usable]
        priced = [Priced(c, price) for c, price in zip(candidates, prices, strict=True)]
        try:
            alone = solve(graph, priced, time_limit_s=60)
        except KorchError:
            return
        plan = solve(graph, priced, time_limit_s=60, lessons=lessons)
        check_plan(graph, plan)
        assert (plan.cost_us, plan.status) == (alone.cost_us, "optimal")
        for i in data.draw(st.sets(st.integers(0, len(candidates) - 1), max_size=3)):
            usable[i] = False


@settings(deadline=None, max_examples=40)
@given(ways(6), st.data())
def test_what_one_program_taught_holds_in_the_next(found: Ways, data: st.DataObject) -> None:
    check_lessons(found.graph, list(dict.fromkeys([*candidates_of(found, 0), *candidates_of(found, 1)])), data)


@settings(deadline=None, max_examples=20)
@given(st.data())
def test_what_was_learned_over_layers_holds_at_other_prices(data: st.DataObject) -> None:
    graph, priced = layers()
    check_lessons(graph, [p.candidate for p in priced], data)


def test_what_was_learned_is_not_looked_for_again() -> None:
    graph, priced = layers()
    usable, lessons = runnable(graph, priced), Lessons()
    relaxed = []
    for _ in range(2):
        formulation = Formulation(graph, usable, lessons=lessons)
        relaxed.append(Relaxation(formulation).solve(60.0).bound)
        relax(formulation, Relaxation(formulation), time.monotonic() + 60)
    optimum = (LAYERS * 101.0 + 1.0) * UNITS_PER_US
    assert relaxed[0] < optimum / 2
    assert math.isclose(relaxed[1], optimum)


LAYERS, FORMS = 6, 4
"""Each layer is made of one of two costly values, and has several forms, which all are made of the layer before."""


def layers() -> tuple[PrimitiveGraph, list[Priced]]:
    lines, priced, before = ['%0 "x" f32[8] = input'], list[Priced](), [Port(0)]
    forms = [str(form) for form in range(FORMS)]

    def add(body: int, read: Port, written: Port, cost_us: float) -> None:
        name = f"{body}{read}{written}"
        priced.append(Priced(Candidate(CandidateKind.VENDOR, (body,), (read,), (written,), name, (body,)), cost_us))

    for layer in range(LAYERS):
        first, second, last = (3 * layer + i for i in (1, 2, 3))
        lines += [
            f'%{first} "a{layer}" f32[8] = elementwise tanh (%{before[0].value}) @{first}',
            f'%{second} "b{layer}" f32[8] = elementwise exp (%{before[0].value}) @{second}',
            f'%{last} "y{layer}" f32[8] = elementwise neg (%{first}) @{last}',
        ]
        for costly in (first, second):
            for port in before:
                add(costly, port, Port(costly), 100.0)
            for form in forms:
                add(last, Port(costly), Port(last, form), 1.0)
        before = [Port(last, form) for form in forms]
    for port in before:
        reorder = Candidate(CandidateKind.REORDER, (), (port,), (Port(port.value),), port.arrangement)
        priced.append(Priced(reorder, 1.0))
    return parse_graph("\n".join([*lines, f"outputs (%{before[0].value})"])), priced


def test_values_in_several_ways_and_forms_are_paid_in_full() -> None:
    graph, priced = layers()
    optimum = LAYERS * 101.0 + 1.0
    formulation = Formulation(graph, runnable(graph, priced))
    relaxation = Relaxation(formulation)
    assert relaxation.solve(60.0).bound < optimum * UNITS_PER_US / 2
    relaxed = relax(formulation, relaxation, time.monotonic() + 60)
    assert math.isclose(relaxed.bound, optimum * UNITS_PER_US)
    plan = solve(graph, priced, time_limit_s=60)
    assert (plan.cost_us, plan.bound_us, plan.status) == (optimum, optimum, "optimal")


class CutOff(Relaxation):
    """Has time for one solution."""

    solved = 0

    def solve(self, time_limit_s: float) -> Relaxed:
        self.solved += 1
        if self.solved == 1:
            return super().solve(time_limit_s)
        nothing = [0.0] * len(self._formulation.candidates)
        return Relaxed(nothing, 0.0, nothing)


def test_what_one_solution_said_counts_where_the_next_one_is_cut_off() -> None:
    graph, priced = layers()
    formulation = Formulation(graph, runnable(graph, priced))
    relaxation = CutOff(formulation)
    relaxed = relax(formulation, relaxation, time.monotonic() + 60)
    assert relaxation.solved == 2
    assert 0.0 < relaxed.bound < LAYERS * 50.0 * UNITS_PER_US
    assert relaxed.support()
