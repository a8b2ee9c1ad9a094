"""Values that every plan has to touch: the rows that make the program's relaxation tight.

Values that are alternatives of each other count as one here: to compute any of them is to compute the first. Say that a
plan *touches* a value when it runs a kernel that computes the value in its body, or when the value is in memory at some
time. Let K(v) be the candidates that do not read v in any arrangement, and have v in their body or write it in some
arrangement.

Whatever touches v runs a member of K(v): the kernel of the plan that is the first to touch v cannot have read it. So
for every value that all plans touch, the sum of u over K(v) is at least 1.

Let N(v) be a set of values that a plan touches no later than v. The first kernel to touch v is some k in K(v); it
touches its body at the same time, and what it reads was touched before, and so was what that needed in turn. Hence

    N(v) = intersection over k in K(v) of (body(k) + union over w read by k of (w + N(w)))

defines such sets: induction goes over the time of running, so the largest sets that fulfil the equations will do. What
all plans touch is what their outputs need. This depends only on the candidates, not on what primitives mean; it holds
for vendor kernels that read other values than their primitives do, for recomputation, and for conversions between
arrangements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate
from korch_cli.solve.execution import goals


def coverage(graph: PrimitiveGraph, candidates: Sequence[Candidate]) -> list[tuple[int, ...]]:
    """Return, for each value that every plan touches, the positions of the candidates of which one must run."""
    own = [{*map(graph.first, c.body), *(p.value for p in c.writes)} for c in candidates]
    touching = _touching(candidates, own)
    needs = _needs(graph, candidates, own, touching)
    touched = 0
    for port in goals(graph):
        touched |= needs[port.value]
    return list(dict.fromkeys(tuple(touching.get(v, ())) for v in _bits(touched)))


def _touching(candidates: Sequence[Candidate], own: Sequence[set[int]]) -> dict[int, list[int]]:
    touching: dict[int, list[int]] = {}
    for i, candidate in enumerate(candidates):
        for v in own[i].difference(port.value for port in candidate.reads):
            touching.setdefault(v, []).append(i)
    return touching


def _needs(
    graph: PrimitiveGraph, candidates: Sequence[Candidate], own: Sequence[set[int]], touching: dict[int, list[int]]
) -> list[int]:
    """For each value what has to be touched for it, itself included, as bits; none for what is given."""
    masks = [sum(1 << v for v in values) for values in own]
    reads = [{p.value for p in c.reads if not graph.values[p.value].is_source} for c in candidates]
    everything = sum(1 << v.id for v in graph.values if not v.is_source)
    needs = [0 if v.is_source else everything for v in graph.values]
    changed = True
    while changed:
        changed = False
        # Most candidates read smaller values than they write, so that the second round finds nothing to do.
        for v in sorted(touching):
            found = needs[v]
            for i in touching[v]:
                held = masks[i]
                for w in reads[i]:
                    held |= needs[w]
                found &= held
            if found != needs[v]:
                needs[v], changed = found, True
    return needs


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
