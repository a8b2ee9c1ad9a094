"""Plans that are improved piece by piece, against brute force and the search of the whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_alternatives import ways
from test_orchestration import brute_force, graphs, problems, reads_of

from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.plan import Plan, Priced
from korch_cli.core.text import parse_graph
from korch_cli.pipeline.ways import Ways
from korch_cli.solve import check_plan, greedy, program, solve
from korch_cli.solve.formulation import Formulation
from korch_cli.solve.program import relax
from korch_cli.solve.relaxation import Relaxed
from korch_cli.solve.windows import improve_by_parts, seams

BLOCKS = 5
"""Each reads one value in two places and adds up what it makes of them: values 3b + 1 to 3b + 3 are block b."""


def blocks() -> PrimitiveGraph:
    lines = ['%0 "x" f32[8] = input']
    for b in range(BLOCKS):
        v = 3 * b
        lines += [
            f'%{v + 1} "t{v + 1}" f32[8] = elementwise neg (%{v}) @{v}',
            f'%{v + 2} "t{v + 2}" f32[8] = elementwise tanh (%{v}) @{v + 1}',
            f'%{v + 3} "t{v + 3}" f32[8] = elementwise add (%{v + 1}, %{v + 2}) @{v + 2}',
        ]
    return parse_graph("\n".join([*lines, f"outputs (%{3 * BLOCKS})"]))


CHAIN = blocks()


def kernels(first: int, last: int) -> Iterator[Candidate]:
    """Every kernel over some of the values from `first` to `last` that writes all of them, or the last one."""
    values = range(first, last + 1)
    for size in range(1, len(values) + 1):
        for body in combinations(values, size):
            for writes in {body, body[-1:]}:
                ports = tuple(map(Port, writes))
                yield Candidate(CandidateKind.GENERATED, body, reads_of(CHAIN, body), ports, f"{body}{writes}")


def unrelaxed(formulation: Formulation, *_: object) -> Relaxed:
    nothing = [0.0] * len(formulation.candidates)
    return Relaxed(nothing, 0.0, nothing)


def by_parts(
    graph: PrimitiveGraph, priced: Sequence[Priced], least: int, most: int, relaxing: object = unrelaxed
) -> Plan:
    """Return the plan where nothing but the search of parts, and what `relaxing` finds, improves the greedy one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "relax", relaxing)
        patch.setattr(program, "_search_near", lambda *_: None)
        patch.setattr(program, "improve_by_parts", partial(improve_by_parts, least=least, most=most))
        plan = solve(graph, priced, time_limit_s=60)
    check_plan(graph, plan)
    return plan


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_parts_that_share_only_seams_are_solved_to_the_optimum(data: st.DataObject) -> None:
    inside = [c for b in range(BLOCKS) for c in kernels(3 * b + 1, 3 * b + 3)]
    costs = data.draw(st.lists(st.integers(8, 80), min_size=len(inside), max_size=len(inside)))
    priced = [Priced(c, cost / 8) for c, cost in zip(inside, costs, strict=True)]
    assert by_parts(CHAIN, priced, 3, 3).cost_us == solve(CHAIN, priced, time_limit_s=60).cost_us


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_kernels_across_a_seam_are_found_by_searching_neighbours_together(data: st.DataObject) -> None:
    two = [c for c in kernels(1, 6) if len(c.body) == 1 or not data.draw(st.integers(0, 3))]
    graph = PrimitiveGraph(CHAIN.values[:7], (6,))
    priced = [Priced(c, data.draw(st.integers(8, 80)) / 8) for c in two]
    assert by_parts(graph, priced, 3, 3).cost_us == solve(graph, priced, time_limit_s=60).cost_us


@settings(deadline=None, max_examples=60)
@given(problems(), st.integers(1, 3), st.sampled_from([relax, unrelaxed]))
def test_pieces_of_any_size_never_do_harm_and_the_bound_is_true(
    problem: tuple[PrimitiveGraph, list[Priced]], size: int, relaxing: object
) -> None:
    graph, priced = problem
    expected = brute_force(graph, priced)
    if expected is None:
        return
    plan = by_parts(graph, priced, size, size, relaxing)
    assert plan.bound_us <= expected <= plan.cost_us <= greedy(graph, priced).cost_us
    assert by_parts(graph, priced, 99, 99).cost_us == expected


def hides(graph: PrimitiveGraph, v: int) -> bool:
    """Whether something from before `v` is read, or has an equal, after it."""
    return any(
        (a < v < reader.id and not graph.values[a].is_source)
        for reader in graph.primitives()
        for a in (*reader.args, graph.first(reader.id))
    )


@settings(deadline=None, max_examples=60)
@given(graphs(8), ways(6))
def test_a_seam_is_what_everything_passes_through(graph: PrimitiveGraph, both: Ways) -> None:
    for found in (graph, both.graph):
        expected = [v.id for v in found.primitives() if not hides(found, v.id)]
        assert seams(found) == expected


def test_seams_and_sizes_decide_where_parts_begin() -> None:
    def parts(least: int, most: int) -> list[Sequence[int]]:
        singles = [c for c in kernels(1, 3 * BLOCKS) if len(c.body) == 1 and c.writes == (Port(c.body[0]),)]
        asked: list[Sequence[int]] = []

        def improve(members: Sequence[int]) -> bool:
            asked.append(members)
            return False

        improve_by_parts(CHAIN, singles, improve, least, most)
        return [[singles[i].body[0] for i in members] for members in asked]

    whole = list(range(1, 16))
    assert parts(99, 99) == [whole]
    # Parts of two blocks; the last one is too small to stand alone. Then both together.
    assert parts(6, 99) == [whole[:6], whole[6:], whole]
    # No seam comes soon enough.
    assert parts(3, 2)[0] == [1]
