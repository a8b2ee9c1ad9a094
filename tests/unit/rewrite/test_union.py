"""Two ways to compute the same in one graph."""

from __future__ import annotations

from korch_cli.core.check import check
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.text import parse_graph
from korch_cli.rewrite import unite
from korch_cli.rewrite.union import Union

WRITTEN = """\
%0 "x" f32[2] = input
%1 "a" f32[2] = elementwise neg (%0) @0
%2 "b/inner" f32[2] = elementwise exp (%1) @1
%3 "b" f32[2] = elementwise tanh (%2) @1
%4 "y" f32[2] = elementwise neg (%3) @2
outputs (%4)
operator 0 = (%1)
operator 1 = (%3)
operator 2 = (%4)
"""
REWRITTEN = """\
%0 "x" f32[2] = input
%1 "c" f32[2] = elementwise abs (%0) @0
%2 "b/inner" f32[2] = elementwise sqrt (%1) @1
%3 "b" f32[2] = elementwise tanh (%2) @1
%4 "y" f32[2] = elementwise neg (%3) @2
outputs (%4)
operator 0 = (%1)
operator 1 = (%3)
operator 2 = (%4)
"""


def united(first: str, second: str, operators: tuple[int, ...], inner: frozenset[str] = frozenset()) -> Union | None:
    graphs = [parse_graph(first), parse_graph(second)]
    tensors = [frozenset(v.name for v in graph.values if "/" not in v.name) | inner for graph in graphs]
    return unite(graphs, tensors, [range(len(graphs[0].operator_outputs)), operators])


def by_name(graph: PrimitiveGraph) -> dict[str, int]:
    return {value.name: value.id for value in graph.values}


def test_what_is_shared_is_there_once_and_what_differs_is_an_alternative() -> None:
    found = united(WRITTEN, REWRITTEN, (3, 4, 2))
    assert found is not None
    graph, (first, second) = found.graph, found.values
    check(graph)
    names = by_name(graph)
    assert len(graph.values) == 8
    assert (first[0], first[4]) == (second[0], second[4])
    (other,) = graph.alternatives
    assert {other, graph.alternatives[other]} == {first[3], second[3]}
    assert graph.first(second[3]) == graph.first(first[3]) == names["b"]
    # What lies inside of an operator is equal in name only.
    assert first[2] != second[2]
    assert not {first[2], second[2]} & graph.alternatives.keys()
    assert graph.values[names["y"]].args == (names["b"],)
    assert graph.outputs == (names["y"],)
    assert [graph.values[v].operator for v in second[1:]] == [3, 4, 4, 2]
    assert graph.operator_outputs[4] == (names["b"],)


def test_a_way_keeps_its_own_order() -> None:
    found = united(WRITTEN, REWRITTEN, (3, 4, 2))
    assert found is not None
    for values in found.values:
        assert list(values) == sorted(values)


def test_equal_graphs_have_no_alternatives() -> None:
    found = united(WRITTEN, WRITTEN, (0, 1, 2))
    assert found is not None
    assert found.graph == parse_graph(WRITTEN)
    assert found.values[0] == found.values[1] == tuple(range(5))


def test_one_primitive_is_never_two_of_the_same_way() -> None:
    twice = """\
%0 "x" f32[2] = input
%1 "a/one" f32[2] = elementwise neg (%0) @0
%2 "a/two" f32[2] = elementwise neg (%0) @0
%3 "y" f32[2] = elementwise add (%1, %2) @0
outputs (%3)
operator 0 = (%3)
"""
    once = twice.replace('%2 "a/two" f32[2] = elementwise neg (%0)', '%2 "a/two" f32[2] = elementwise exp (%0)')
    found = united(once, twice, (1,))
    assert found is not None
    check(found.graph)
    assert len(set(found.values[1])) == len(found.values[1])
    assert found.values[0][1] == found.values[1][1]


def test_ways_in_opposite_directions_are_not_united() -> None:
    there = """\
%0 "x" f32[2] = input
%1 "a" f32[2] = elementwise neg (%0) @0
%2 "b" f32[2] = elementwise neg (%1) @1
%3 "y" f32[2] = elementwise add (%1, %2) @2
outputs (%3)
operator 0 = (%1)
operator 1 = (%2)
operator 2 = (%3)
"""
    back = """\
%0 "x" f32[2] = input
%1 "b" f32[2] = elementwise abs (%0) @0
%2 "a" f32[2] = elementwise neg (%1) @1
%3 "y" f32[2] = elementwise add (%2, %1) @2
outputs (%3)
operator 0 = (%1)
operator 1 = (%2)
operator 2 = (%3)
"""
    assert united(there, back, (3, 4, 2)) is None


def test_ways_that_disagree_on_a_type_are_not_united() -> None:
    assert united(WRITTEN, REWRITTEN.replace('%3 "b" f32[2]', '%3 "b" f32[2,1]'), (3, 4, 2)) is None


def test_constants_are_shared_by_name_or_by_what_they_hold() -> None:
    first = """\
%0 "x" f32[2] = input
%1 "w" f32[2] = const
%2 "literal/f32/2.0" f32[] = literal 2.0
%3 "a/in" f32[2] = elementwise mul (%0, %1) @0
%4 "y" f32[2] = elementwise mul (%3, %2) @0
outputs (%4)
operator 0 = (%4)
"""
    second = first.replace("elementwise mul (%3, %2)", "elementwise add (%3, %2)").replace(
        '"literal/f32/2.0"', '"two/l"'
    )
    found = united(first, second, (1,))
    assert found is not None
    check(found.graph)
    assert found.values[0][:4] == found.values[1][:4]
