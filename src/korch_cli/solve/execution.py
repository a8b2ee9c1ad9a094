"""In which order kernels can run, and which of them a plan can do without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

from korch_cli.core.errors import KorchError
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Arrangement, Candidate, Port

Key = Callable[[int], tuple[float, ...]]


def is_given(graph: PrimitiveGraph, port: Port) -> bool:
    """Whether `port` is in memory before any kernel runs."""
    return port.arrangement == Arrangement.PLAIN.value and graph.values[port.value].is_source


def goals(graph: PrimitiveGraph) -> tuple[Port, ...]:
    """Return the ports that a plan has to fill: the outputs that are computed, plain, each once."""
    return tuple(Port(v) for v in dict.fromkeys(graph.outputs) if not graph.values[v].is_source)


def execute(graph: PrimitiveGraph, candidates: Sequence[Candidate], key: Key) -> tuple[list[int], set[Port]]:
    """Run each candidate as soon as all it reads is there; of those that can run, the one with the smallest key first.

    Returns:
        Positions in `candidates` in the order of running, without those that can never run, and every port written.
    """
    readers: dict[Port, list[int]] = {}
    missing = [0] * len(candidates)
    for i, candidate in enumerate(candidates):
        for port in set(candidate.reads):
            if not is_given(graph, port):
                readers.setdefault(port, []).append(i)
                missing[i] += 1
    ready = [(key(i), i) for i, count in enumerate(missing) if count == 0]
    heapify(ready)
    order: list[int] = []
    filled: set[Port] = set()
    while ready:
        _, i = heappop(ready)
        order.append(i)
        for port in candidates[i].writes:
            if port in filled:
                continue
            filled.add(port)
            for reader in readers.get(port, ()):
                missing[reader] -= 1
                if missing[reader] == 0:
                    heappush(ready, (key(reader), reader))
    return order, filled


def cover(graph: PrimitiveGraph, candidates: Sequence[Candidate], key: Key) -> list[int]:
    """Fill each port that the outputs need with the candidate that is the first to write it in the order of `execute`.

    Returns:
        Positions in `candidates`, ascending. They can be ordered: each reads what ran before it.

    Raises:
        KorchError: nothing computes some output.
    """
    order, _ = execute(graph, candidates, key)
    writer: dict[Port, int] = {}
    for i in order:
        for port in candidates[i].writes:
            writer.setdefault(port, i)
    todo = list(goals(graph))
    chosen: set[int] = set()
    while todo:
        port = todo.pop()
        if port not in writer:
            raise KorchError("no kernel can compute an output", where=graph.values[port.value].name)
        if writer[port] not in chosen:
            chosen.add(writer[port])
            todo += [p for p in candidates[writer[port]].reads if not is_given(graph, p)]
    return sorted(chosen)


def place(candidate: Candidate) -> int:
    """Return where a candidate belongs in a stable order: its smallest primitive, or what it converts."""
    return candidate.body[0] if candidate.body else candidate.writes[0].value


def useful(graph: PrimitiveGraph, candidates: Sequence[Candidate], chosen: Sequence[int]) -> list[int]:
    """Return `chosen`, positions in `candidates`, in a stable order, without those that a plan can do without."""

    def ordered(members: Sequence[int]) -> list[int]:
        order, _ = execute(graph, [candidates[i] for i in members], lambda i: (place(candidates[members[i]]), i))
        return [members[i] for i in order]

    return ordered(_needed(graph, candidates, ordered(chosen)))


def _needed(graph: PrimitiveGraph, candidates: Sequence[Candidate], order: Sequence[int]) -> list[int]:
    """Leave out, in an executable order, what only writes what is there already, and then what nothing needs."""
    helpful: list[int] = []
    filled: set[Port] = set()
    for i in order:
        if not filled.issuperset(candidates[i].writes):
            helpful.append(i)
            filled.update(candidates[i].writes)
    needed = set(goals(graph))
    kept: list[int] = []
    for i in reversed(helpful):
        if not needed.isdisjoint(candidates[i].writes):
            kept.append(i)
            needed.difference_update(candidates[i].writes)
            needed.update(candidates[i].reads)
    return kept[::-1]
