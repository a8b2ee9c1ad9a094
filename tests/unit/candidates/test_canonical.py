from __future__ import annotations

import hashlib

import pytest

from korch_cli.candidates import SearchLimits, cut, enumerate_candidates
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate
from korch_cli.core.primitive import Constant
from korch_cli.core.text import parse_graph, print_graph


def graph(*lines: str) -> PrimitiveGraph:
    return parse_graph("\n".join(lines))


def candidate(of: PrimitiveGraph, *body: int) -> Candidate:
    return next(c for c in enumerate_candidates(of, SearchLimits()).candidates if c.body == body)


NORMALIZATION = graph(
    '%0 "w" f32[8] = const',
    '%1 "eps" f32[] = literal 1e-05',
    '%2 "x" f32[4,8] = input',
    '%3 "y" f32[4,8] = input',
    '%4 "sum" f32[4,8] = elementwise add (%2, %3) @0',
    '%5 "mean" f32[4,1] = reduce mean axes=[1] (%4) @1',
    '%6 "eps2" f32[] = literal 1e-05',
    '%7 "d" f32[4,8] = elementwise sub (%4, %5) @1',
    '%8 "e" f32[4,8] = elementwise add (%7, %1) @1',
    '%9 "f" f32[4,8] = elementwise add (%8, %6) @1',
    '%10 "g" f32[4,8] = elementwise mul (%9, %0) @1',
    "outputs (%10, %4)",
)


def test_the_cut_graph_holds_operands_weights_literals_and_primitives_in_this_order() -> None:
    body = cut(NORMALIZATION, candidate(NORMALIZATION, 4, 5, 7, 8, 9, 10))
    text = print_graph(body.graph)
    assert text.splitlines() == [
        '%0 "a0" f32[4,8] = input',
        '%1 "a1" f32[4,8] = input',
        '%2 "a2" f32[8] = input',
        '%3 "c0" f32[] = literal 1e-05',
        '%4 "v0" f32[4,8] = elementwise add (%0, %1)',
        '%5 "v1" f32[4,1] = reduce mean axes=[1] (%4)',
        '%6 "v2" f32[4,8] = elementwise sub (%4, %5)',
        '%7 "v3" f32[4,8] = elementwise add (%6, %3)',
        '%8 "v4" f32[4,8] = elementwise add (%7, %3)',
        '%9 "v5" f32[4,8] = elementwise mul (%8, %2)',
        "outputs (%4, %9)",
    ]
    assert body.arguments == (2, 3, 0)
    assert body.results == (4, 10)
    assert body.digest == hashlib.sha256(text.encode()).hexdigest()


def twice(first: str, second: str) -> PrimitiveGraph:
    """Two layers in one graph; each multiplies its operand by something and adds it again."""
    return graph(
        '%0 "x" f32[4,8] = input',
        '%1 "y" f32[4,8] = input',
        f'%2 "p" {first}',
        f'%3 "q" {second}',
        '%4 "a" f32[4,8] = elementwise mul (%0, %2) @0',
        '%5 "b" f32[4,8] = elementwise add (%0, %4) @0',
        '%6 "c" f32[4,8] = elementwise mul (%1, %3) @1',
        '%7 "d" f32[4,8] = elementwise add (%1, %6) @1',
        "outputs (%5, %7)",
    )


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ("f32[8] = const", "f32[8] = const", True),
        ("f32[8] = const", "f32[8] = input", True),
        ("f32[8] = const", "f32[1] = const", False),
        ("f32[] = literal 2.0", "f32[] = literal 2.0", True),
        ("f32[] = literal 2.0", "f32[] = literal 3.0", False),
        ("f32[] = literal 2.0", "f32[1] = literal 2.0", False),
    ],
)
def test_layers_share_a_kernel_if_only_weights_differ(first: str, second: str, shared: bool) -> None:
    of = twice(first, second)
    one, two = candidate(of, 4, 5), candidate(of, 6, 7)
    assert (one.digest == two.digest) is shared
    assert (cut(of, one).digest == cut(of, two).digest) is shared


def test_a_write_inside_makes_another_kernel() -> None:
    lines = print_graph(twice("f32[8] = const", "f32[8] = const")).splitlines()
    of = graph(*lines[:-1], "outputs (%5, %7, %6)")
    assert candidate(of, 4, 5).digest != candidate(of, 6, 7).digest


def alike(*pairs: tuple[int, int]) -> PrimitiveGraph:
    """Two inputs, `neg` of each and then a `tanh` of each (%4 and %5 in the given order); all are outputs."""
    lines = [f'%{i} "x{i}" f32[8] = input' for i in range(2)]
    lines += [f'%{i} "v{i}" f32[8] = elementwise {"neg" if i < 4 else "tanh"} (%{a}) @{i}' for i, a in pairs]
    lines.append('%6 "v6" f32[8] = elementwise add (%2, %3) @6')
    return graph(*lines, "outputs (%2, %3, %4, %5, %6)")


def test_ties_are_resolved_alike() -> None:
    # Both halves look the same, so which tanh belongs to which neg has to follow from the order of the first two.
    straight = alike((2, 0), (3, 1), (4, 0), (5, 1))
    crossed = alike((2, 0), (3, 1), (4, 1), (5, 0))
    limits = SearchLimits(max_primitives=5)
    found = [
        next(c.digest for c in enumerate_candidates(of, limits).candidates if len(c.body) == 5)
        for of in (straight, crossed)
    ]
    assert found[0] == found[1]


def test_literals_keep_their_data() -> None:
    body = cut(NORMALIZATION, candidate(NORMALIZATION, 8))
    (literal,) = (v.op for v in body.graph.values if isinstance(v.op, Constant))
    assert literal.literal == pytest.approx(1e-5)
