from __future__ import annotations

import pytest

from korch_cli.core.errors import KorchError
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.plan import Plan, Priced
from korch_cli.core.text import parse_graph
from korch_cli.solve import check_plan, greedy, solve


def graph(*lines: str) -> PrimitiveGraph:
    return parse_graph("\n".join(lines))


def kernel(body: tuple[int, ...], reads: tuple[int, ...], writes: tuple[int, ...], cost_us: float) -> Priced:
    read, written = tuple(map(Port, reads)), tuple(map(Port, writes))
    return Priced(Candidate(CandidateKind.GENERATED, body, read, written, str(body)), cost_us)


def operator(body: tuple[int, ...], reads: tuple[int, ...], writes: tuple[int, ...], cost_us: float) -> Priced:
    read, written = tuple(map(Port, reads)), tuple(map(Port, writes))
    return Priced(Candidate(CandidateKind.VENDOR, body, read, written, str(body), (body[0],)), cost_us)


def bodies(of: PrimitiveGraph, priced: list[Priced]) -> list[tuple[int, ...]]:
    plan = greedy(of, priced)
    check_plan(of, plan)
    return [p.candidate.body for p in plan.kernels]


CHAIN = graph(
    '%0 "x" f32[8] = input',
    '%1 "a" f32[8] = elementwise neg (%0) @0',
    '%2 "b" f32[8] = elementwise neg (%1) @1',
    '%3 "c" f32[8] = elementwise neg (%2) @2',
    '%4 "d" f32[8] = elementwise neg (%3) @3',
    "outputs (%4)",
)
SINGLES = [kernel((v,), (v - 1,), (v,), 4) for v in (1, 2, 3, 4)]


def test_it_begins_with_operators_and_takes_primitives_where_there_is_none() -> None:
    assert bodies(CHAIN, [*SINGLES, operator((1, 2), (0,), (2,), 50)]) == [(1, 2), (3,), (4,)]


def test_it_merges_pair_by_pair_while_that_saves() -> None:
    priced = [
        *SINGLES,
        kernel((1, 2), (0,), (2,), 5),
        kernel((3, 4), (2,), (4,), 6),
        kernel((1, 2, 3, 4), (0,), (4,), 7),
    ]
    assert bodies(CHAIN, priced) == [(1, 2, 3, 4)]
    assert bodies(CHAIN, [*priced[:-1], kernel((1, 2, 3, 4), (0,), (4,), 12)]) == [(1, 2), (3, 4)]


def test_the_best_pair_first_can_be_a_trap_that_the_program_avoids() -> None:
    trap = [*SINGLES, kernel((2, 3), (1,), (3,), 3), kernel((1, 2), (0,), (2,), 4), kernel((3, 4), (2,), (4,), 4)]
    assert bodies(CHAIN, trap) == [(1,), (2, 3), (4,)]
    assert greedy(CHAIN, trap).cost_us == 11.0
    assert solve(CHAIN, trap, time_limit_s=10).cost_us == 8.0


def test_readers_of_the_same_value_are_merged() -> None:
    of = graph(
        '%0 "x" f32[8] = input',
        '%1 "a" f32[8] = elementwise neg (%0) @0',
        '%2 "b" f32[8] = elementwise tanh (%0) @1',
        "outputs (%1, %2)",
    )
    both = kernel((1, 2), (0,), (1, 2), 5)
    assert bodies(of, [kernel((1,), (0,), (1,), 4), kernel((2,), (0,), (2,), 4), both]) == [(1, 2)]


DIAMOND = graph(
    '%0 "x" f32[8] = input',
    '%1 "a" f32[8] = elementwise neg (%0) @0',
    '%2 "b" f32[8] = elementwise tanh (%1) @1',
    '%3 "c" f32[8] = elementwise add (%1, %2) @2',
    "outputs (%3)",
)
SIDES = [kernel((1,), (0,), (1,), 4), kernel((2,), (1,), (2,), 4), kernel((3,), (1, 2), (3,), 4)]


def test_a_pair_with_a_kernel_on_the_way_between_is_not_merged() -> None:
    assert bodies(DIAMOND, [*SIDES, kernel((1, 3), (0, 2), (1, 3), 1)]) == [(1,), (2,), (3,)]


def test_a_pair_is_not_merged_if_someone_needs_what_it_no_longer_writes() -> None:
    assert bodies(DIAMOND, [*SIDES, kernel((1, 2), (0,), (2,), 1)]) == [(1,), (2,), (3,)]
    assert bodies(DIAMOND, [*SIDES, kernel((1, 2), (0,), (1, 2), 1)]) == [(1, 2), (3,)]


def test_a_pair_is_not_merged_if_the_candidate_reads_what_comes_too_late() -> None:
    early = [*SINGLES, operator((1, 2), (0, 3), (2,), 1)]
    assert bodies(CHAIN, [*early, operator((1,), (0,), (1,), 4), operator((2,), (1,), (2,), 4)]) == [
        (1,),
        (2,),
        (3,),
        (4,),
    ]


def test_kernels_between_a_pair_move_out_of_its_way() -> None:
    of = graph(
        '%0 "x" f32[8] = input',
        '%1 "y" f32[8] = input',
        '%2 "a" f32[8] = elementwise neg (%0) @0',
        '%3 "b" f32[8] = elementwise tanh (%2) @1',
        '%4 "c" f32[8] = elementwise neg (%1) @2',
        '%5 "d" f32[8] = elementwise add (%2, %4) @3',
        "outputs (%3, %5)",
    )
    singles = [
        kernel((2,), (0,), (2,), 4),
        kernel((3,), (2,), (3,), 4),
        kernel((4,), (1,), (4,), 4),
        kernel((5,), (2, 4), (5,), 4),
    ]
    # %4 has to run before the merged kernel, and %3 after it.
    assert bodies(of, [*singles, kernel((2, 5), (0, 4), (2, 5), 2)]) == [(4,), (2, 5), (3,)]


def test_it_proves_nothing() -> None:
    assert greedy(CHAIN, SINGLES) == Plan(tuple(SINGLES), 16.0, 0.0)


def test_without_a_way_there_is_no_plan() -> None:
    with pytest.raises(KorchError, match="no kernel can compute an output"):
        greedy(CHAIN, SINGLES[1:])
