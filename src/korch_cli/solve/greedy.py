"""The baseline: merge neighbouring kernels while that pays, as fusing compilers do, and never look back.

It begins with what ONNX Runtime would run, each operator as a whole, and with single primitives where no operator is a
candidate. Then, as long as there is one, the pair of kernels that saves most when one candidate replaces both is
merged. A pair qualifies if one reads what the other writes, or both read the same, and if the kernels can still be
ordered afterwards. Nothing is ever computed twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import CandidateKind, Port
from korch_cli.core.plan import Plan, Priced, bounded
from korch_cli.solve.execution import cover, execute, goals, is_given, place, useful

_REACH = 8
"""How many of the readers of a value, the nearest in the order, a kernel is tried with."""
_GONE = -1
"""Stands in the order where a kernel was merged into another one."""


def greedy(graph: PrimitiveGraph, priced: Sequence[Priced]) -> Plan:
    """Return the plan that merging finds; its bound is 0, for it proves nothing.

    Raises:
        KorchError: an output cannot be computed.
    """
    return bounded(priced[i] for i in merged(graph, priced))


def merged(graph: PrimitiveGraph, priced: Sequence[Priced]) -> list[int]:
    """Return the kernels of the plan that merging finds, as positions in `priced`, in the order of running.

    Raises:
        KorchError: an output cannot be computed.
    """
    merging = _Merging(graph, priced, _cover(graph, priced))
    merging.run()
    return useful(graph, [p.candidate for p in priced], [i for i in merging.order if i != _GONE])


def _cover(graph: PrimitiveGraph, priced: Sequence[Priced]) -> list[int]:
    """Take an operator where there is one, else a single primitive, else anything; the cheapest of a kind."""
    candidates = [p.candidate for p in priced]

    def preference(i: int) -> tuple[float, ...]:
        generated = candidates[i].kind is CandidateKind.GENERATED
        return (generated + (generated and len(candidates[i].body) > 1), priced[i].cost_us)

    members = cover(graph, candidates, preference)
    order, _ = execute(graph, [candidates[i] for i in members], lambda i: (place(candidates[members[i]]),))
    return [members[i] for i in order]


class _Merging:
    """Kernels in an executable order, and the pairs of them that one candidate could replace."""

    def __init__(self, graph: PrimitiveGraph, priced: Sequence[Priced], order: list[int]) -> None:
        self.order = order
        self._graph = graph
        self._priced = priced
        self._goals = set(goals(graph))
        self._cheapest: dict[tuple[int, ...], int] = {}
        for i, p in enumerate(priced):
            best = self._cheapest.get(p.candidate.body)
            if p.candidate.kind is not CandidateKind.REORDER and (best is None or p.cost_us < priced[best].cost_us):
                self._cheapest[p.candidate.body] = i
        self._position = {i: position for position, i in enumerate(order)}
        self._readers: dict[Port, set[int]] = defaultdict(set)
        self._writers: dict[Port, set[int]] = defaultdict(set)
        for i in order:
            self._enter(i)
        self._pairs: list[tuple[float, int, int, int]] = []

    def run(self) -> None:
        """Merge the best pair until none is left."""
        for i in self.order:
            self._offer(i)
        while self._pairs:
            _, first, second, merged = heappop(self._pairs)
            if first in self._position and second in self._position and merged not in self._position:
                self._merge(first, second, merged)

    def _enter(self, i: int) -> None:
        for port in self._priced[i].candidate.reads:
            self._readers[port].add(i)
        for port in self._priced[i].candidate.writes:
            self._writers[port].add(i)

    def _leave(self, i: int) -> None:
        for port in self._priced[i].candidate.reads:
            self._readers[port].discard(i)
        for port in self._priced[i].candidate.writes:
            self._writers[port].discard(i)

    def _offer(self, i: int) -> None:
        """Queue the pairs of `i` that one candidate replaces at a lower cost."""
        mine = self._priced[i]
        for other in sorted(set(self._neighbours(i))):
            theirs = self._priced[other]
            body = tuple(sorted({*mine.candidate.body, *theirs.candidate.body}))
            merged = self._cheapest.get(body)
            if merged is None:
                continue
            saving = mine.cost_us + theirs.cost_us - self._priced[merged].cost_us
            if saving > 0:
                first, second = sorted((i, other), key=self._position.__getitem__)
                heappush(self._pairs, (-saving, first, second, merged))

    def _neighbours(self, i: int) -> Iterator[int]:
        candidate = self._priced[i].candidate
        for port in candidate.writes:
            yield from self._nearest(port, i)
        for port in candidate.reads:
            yield from self._writers[port] - {i}
            yield from self._nearest(port, i)

    def _nearest(self, port: Port, i: int) -> list[int]:
        at = self._position[i]
        return sorted(self._readers[port] - {i}, key=lambda r: (abs(self._position[r] - at), r))[:_REACH]

    def _merge(self, first: int, second: int, merged: int) -> None:
        """Replace two kernels by one, if everything that anyone needs is still there and in time."""
        low, high = sorted((self._position[first], self._position[second]))
        first, second = self.order[low], self.order[high]
        between = [i for i in self.order[low + 1 : high] if i != _GONE]
        # What the later kernel depends on runs before the merged one, everything else in between after it.
        before = self._ancestors(between, second)
        if not self._fits(first, second, merged, before):
            return
        moved = [*(i for i in between if i in before), merged, *(i for i in between if i not in before)]
        self.order[low : high + 1] = moved + [_GONE] * (high + 1 - low - len(moved))
        for i in (first, second):
            self._leave(i)
            del self._position[i]
        self._enter(merged)
        self._position.update((i, low + offset) for offset, i in enumerate(moved))
        self._offer(merged)

    def _fits(self, first: int, second: int, merged: int, before: set[int]) -> bool:
        pair = {first, second}
        candidate = self._priced[merged].candidate
        mine = {p for i in pair for p in self._priced[i].candidate.writes}
        needed = {p for p in mine if p in self._goals or self._readers[p] - pair}
        if not needed.issubset(candidate.writes):
            return False
        if any(not mine.isdisjoint(self._priced[i].candidate.reads) for i in before):
            return False
        low = self._position[first]
        return all(
            is_given(self._graph, port)
            or any(w in before or self._position[w] < low for w in self._writers[port] - pair)
            for port in candidate.reads
        )

    def _ancestors(self, between: Sequence[int], last: int) -> set[int]:
        """Which of the kernels in `between`, which are in order, `last` depends on."""
        wanted = set(self._priced[last].candidate.reads)
        found: set[int] = set()
        for i in reversed(between):
            if not wanted.isdisjoint(self._priced[i].candidate.writes):
                found.add(i)
                wanted.update(self._priced[i].candidate.reads)
        return found
