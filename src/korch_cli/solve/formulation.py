"""The integer program over the whole graph, after section 4.2 of the paper, without its limits.

    minimise    sum of cost_k u_k
    m_p = 1                                   for every output
    u_k <= m_p                                for every port p that kernel k reads
    m_p <= sum of u_k over k that write p and do not read it
    sum of u_k over K(v) >= 1                 for every value that all plans touch (coverage.py)
    m_p <= sum of u_k over k that write into L and read nothing of L      for every p in L, added for a loop L (below)
    sum of u_k over a set that separation.py finds >= 1
    sum of w_k u_k <= w                       for every plan that the solution has to differ from (`Cap`)

u_k says that kernel k runs, m_p that port p (a value in an arrangement) is in memory. Kernels with several outputs can
each wait for the other, which nothing in the first rows forbids. When a solution holds kernels that cannot be ordered,
let L be the ports that a smallest set of them waits for and writes itself. In an executable plan, whichever kernel is
the first to write into L cannot have read from L, so the last row holds for every plan, and it cuts this solution off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate, Port
from korch_cli.core.plan import UNITS_PER_US, Priced
from korch_cli.solve.coverage import coverage
from korch_cli.solve.execution import execute, goals, is_given
from korch_cli.solve.separation import Separation

ALWAYS = -1


@dataclass(frozen=True, slots=True)
class Row:
    """If column `given` is 1, or in any case where it is ALWAYS, then so is one of the columns `one_of`."""

    one_of: tuple[int, ...]
    given: int = ALWAYS


@dataclass(frozen=True, slots=True)
class Cap:
    """The weights of those of some candidates that run add up to no more than `most`; all weights are positive."""

    weights: tuple[tuple[int, int], ...]
    """Positions of candidates, each with its weight."""
    most: int

    def admits(self, chosen: Iterable[int]) -> bool:
        """Whether the candidates `chosen` can run together."""
        weights = dict(self.weights)
        return sum(weights.get(i, 0) for i in set(chosen)) <= self.most


class Lessons:
    """Rows that separation.py found in one program, for later ones with other prices.

    They follow from what candidates read and write alone, and so hold where some candidates are missing too. They do
    not hold where there are others: all programs that share lessons have to take their candidates from one list, and
    none may have candidates that an earlier one had not.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[int, ...], tuple[Candidate, ...]] = {}

    def add(self, rows: Iterable[tuple[Candidate, ...]]) -> None:
        """Remember rows: candidates of which every plan runs one."""
        self._rows |= {tuple(map(id, row)): row for row in rows}

    def rows(self, candidates: Sequence[Candidate]) -> Iterator[tuple[int, ...]]:
        """Yield the rows for these candidates, as positions."""
        position = {id(candidate): i for i, candidate in enumerate(candidates)}
        for row in self._rows.values():
            yield tuple(position[id(candidate)] for candidate in row if id(candidate) in position)


class Formulation:
    """The program as rows over columns, for any solver.

    Attributes:
        graph: what to compute.
        candidates: of the first columns.
        costs: of the candidates, in units; all other columns are free.
        columns: how many there are: the candidates, then the ports that matter.
        rows: all rows; `forbid` and `tighten` add to them, and `tighten` to the lessons.
        caps: what the solution must not hold together.
    """

    def __init__(
        self,
        graph: PrimitiveGraph,
        priced: Sequence[Priced],
        caps: Sequence[Cap] = (),
        lessons: Lessons | None = None,
    ) -> None:
        self._lessons = lessons
        self.graph = graph
        self.caps = tuple(caps)
        self.candidates = [p.candidate for p in priced]
        self.costs = [round(p.cost_us * UNITS_PER_US) for p in priced]
        self._writers: dict[Port, list[int]] = {}
        self._readers: dict[Port, list[int]] = {}
        for i, candidate in enumerate(self.candidates):
            for port in set(candidate.writes).difference(candidate.reads):
                self._writers.setdefault(port, []).append(i)
            for port in set(candidate.reads):
                if not is_given(graph, port):
                    self._readers.setdefault(port, []).append(i)
        needed = sorted({*self._readers, *goals(graph)})
        self._column = {port: len(priced) + at for at, port in enumerate(needed)}
        self.columns = len(priced) + len(needed)
        self._separation = Separation(self._writers, self._readers)
        learned = () if lessons is None else lessons.rows(self.candidates)
        self.rows = [Row(row) for row in dict.fromkeys([*coverage(graph, self.candidates), *learned])]
        self.rows += [Row((self._column[port],)) for port in goals(graph)]
        for port, column in self._column.items():
            self.rows.append(Row(tuple(self._writers[port]), column))
            self.rows += [Row((column,), i) for i in self._readers.get(port, ())]

    def columns_of(self, chosen: Iterable[int]) -> set[int]:
        """Return the columns that are 1 where the candidates `chosen` run."""
        found = set(chosen)
        written = {port for i in found for port in self.candidates[i].writes}
        return found | {self._column[port] for port in written if port in self._column}

    def ports_for(self, members: Iterable[int]) -> list[int]:
        """Return the columns of the ports that matter where only the candidates `members` can run."""
        read = {port for i in members for port in self.candidates[i].reads if port in self._column}
        return sorted(self._column[port] for port in read.union(goals(self.graph)))

    def loops(self, chosen: Sequence[int]) -> list[list[Port]]:
        """Return the ports that some of `chosen` wait for in vain, by loop; none if these kernels can be ordered."""
        order, filled = execute(self.graph, [self.candidates[i] for i in chosen], lambda i: (i,))
        stuck = sorted(set(chosen) - {chosen[i] for i in order})
        awaited = {
            i: [p for p in self.candidates[i].reads if p not in filled and not is_given(self.graph, p)] for i in stuck
        }
        writers: dict[Port, list[int]] = {}
        for i in stuck:
            for port in self.candidates[i].writes:
                writers.setdefault(port, []).append(i)
        reach = {i: frozenset(_closure(i, awaited, writers)) for i in stuck}
        # The smallest sets of stuck kernels that wait for nothing outside them.
        smallest = {found for found in reach.values() if all(reach[i] == found for i in found)}
        return [sorted({p for i in found for p in awaited[i]}) for found in sorted(smallest, key=min)]

    def tighten(self, shares: Sequence[float]) -> bool:
        """Add rows that every plan keeps to and a solution of the relaxation does not; tell whether there are any."""
        known = [row.one_of for row in self.rows if row.given == ALWAYS and row.one_of[0] < len(self.candidates)]
        found = dict.fromkeys(self._separation.broken(known, shares))
        self.rows += map(Row, found)
        if self._lessons is not None:
            self._lessons.add(tuple(self.candidates[i] for i in row) for row in found)
        return bool(found)

    def forbid(self, loops: Sequence[Sequence[Port]]) -> None:
        """Demand that some kernel enters each loop from outside."""
        for loop in loops:
            entering = sorted({i for p in loop for i in self._writers[p]} - {i for p in loop for i in self._readers[p]})
            self.rows += [Row(tuple(entering), self._column[port]) for port in loop]


def _closure(i: int, awaited: dict[int, list[Port]], writers: dict[Port, list[int]]) -> set[int]:
    """The kernels that `i` waits for, directly or not, and `i`."""
    seen = {i}
    todo = [i]
    while todo:
        for port in awaited[todo.pop()]:
            for j in writers[port]:
                if j not in seen:
                    seen.add(j)
                    todo.append(j)
    return seen
