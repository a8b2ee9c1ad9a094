"""Rows that a solution of the relaxation breaks although every plan keeps to them.

The relaxation lets each of several kernels run for a part, and what they all read be computed for just as small a part.
Take any row that says that one of the kernels K runs, and a set T of ports. Every plan runs a kernel of K that reads no
port of T, or else fills a port of T; the kernel that is the first to write into T has read nothing of T. So one of
these runs in every plan:

    what is in K and reads nothing of T, and what writes into T and reads nothing of T

T grows port by port, from what K reads towards the inputs, as long as less and less of these runs in the solution.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from korch_cli.core.kernel import Port

_LEAST = 0.01
"""How much of a kernel a row must lack to be worth its place."""
_TINY = 1e-6
_STEPS = 24
"""Ports that are put together at most."""


class Separation:
    """Finds broken rows; knows who reads and who writes what."""

    def __init__(self, writers: Mapping[Port, Sequence[int]], readers: Mapping[Port, Sequence[int]]) -> None:
        """Take for each port that is not given the candidates that write it without reading it, and its readers."""
        self._writers = writers
        self._reads: dict[int, set[Port]] = defaultdict(set)
        for port, members in readers.items():
            for i in members:
                self._reads[i].add(port)

    def broken(self, rows: Iterable[Sequence[int]], shares: Sequence[float]) -> Iterator[tuple[int, ...]]:
        """Yield sets of candidates of which every plan runs one, but the solution less.

        Args:
            rows: sets of candidates of which every plan runs one.
            shares: of each candidate, how much of it runs in the solution.
        """
        for row in rows:
            if max(shares[i] for i in row) < 1.0 - _LEAST:
                members, total = self._descend(row, shares)
                if total < 1.0 - _LEAST:
                    yield tuple(sorted(members))

    def _descend(self, row: Iterable[int], shares: Sequence[float]) -> tuple[set[int], float]:
        members, ports = set(row), set[Port]()
        total = sum(shares[i] for i in members)
        best = members, total
        for _ in range(_STEPS):
            steps = (self._with(port, members, ports, shares) for port in self._ahead(members, shares))
            found = min(steps, key=lambda step: step[0], default=None)
            if found is None or found[0] > total + _TINY:
                break
            total, port, members = found
            ports.add(port)
            if total < best[1] - _TINY:
                best = members, total
        return best

    def _ahead(self, members: Iterable[int], shares: Sequence[float]) -> list[Port]:
        """The ports that members which run are waiting for."""
        return sorted({port for i in members if shares[i] > _TINY for port in self._reads[i]})

    def _with(
        self, port: Port, members: set[int], ports: set[Port], shares: Sequence[float]
    ) -> tuple[float, Port, set[int]]:
        """Add a port to the set; return how much runs of the members, the port, and the members."""
        kept = {i for i in members if port not in self._reads[i]}
        kept.update(i for i in self._writers[port] if ports.isdisjoint(self._reads[i]))
        return sum(shares[i] for i in kept), port, kept
