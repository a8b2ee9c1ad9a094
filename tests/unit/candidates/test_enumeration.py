from __future__ import annotations

from collections import Counter
from itertools import pairwise

from korch_cli.candidates import CandidateSet, SearchLimits, enumerate_candidates
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import CandidateKind, Port
from korch_cli.core.text import parse_graph


def graph(*lines: str) -> PrimitiveGraph:
    return parse_graph("\n".join(lines))


def chain(length: int, operation: str = "elementwise neg") -> PrimitiveGraph:
    lines = ['%0 "x" f32[4,8] = input']
    lines += [f'%{i} "v{i}" f32[4,8] = {operation} (%{i - 1}) @{i}' for i in range(1, length + 1)]
    return graph(*lines, f"outputs (%{length})")


def bodies(found: CandidateSet) -> set[tuple[int, ...]]:
    return {c.body for c in found.candidates}


def test_a_chain_gives_all_its_intervals() -> None:
    found = enumerate_candidates(chain(20), SearchLimits(max_primitives=16))
    assert bodies(found) == {tuple(range(a, b)) for a in range(1, 21) for b in range(a + 1, min(a + 17, 22))}
    assert {c.kind for c in found.candidates} == {CandidateKind.GENERATED}
    sizes = Counter(len(c.body) for c in found.candidates)
    assert len({c.digest for c in found.candidates}) == len(sizes) == 16


def test_candidates_come_by_seed_and_size_with_what_they_read_and_write() -> None:
    first, second, third = enumerate_candidates(chain(2), SearchLimits()).candidates
    assert (first.body, first.reads, first.writes) == ((1,), (Port(0),), (Port(1),))
    assert (second.body, second.reads, second.writes) == ((1, 2), (Port(0),), (Port(2),))
    assert (third.body, third.reads, third.writes) == ((2,), (Port(1),), (Port(2),))


def test_a_value_used_outside_is_written_and_constants_are_not_read() -> None:
    found = enumerate_candidates(
        graph(
            '%0 "x" f32[8] = input',
            '%1 "w" f32[8] = const',
            '%2 "a" f32[8] = elementwise mul (%0, %1) @0',
            '%3 "b" f32[8] = elementwise neg (%2) @1',
            '%4 "c" f32[8] = opaque operator=2 output=0 (%2) @2',
            "outputs (%3, %4)",
        ),
        SearchLimits(),
    )
    whole = next(c for c in found.candidates if c.body == (2, 3))
    assert whole.reads == (Port(0),)
    assert set(whole.writes) == {Port(2), Port(3)}


def test_no_body_leaves_and_comes_back_through_an_opaque_operator() -> None:
    found = enumerate_candidates(
        graph(
            '%0 "x" f32[8] = input',
            '%1 "a" f32[8] = elementwise neg (%0) @0',
            '%2 "b" f32[8] = opaque operator=1 output=0 (%1) @1',
            '%3 "c" f32[8] = elementwise add (%1, %2) @2',
            "outputs (%3)",
        ),
        SearchLimits(),
    )
    assert bodies(found) == {(1,), (3,)}
    assert found.counters["primitive: opaque operator"] == 1
    assert found.counters["growth: a path through what no kernel takes"] == 1


PRODUCT = (
    '%0 "x" f32[8,8] = input',
    '%1 "a" f32[8,8] = elementwise neg (%0) @0',
    '%2 "b" f32[8,8] = linear matmul attributes={} (%1, %1) @1',
    '%3 "c" f32[8,8] = elementwise neg (%2) @2',
    '%4 "d" f32[8,8] = linear matmul attributes={} (%3, %3) @3',
    "outputs (%4)",
)


def test_products_stay_out_unless_the_limits_let_them_in() -> None:
    without = enumerate_candidates(graph(*PRODUCT), SearchLimits())
    assert bodies(without) == {(1,), (3,)}
    assert without.counters["primitive: product"] == 2
    one = enumerate_candidates(graph(*PRODUCT), SearchLimits(max_linear=1))
    assert bodies(one) == {(1,), (2,), (3,), (4,), (1, 2), (2, 3), (3, 4), (1, 2, 3)}
    assert one.counters["growth: more products than the limit"] > 0


def test_reductions_are_limited() -> None:
    found = enumerate_candidates(chain(5, "reduce sum axes=[]"), SearchLimits(max_reduces=2))
    assert max(map(len, bodies(found))) == 2
    assert found.counters["growth: more reductions than the limit"] > 0


def test_other_element_types_empty_tensors_and_unused_values_stay_out() -> None:
    found = enumerate_candidates(
        graph(
            '%0 "x" string[8] = input',
            '%1 "a" string[8] = reshape (%0) @0',
            '%2 "b" f32[8] = elementwise cast (%1) @1',
            '%3 "c" f32[8] = elementwise neg (%2) @2',
            '%4 "d" f32[0] = slice starts=[0] steps=[1] (%3) @3',
            '%5 "e" f32[8] = elementwise neg (%3) @4',
            "outputs (%3, %4)",
        ),
        SearchLimits(),
    )
    assert bodies(found) == {(3,)}
    assert found.counters["primitive: element type"] == 2
    assert found.counters["primitive: empty tensor"] == 1
    assert found.counters["primitive: unused"] == 1


def test_bodies_of_reshapes_alone_are_no_kernels_but_join_others() -> None:
    found = enumerate_candidates(
        graph(
            '%0 "x" f32[8] = input',
            '%1 "a" f32[2,4] = reshape (%0) @0',
            '%2 "b" f32[4,2] = reshape (%1) @1',
            '%3 "c" f32[4,2] = elementwise neg (%2) @2',
            "outputs (%3)",
        ),
        SearchLimits(),
    )
    assert bodies(found) == {(3,), (2, 3), (1, 2, 3)}
    assert found.counters["body: only reshapes"] == 3


def star(users: int) -> PrimitiveGraph:
    lines = ['%0 "x" f32[8,4] = input']
    lines += [f'%{i} "v{i}" f32[8,4] = elementwise neg (%0) @{i}' for i in range(1, users + 1)]
    return graph(*lines, f"outputs ({', '.join(f'%{i}' for i in range(1, users + 1))})")


def test_readers_of_one_operand_are_fused_within_reach() -> None:
    found = enumerate_candidates(star(9), SearchLimits(max_primitives=3, sibling_reach=2))
    pairs = {body for body in bodies(found) if len(body) == 2}
    assert pairs == {(i, j) for i in range(1, 10) for j in range(i + 1, min(i + 3, 10))}


def test_readers_are_fused_over_one_domain_only() -> None:
    found = enumerate_candidates(
        graph(
            '%0 "x" f32[8,4] = input',
            '%1 "w" f32[4] = const',
            '%2 "a" f32[8,4] = elementwise neg (%0) @0',
            '%3 "b" f32[8,1] = reduce sum axes=[1] (%0) @1',
            '%4 "c" f32[4,8] = transpose perm=[1,0] (%0) @2',
            '%5 "y" f32[4] = input',
            '%6 "d" f32[4] = elementwise mul (%5, %1) @3',
            '%7 "e" f32[4,8,4] = broadcast (%0) @4',
            '%8 "f" f32[4] = elementwise neg (%1) @5',
            "outputs (%2, %3, %4, %6, %7, %8)",
        ),
        SearchLimits(),
    )
    # The reduction walks over the same elements as the negation. A weight in common joins nothing (%6 and %8).
    assert {body for body in bodies(found) if len(body) > 1} == {(2, 3)}


def test_a_wide_region_is_bounded_and_its_best_bodies_stay() -> None:
    limits = SearchLimits(per_seed=40, max_primitives=8)
    found = enumerate_candidates(star(60), limits)
    per_seed = Counter(c.body[0] for c in found.candidates)
    assert max(per_seed.values()) <= 40
    assert found.counters["body: beyond the share of its seed"] > 0
    assert {len(c.body) for c in found.candidates} == set(range(1, 9))


def test_the_whole_is_bounded_and_every_seed_gets_the_same() -> None:
    limits = SearchLimits(max_candidates=300, max_primitives=8)
    found = enumerate_candidates(star(60), limits)
    assert len(found.candidates) <= 300
    counts = Counter(c.body[0] for c in found.candidates)
    assert set(counts) == set(range(1, 61))
    assert {counts[seed] for seed in range(1, 50)} == {5}
    assert {(i,) for i in range(1, 61)} <= bodies(found)


def test_what_does_not_fit_is_counted() -> None:
    found = enumerate_candidates(star(10), SearchLimits(max_candidates=4))
    assert len(found.candidates) == 4
    assert found.counters["body: more candidates than the limit"] == 6


def test_outputs_and_operands_are_limited() -> None:
    few = enumerate_candidates(star(6), SearchLimits(max_outputs=2))
    assert max(map(len, bodies(few))) == 2
    assert few.counters["body: outputs"] > 0


def test_equal_layers_get_equal_candidates() -> None:
    lines = ['%0 "x" f32[8,4] = input']
    last = 0
    starts = []
    for _ in range(4):
        first = len(lines)
        starts.append(first)
        ids = range(first, first + 12)
        lines += [f'%{v} "v{v}" f32[8,4] = elementwise tanh (%{last}) @{first}' for v in ids]
        total = f"%{first}"
        for i in range(1, 12):
            v = len(lines)
            lines.append(f'%{v} "v{v}" f32[8,4] = elementwise add ({total}, %{first + i}) @{first}')
            total = f"%{v}"
        last = len(lines)
        lines.append(f'%{last} "o{last}" f32[8,4] = opaque operator={last} output=0 ({total}) @{last}')
    found = enumerate_candidates(graph(*lines, f"outputs (%{last})"), SearchLimits(per_seed=30))
    assert found.counters["body: beyond the share of its seed"] > 0
    layers: list[set[tuple[tuple[int, ...], str]]] = [
        {(tuple(v - start for v in c.body), c.digest) for c in found.candidates if start <= c.body[0] < end}
        for start, end in pairwise([*starts, len(lines)])
    ]
    assert layers[0] == layers[1] == layers[2] == layers[3]


def hub(readers: int) -> PrimitiveGraph:
    """One value, %1, with many readers, whose results are the operands of one concatenation."""
    lines = ['%0 "x" f32[8,4] = input', '%1 "h" f32[8,4] = elementwise tanh (%0) @0']
    ids = range(2, 2 + readers)
    lines += [f'%{i} "r{i}" f32[8,4] = elementwise neg (%1) @{i}' for i in ids]
    joined = ", ".join(f"%{i}" for i in ids)
    lines.append(f'%{2 + readers} "y" f32[{8 * readers},4] = concat axis=0 ({joined}) @1')
    return graph(*lines, f"outputs (%{2 + readers})")


def test_the_work_for_a_hub_grows_no_faster_than_its_readers() -> None:
    def looked_at(readers: int) -> int:
        found = enumerate_candidates(hub(readers), SearchLimits(per_seed=60, max_primitives=8))
        # Whatever is looked at ends as a candidate, or is counted with the reason why not.
        return len(found.candidates) + sum(found.counters.values())

    assert looked_at(120) < 2.5 * looked_at(60)


def test_a_value_with_few_readers_and_operands_loses_nothing() -> None:
    unlimited = SearchLimits(max_primitives=5, sibling_reach=1, edge_reach=100, per_seed=10_000)
    few = SearchLimits(max_primitives=5, sibling_reach=1, edge_reach=9, per_seed=10_000)
    assert enumerate_candidates(hub(9), few).candidates == enumerate_candidates(hub(9), unlimited).candidates
    assert bodies(enumerate_candidates(hub(11), few)) < bodies(enumerate_candidates(hub(11), unlimited))


def test_a_hub_takes_any_reader_and_then_those_that_follow() -> None:
    limits = SearchLimits(max_primitives=3, sibling_reach=0, edge_reach=2)
    found = bodies(enumerate_candidates(hub(8), limits))
    assert {(1, r) for r in range(2, 10)} <= found
    assert {(r, 10) for r in range(2, 10)} <= found
    triples = {(r, s) for r in range(2, 10) for s in (r + 1, r + 2) if s < 10}
    assert {body for body in found if len(body) == 3} == {(1, r, s) for r, s in triples} | {
        (r, s, 10) for r, s in triples
    }
