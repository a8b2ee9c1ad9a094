"""The integer program over the whole graph, after section 4.2 of the paper, without its limits.

    minimise    sum of cost_k u_k
    m_p = 1                                   for every output
    u_k <= m_p                                for every port p that kernel k reads
    m_p <= sum of u_k over k that write p and do not read it
    sum of u_k over K(v) >= 1                 for every value that all plans touch (coverage.py)
    m_p <= sum of u_k over k that write into L and read nothing of L      for every p in L, added for a loop L (below)

u_k says that kernel k runs, m_p that port p (a value in an arrangement) is in memory. Kernels with several outputs can
each wait for the other, which nothing in the first rows forbids. When a solution holds kernels that cannot be ordered,
let L be the ports that a smallest set of them waits for and writes itself. In an executable plan, whichever kernel is
the first to write into L cannot have read from L, so the last row holds for every plan, and it cuts this solution off.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from korch_cli.core.errors import KorchError
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate, Port
from korch_cli.core.plan import Plan, Priced
from korch_cli.solve.coverage import coverage
from korch_cli.solve.execution import assemble, cover, execute, goals, is_given
from korch_cli.solve.greedy import greedy

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpSolverSolutionCallback, CpSolverStatus

_UNITS_PER_US = 1000
"""The program counts in whole nanoseconds."""


def solve(graph: PrimitiveGraph, priced: Sequence[Priced], *, time_limit_s: float, hint: Plan | None = None) -> Plan:
    """Return the cheapest plan over `priced`, proven unless the time limit comes first.

    The search starts from `hint` where all its kernels are among `priced`, else from the greedy plan, and never returns
    a worse one. Candidates whose cost is infinite are left out.

    Raises:
        ValueError: a cost is negative or not a number.
        KorchError: no set of candidates computes some output.
    """
    deadline = time.monotonic() + time_limit_s
    if any(math.isnan(p.cost_us) or p.cost_us < 0 for p in priced):
        raise ValueError("a candidate's cost is negative or not a number")
    usable = _runnable(graph, [p for p in priced if math.isfinite(p.cost_us)])
    best = _start(graph, usable, hint)
    program = _Program(graph, usable)
    bound_us = 0.0
    while True:
        found = program.search(best, deadline - time.monotonic())
        bound_us = max(bound_us, found.bound_us)
        plan = (
            _repair(graph, usable, found.chosen) if found.loops else assemble(graph, [usable[i] for i in found.chosen])
        )
        if plan.cost_us < best.cost_us:
            best = plan
        if not found.loops or time.monotonic() >= deadline:
            break
        program.forbid(found.loops)
    status = "optimal" if found.optimal and not found.loops else "feasible"
    return Plan(best.kernels, best.cost_us, min(bound_us, best.cost_us), status)


def _repair(graph: PrimitiveGraph, priced: Sequence[Priced], chosen: Sequence[int]) -> Plan:
    """Return a plan that departs from kernels that cannot be ordered only where they wait for each other."""
    wanted = set(chosen)
    candidates = [p.candidate for p in priced]

    def preference(i: int) -> tuple[float, ...]:
        return (i not in wanted, len(candidates[i].body), priced[i].cost_us)

    return assemble(graph, [priced[i] for i in cover(graph, candidates, preference)])


def _runnable(graph: PrimitiveGraph, priced: list[Priced]) -> list[Priced]:
    """Leave out what some plan can never run, and check that a plan exists."""
    candidates = [p.candidate for p in priced]
    order, filled = execute(graph, candidates, lambda i: (i,))
    for port in goals(graph):
        if port not in filled:
            blocked = _first_missing(graph, candidates, port, filled)
            raise KorchError(
                f"no kernel can compute value %{blocked.value} ({blocked.arrangement})",
                where=graph.values[blocked.value].name,
            )
    return [priced[i] for i in sorted(order)]


def _first_missing(graph: PrimitiveGraph, candidates: Sequence[Candidate], port: Port, filled: set[Port]) -> Port:
    """Walk from a port that nothing can fill to one that no candidate writes, or round a loop."""
    seen: set[Port] = set()
    while port not in seen:
        seen.add(port)
        for candidate in candidates:
            if port in candidate.writes:
                port = next(p for p in candidate.reads if p not in filled and not is_given(graph, p))
                break
    return port


def _start(graph: PrimitiveGraph, usable: list[Priced], hint: Plan | None) -> Plan:
    costs: dict[Candidate, float] = {}
    for p in usable:
        costs[p.candidate] = min(p.cost_us, costs.get(p.candidate, math.inf))
    if hint is not None and all(p.candidate in costs for p in hint.kernels):
        # The costs may have changed since the hint was found.
        plan = assemble(graph, [Priced(p.candidate, costs[p.candidate]) for p in hint.kernels])
        if {port for p in plan.kernels for port in p.candidate.writes}.issuperset(goals(graph)):
            return plan
    return greedy(graph, usable)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a search found.

    Attributes:
        chosen: kernels of the best solution, as positions in the candidates.
        loops: ports that some of them wait for in vain; none if they can be ordered.
        bound_us: of the program so far.
        optimal: whether the solution is known to be optimal for the program so far.
    """

    chosen: list[int]
    loops: list[list[Port]]
    bound_us: float
    optimal: bool


class _Program:
    """The program in the solver's terms."""

    def __init__(self, graph: PrimitiveGraph, priced: Sequence[Priced]) -> None:
        from ortools.sat.python import cp_model

        self._graph = graph
        self._candidates = [p.candidate for p in priced]
        self._model = cp_model.CpModel()
        self._solver = cp_model.CpSolver()
        # The relaxation decides everything here, and only this setting of one worker solves it.
        self._solver.parameters.num_workers = 1
        self._solver.parameters.linearization_level = 2
        self._solver.parameters.random_seed = 0
        self._solver.parameters.catch_sigint_signal = False
        self._runs = [self._model.new_bool_var("") for _ in priced]
        self._writers: dict[Port, list[int]] = {}
        self._readers: dict[Port, list[int]] = {}
        for i, candidate in enumerate(self._candidates):
            for port in set(candidate.writes).difference(candidate.reads):
                self._writers.setdefault(port, []).append(i)
            for port in set(candidate.reads):
                if not is_given(graph, port):
                    self._readers.setdefault(port, []).append(i)
        needed = sorted({*self._readers, *goals(graph)})
        self._filled = {port: self._model.new_bool_var("") for port in needed}
        self._add_rows()
        costs = [round(p.cost_us * _UNITS_PER_US) for p in priced]
        self._model.minimize(cp_model.LinearExpr.weighted_sum(self._runs, costs))

    def search(self, start: Plan, time_limit_s: float) -> _Outcome:
        """Look for the optimum, beginning with `start`, until it is proven, a solution has loops, or time is up."""
        from ortools.sat.python import cp_model

        program = self

        class Watch(cp_model.CpSolverSolutionCallback):
            """Stops the search at the first solution whose kernels cannot be ordered."""

            def on_solution_callback(self) -> None:
                if program._find_loops([i for i, run in enumerate(program._runs) if self.boolean_value(run)]):
                    self.stop_search()

        hinted = self._hint(start)
        self._solver.parameters.max_time_in_seconds = max(0.01, time_limit_s)
        status = self._interruptible(Watch())
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
            raise KorchError(f"the solver says {self._solver.status_name(status)} to a program that has a solution")
        # Every cost is whole, so the bound may be rounded up, past the solver's floating-point noise.
        bound_us = max(0, math.ceil(self._solver.best_objective_bound - 1e-3)) / _UNITS_PER_US
        if status == cp_model.UNKNOWN:
            return _Outcome(hinted, [], bound_us, False)
        chosen = [i for i, run in enumerate(self._runs) if self._solver.boolean_value(run)]
        return _Outcome(chosen, self._find_loops(chosen), bound_us, status == cp_model.OPTIMAL)

    def _interruptible(self, watch: CpSolverSolutionCallback) -> CpSolverStatus:
        """Solve beside the main thread, which Ctrl-C can then reach."""
        with ThreadPoolExecutor(1) as pool:
            solving = pool.submit(self._solver.solve, self._model, watch)
            try:
                return solving.result()
            except KeyboardInterrupt:
                self._solver.stop_search()
                raise

    def forbid(self, loops: Sequence[Sequence[Port]]) -> None:
        """Demand that some kernel enters each loop from outside."""
        for loop in loops:
            entering = sorted({i for p in loop for i in self._writers[p]} - {i for p in loop for i in self._readers[p]})
            for port in loop:
                self._model.add(sum(self._runs[i] for i in entering) >= self._filled[port])

    def _find_loops(self, chosen: Sequence[int]) -> list[list[Port]]:
        """Return the loops among `chosen`, none if these kernels can be ordered."""
        order, filled = execute(self._graph, [self._candidates[i] for i in chosen], lambda i: (i,))
        return self._loops(sorted(set(chosen) - {chosen[i] for i in order}), filled)

    def _loops(self, stuck: Sequence[int], filled: set[Port]) -> list[list[Port]]:
        """For each smallest set of stuck kernels that wait for nothing outside it, the ports they wait for."""
        awaited = {
            i: [p for p in self._candidates[i].reads if p not in filled and not is_given(self._graph, p)] for i in stuck
        }
        writers: dict[Port, list[int]] = {}
        for i in stuck:
            for port in self._candidates[i].writes:
                writers.setdefault(port, []).append(i)
        reach = {i: frozenset(_closure(i, awaited, writers)) for i in stuck}
        smallest = {found for found in reach.values() if all(reach[i] == found for i in found)}
        return [sorted({p for i in found for p in awaited[i]}) for found in sorted(smallest, key=min)]

    def _add_rows(self) -> None:
        for port, filled in self._filled.items():
            self._model.add(sum(self._runs[i] for i in self._writers[port]) >= filled)
            for i in self._readers.get(port, ()):
                self._model.add(self._runs[i] <= filled)
        for port in goals(self._graph):
            self._model.add(self._filled[port] == 1)
        for row in coverage(self._graph, self._candidates):
            self._model.add(sum(self._runs[i] for i in row) >= 1)

    def _hint(self, start: Plan) -> list[int]:
        """Tell the solver to begin with `start`; return its kernels."""
        wanted = {p.candidate for p in start.kernels}
        hinted = [i for i, candidate in enumerate(self._candidates) if candidate in wanted]
        ports = {port for i in hinted for port in self._candidates[i].writes}
        self._model.clear_hints()  # type: ignore[no-untyped-call]
        running = set(hinted)
        for i, run in enumerate(self._runs):
            self._model.add_hint(run, i in running)
        for port, filled in self._filled.items():
            self._model.add_hint(filled, port in ports)
        return hinted


def _closure(i: int, awaited: dict[int, list[Port]], writers: dict[Port, list[int]]) -> Iterable[int]:
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
