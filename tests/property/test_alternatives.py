"""Two ways to write a model in one program, against brute force on small random graphs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_orchestration import UNLIMITED, brute_force, evaluate, graphs, reads_of

from korch_cli.candidates import enumerate_candidates
from korch_cli.core.check import check
from korch_cli.core.errors import KorchError
from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.model import Model
from korch_cli.core.plan import Plan, Priced
from korch_cli.core.primitive import Elementwise, Op, Opaque
from korch_cli.pipeline.ways import REWRITTEN, WRITTEN, Way, Ways
from korch_cli.rewrite import unite
from korch_cli.solve import check_plan, greedy, solve

OTHERWISE: dict[str, list[tuple[str, tuple[int, ...]]]] = {
    "add": [("neg", (1,)), ("sub", (0, -1))],
    "sub": [("neg", (1,)), ("add", (0, -1))],
    "neg": [("neg", (0,)), ("neg", (-1,)), ("neg", (-1,))],
    "tanh": [("neg", (0,)), ("tanh", (-1,)), ("neg", (-1,))],
}
"""How to compute a function by others: operands by number, or the step before."""


def rewritten(graph: PrimitiveGraph, chosen: set[int]) -> tuple[PrimitiveGraph, tuple[int, ...]]:
    """The same values, the chosen ones computed otherwise, and which operators of the whole those of it are."""
    values: list[Value] = []
    placed: dict[int, int] = {}
    for value in graph.values:
        args = tuple(placed[a] for a in value.args)
        steps = OTHERWISE[value.op.function] if value.id in chosen and isinstance(value.op, Elementwise) else []
        for count, (function, operands) in enumerate(steps):
            taken = tuple(len(values) - 1 if i < 0 else args[i] for i in operands)
            name = value.name if count == len(steps) - 1 else f"{value.name}/{count}"
            typed = value.type if len(taken) > 1 else values[taken[0]].type
            values.append(Value(len(values), name, typed, Elementwise(function), taken, value.operator))
        if not steps:
            values.append(Value(len(values), value.name, value.type, value.op, args, value.operator))
        placed[value.id] = len(values) - 1
    made = PrimitiveGraph(tuple(values), tuple(placed[v] for v in graph.outputs))
    check(made)
    size = len(graph.values)
    return made, tuple(o + size if o in chosen else o for o in range(size))


@st.composite
def ways(draw: st.DrawFn, most: int = 5) -> Ways:
    """A graph in two ways; names of tensors have no slash, and each primitive of the first is an operator."""
    graph = draw(graphs(most))
    able = [v.id for v in graph.values if isinstance(v.op, Elementwise) and v.op.function in OTHERWISE]
    chosen = draw(st.sets(st.sampled_from(able))) if able else set()
    other, operators = rewritten(graph, chosen)
    tensors = frozenset(value.name for value in graph.values)
    indices = (tuple(range(len(graph.values))), operators)
    union = unite((graph, other), (tensors, tensors), indices)
    assert union is not None
    check(union.graph)
    model = Model(None, (), (), (), {}, {}, {}, 8, None)  # type: ignore[arg-type]
    members = tuple(
        Way(name, model, own, values, index)
        for name, own, values, index in zip((WRITTEN, REWRITTEN), (graph, other), union.values, indices, strict=True)
    )
    return Ways(model, union.graph, members)


def alone(graph: PrimitiveGraph) -> list[Candidate]:
    """Everything that a graph can run: each primitive as a vendor's kernel, and all generated ones."""
    made = [
        Candidate(CandidateKind.VENDOR, (v.id,), reads_of(graph, (v.id,)), (Port(v.id),), f"node:{v.id}", (v.operator,))
        for v in graph.primitives()
    ]
    return [*made, *enumerate_candidates(graph, UNLIMITED).candidates]


def candidates_of(found: Ways, at: int) -> list[Candidate]:
    """Everything that one way can run, in terms of the common graph."""
    graph = found.members[at].graph
    return [found.common(at, c) for c in alone(graph)]


@settings(max_examples=40, deadline=None)
@given(ways(7), st.integers(0, 2**32 - 1))
def test_alternatives_are_equal_and_every_way_is_whole(found: Ways, seed: int) -> None:
    random = np.random.default_rng(seed)
    numbers = evaluate(found.graph, {v.id: random.normal(size=v.type.shape) for v in found.graph.inputs()})
    for v, first in found.graph.alternatives.items():
        np.testing.assert_allclose(numbers[v], numbers[first], rtol=1e-6)
    for at, way in enumerate(found.members):
        assert len(set(way.values)) == len(way.graph.values)
        for value, v in zip(way.graph.values, way.values, strict=True):
            common = found.graph.values[v]
            assert common.type == value.type
            assert common.args == tuple(found.graph.first(way.values[a]) for a in value.args)
            op: Op = common.op
            assert isinstance(op, Opaque) or op == value.op
        for candidate in enumerate_candidates(way.graph, UNLIMITED).candidates:
            again = found.common(at, candidate)
            body = found.cut(again)
            assert body.digest == again.digest == candidate.digest
            assert body.arguments[: len(again.reads)] == tuple(p.value for p in again.reads)
            assert body.results == tuple(p.value for p in again.writes)


@settings(max_examples=60, deadline=None)
@given(ways(), st.data())
def test_the_program_chooses_among_alternatives_as_brute_force_does(found: Ways, data: st.DataObject) -> None:
    everything = list(dict.fromkeys([*candidates_of(found, 0), *candidates_of(found, 1)]))
    chosen = data.draw(st.lists(st.sampled_from(everything), max_size=11, unique=True))
    priced = [Priced(c, data.draw(st.integers(0, 40)) / 8) for c in chosen]
    expected = brute_force(found.graph, priced)
    if expected is None:
        with pytest.raises(KorchError, match="no kernel can compute"):
            solve(found.graph, priced, time_limit_s=30)
        return
    plan = solve(found.graph, priced, time_limit_s=30)
    check_plan(found.graph, plan)
    assert plan.cost_us == plan.bound_us == expected
    baseline = greedy(found.graph, priced)
    check_plan(found.graph, baseline)
    assert baseline.cost_us >= expected
    assert solve(found.graph, priced, time_limit_s=30, hint=Plan(plan.kernels, 0.0, 0.0)) == plan


def cheapest(graph: PrimitiveGraph, candidates: Sequence[Candidate], prices: dict[Candidate, float]) -> float:
    plan = solve(graph, [Priced(c, prices[c]) for c in candidates], time_limit_s=30)
    check_plan(graph, plan)
    assert plan.status == "optimal"
    return plan.cost_us


@settings(max_examples=20, deadline=None)
@given(ways(6), st.data())
def test_both_ways_together_are_never_worse_than_either(found: Ways, data: st.DataObject) -> None:
    each = [candidates_of(found, at) for at in range(2)]
    together = list(dict.fromkeys([*each[0], *each[1]]))
    prices = {c: data.draw(st.integers(1, 64)) / 8 for c in together}
    best = cheapest(found.graph, together, prices)
    for at, candidates in enumerate(each):
        cost_us = cheapest(found.graph, candidates, prices)
        assert best <= cost_us
        # One way costs in the common graph what it costs by itself.
        graph = found.members[at].graph
        own = {c: prices[found.common(at, c)] for c in alone(graph)}
        assert cheapest(graph, list(own), own) == cost_us
