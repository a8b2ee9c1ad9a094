"""Pieces of a graph that are searched one at a time, where the whole graph takes too long.

A *seam* is a value through which everything passes: nothing before it is read after it. Between seams lie the parts of
the graph, which share nothing but the seams, so that a plan is mostly as good as its parts. What the plan runs in all
other parts is held fixed while one is searched. Kernels that reach across a seam come last: each two neighbouring parts
are searched together, again and again, until none of them gets any better.

Whatever is found is a plan of the whole, and the bound of the relaxation holds for the whole, so the gap that is
reported is as honest as without this; only the proof that a plan is the best one can be missing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate

_LEAST = 60
"""Primitives that are worth a search of their own; smaller parts are joined."""
_MOST = 240
"""Primitives from which on a part is divided where it has no seam."""

Improve = Callable[[Sequence[int]], bool]
"""Searches the plans that run, beside what the best one runs, only these candidates; tells whether one was better."""


def improve_by_parts(
    graph: PrimitiveGraph, candidates: Sequence[Candidate], improve: Improve, least: int = _LEAST, most: int = _MOST
) -> None:
    """Search every part, and then neighbouring parts together until nothing gets any better.

    Args:
        graph: what the candidates compute.
        candidates: of the program.
        improve: called with positions in `candidates`, ascending.
        least: primitives of a part at least, unless the graph has fewer.
        most: primitives of a part at most.
    """
    starts = _divided(seams(graph), len(graph.values), least, most)
    spans = [_span(candidate, starts) for candidate in candidates]
    parts = len(starts)
    for part in range(parts):
        improve(_within(spans, part, part))
    open_pairs = set(range(parts - 1))
    while open_pairs:
        pair = min(open_pairs)
        open_pairs.discard(pair)
        if improve(_within(spans, pair, pair + 1)):
            open_pairs |= {pair - 1, pair + 1} & set(range(parts - 1))


def seams(graph: PrimitiveGraph) -> list[int]:
    """Return the values that nothing before is read after, ascending. Equal values are one, at all their places."""
    values = len(graph.values)
    last = list(range(values))
    for v, first in graph.alternatives.items():
        last[first] = max(last[first], v)
    for reader in graph.primitives():
        for a in reader.args:
            if not graph.values[a].is_source:
                last[a] = max(last[a], reader.id)
    # Whoever is read, or has an equal, further on hides all that lie between.
    hidden = [0] * (values + 1)
    for v, end in enumerate(last):
        if end > v + 1:
            hidden[v + 1] += 1
            hidden[end] -= 1
    covered = list(accumulate(hidden))
    return [v.id for v in graph.primitives() if covered[v.id] == 0]


def _divided(seams: Sequence[int], values: int, least: int, most: int) -> list[int]:
    """Return where the parts start: behind seams, and in between where these are far apart."""
    starts = [0]
    for end in [*(seam + 1 for seam in seams if seam + 1 < values), values]:
        while end - starts[-1] > most:
            starts.append(starts[-1] + most)
        if end - starts[-1] >= least and end < values:
            starts.append(end)
    if len(starts) > 1 and values - starts[-1] < least:
        starts.pop()
    return starts


def _span(candidate: Candidate, starts: Sequence[int]) -> tuple[int, int]:
    """Return the first and the last part that a candidate computes or writes something of."""
    touched = [*candidate.body, *(port.value for port in candidate.writes)]
    return bisect_right(starts, min(touched)) - 1, bisect_right(starts, max(touched)) - 1


def _within(spans: Sequence[tuple[int, int]], first: int, last: int) -> list[int]:
    return [i for i, (low, high) in enumerate(spans) if first <= low and high <= last]
