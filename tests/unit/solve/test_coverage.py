from __future__ import annotations

from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.text import parse_graph
from korch_cli.solve.coverage import coverage

CHAIN = parse_graph(
    "\n".join(
        [
            '%0 "x" f32[8] = input',
            '%1 "a" f32[8] = elementwise neg (%0) @0',
            '%2 "b" f32[8] = elementwise neg (%1) @1',
            '%3 "c" f32[8] = elementwise neg (%2) @2',
            "outputs (%3, %0)",
        ]
    )
)


def candidate(body: tuple[int, ...], reads: tuple[Port, ...], writes: tuple[Port, ...]) -> Candidate:
    return Candidate(CandidateKind.VENDOR, body, reads, writes, "", (0,))


def rows(graph: PrimitiveGraph, *candidates: Candidate) -> set[tuple[int, ...]]:
    return set(coverage(graph, candidates))


ONE = candidate((1,), (Port(0),), (Port(1),))
TWO = candidate((2,), (Port(1),), (Port(2),))
THREE = candidate((3,), (Port(2),), (Port(3),))


def test_everything_on_the_only_way_is_covered() -> None:
    assert rows(CHAIN, ONE, TWO, THREE) == {(0,), (1,), (2,)}
    whole = candidate((1, 2, 3), (Port(0),), (Port(3),))
    assert rows(CHAIN, ONE, TWO, THREE, whole) == {(0, 3), (1, 3), (2, 3)}


def test_what_one_way_avoids_is_not_covered() -> None:
    # An operator that was rewritten: it computes %3 straight from the input.
    assert rows(CHAIN, ONE, TWO, THREE, candidate((3,), (Port(0),), (Port(3),))) == {(2, 3)}
    # One that reads %1 instead of %2 avoids %2 alone.
    assert rows(CHAIN, ONE, TWO, THREE, candidate((3,), (Port(1),), (Port(3),))) == {(0,), (2, 3)}


def test_what_every_way_needs_in_the_end_is_covered() -> None:
    graph = parse_graph(
        "\n".join(
            [
                '%0 "x" f32[8] = input',
                '%1 "a" f32[8] = elementwise neg (%0) @0',
                '%2 "b" f32[8] = elementwise neg (%1) @1',
                '%3 "c" f32[8] = elementwise tanh (%1) @2',
                '%4 "d" f32[8] = elementwise neg (%2) @3',
                "outputs (%4)",
            ]
        )
    )
    three = candidate((3,), (Port(1),), (Port(3),))
    four = candidate((4,), (Port(2),), (Port(4),))
    other = candidate((4,), (Port(3),), (Port(4),))
    # %4 is computed from %2 or from %3, and both of them from %1.
    assert rows(graph, ONE, TWO, three, four, other) == {(0,), (3, 4)}


def test_what_reads_a_value_is_not_the_first_to_touch_it() -> None:
    again = candidate((1, 2), (Port(1),), (Port(2),))
    assert rows(CHAIN, ONE, TWO, THREE, again) == {(0,), (1, 3), (2,)}


def test_a_conversion_touches_nothing_by_itself() -> None:
    blocked = Port(3, "blocked")
    there = candidate((), (Port(3),), (blocked,))
    back = candidate((), (blocked,), (Port(3),))
    other = candidate((3,), (Port(2, "blocked"),), (blocked,))
    convert = candidate((), (Port(2),), (Port(2, "blocked"),))
    assert rows(CHAIN, ONE, TWO, THREE, there, back, other, convert) == {(0,), (1,), (2, 5)}


def test_a_writer_without_the_primitive_in_its_body_counts() -> None:
    alias = candidate((), (Port(1),), (Port(3),))
    assert rows(CHAIN, ONE, TWO, THREE, alias) == {(0,), (2, 3)}
