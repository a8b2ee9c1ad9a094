"""The program over some of its candidates, in whole numbers, by CP-SAT."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from korch_cli.core.errors import KorchError
from korch_cli.core.kernel import Port
from korch_cli.solve.formulation import ALWAYS, Cap, Formulation
from korch_cli.solve.interrupt import beside

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search found.

    Attributes:
        chosen: kernels of the best solution, as positions in the candidates.
        loops: ports that some of them wait for in vain; none if they can be ordered.
        bound: of the program over the candidates that it was given, in units.
        optimal: whether the solution is known to be optimal for this program.
    """

    chosen: list[int]
    loops: list[list[Port]]
    bound: int
    optimal: bool


def search(
    formulation: Formulation, kept: Sequence[int], start: Sequence[int], time_limit_s: float, tolerance: float = 0.0
) -> Outcome:
    """Look for the best of the plans over the candidates `kept` and `start`, beginning with the plan `start`.

    Ends when it is proven, or to cost at most the share `tolerance` of itself too much, when a solution is found whose
    kernels cannot be ordered, or when time is up.

    Raises:
        KorchError: the solver fails.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    runs = {i: model.new_bool_var("") for i in sorted({*kept, *start})}
    columns = {c: model.new_bool_var("") for c in formulation.ports_for(runs)} | runs
    for row in formulation.rows:
        literals = [columns[c] for c in row.one_of if c in columns]
        if row.given == ALWAYS:
            model.add_bool_or(literals)
        elif row.given in columns:
            model.add_bool_or([*literals, columns[row.given].negated()])
    for cap in formulation.caps:
        model.add(cp_model.LinearExpr.weighted_sum(*_weighed(cap, runs)) <= cap.most)
    model.minimize(cp_model.LinearExpr.weighted_sum(list(runs.values()), [formulation.costs[i] for i in runs]))
    hinted = formulation.columns_of(start)
    for c, column in columns.items():
        model.add_hint(column, c in hinted)

    class Watch(cp_model.CpSolverSolutionCallback):
        """Stops the search at the first solution whose kernels cannot be ordered."""

        def on_solution_callback(self) -> None:
            if formulation.loops([i for i, run in runs.items() if self.boolean_value(run)]):
                self.stop_search()

    solver = _solver(time_limit_s, tolerance)
    watch = Watch()
    status = beside(lambda: solver.solve(model, watch), solver.stop_search)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
        raise KorchError(f"the solver says {solver.status_name(status)} to a program that has a solution")
    # Every cost is whole, so the bound may be rounded up, past the solver's floating-point noise.
    bound = max(0, math.ceil(solver.best_objective_bound - 1e-3))
    if status == cp_model.UNKNOWN:
        return Outcome(list(start), [], bound, False)
    chosen = [i for i, run in runs.items() if solver.boolean_value(run)]
    return Outcome(chosen, formulation.loops(chosen), bound, status == cp_model.OPTIMAL)


def _weighed(cap: Cap, runs: Mapping[int, cp_model.IntVar]) -> tuple[list[cp_model.IntVar], list[int]]:
    kept = [(runs[i], weight) for i, weight in cap.weights if i in runs]
    return [run for run, _ in kept], [weight for _, weight in kept]


def _solver(time_limit_s: float, tolerance: float) -> cp_model.CpSolver:
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    # The relaxation decides everything here, and only this setting of one worker solves it.
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 2
    solver.parameters.random_seed = 0
    solver.parameters.catch_sigint_signal = False
    solver.parameters.relative_gap_limit = tolerance
    solver.parameters.max_time_in_seconds = max(0.01, time_limit_s)
    return solver
