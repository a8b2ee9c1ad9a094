"""The program without the demand that its columns are whole: a linear program, solved in a moment.

Whatever the solver says is checked: from any multipliers y >= 0 of the rows A x >= b follows, for columns between 0
and 1 with costs c and reduced costs d = c - A'y, that no solution costs less than b'y + sum of min(0, d_j). Nor does
one that runs candidate j cost less than this bound and max(0, d_j) together. Caps are rows of the other sense, whose
multipliers are not positive. So the bound does not depend on the
solver's tolerances, and candidates that no plan better than a known one can run are left out for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from korch_cli.solve.formulation import ALWAYS, Formulation
from korch_cli.solve.interrupt import beside

_NOISE = 1e-3
"""Units that sums of doubles may be off by; costs are whole, so that a bound may be rounded up past it."""


@dataclass(frozen=True, slots=True)
class Relaxed:
    """A solution of the relaxation.

    Attributes:
        shares: of each candidate, how much of it runs.
        bound: no plan costs less, in units.
        excess: for each candidate, how far above `bound` a plan with it lies at least, in units.
    """

    shares: list[float]
    bound: float
    excess: list[float]

    @property
    def whole_bound(self) -> int:
        """The bound, in whole units."""
        return max(0, int(np.ceil(self.bound - _NOISE)))

    def support(self) -> list[int]:
        """Return the candidates that run, wholly or in part."""
        return [i for i, share in enumerate(self.shares) if share > 1e-6]

    def within(self, units: float) -> list[int]:
        """Return the candidates that a plan which costs at most `units` can run."""
        room = units - self.bound + _NOISE
        return [i for i, excess in enumerate(self.excess) if excess <= room]


class Relaxation:
    """The linear program; takes over the rows that its formulation gained since the last solution."""

    def __init__(self, formulation: Formulation) -> None:
        from ortools.linear_solver import pywraplp

        self._formulation = formulation
        self._solver = pywraplp.Solver.CreateSolver("GLOP")
        self._columns = [self._solver.NumVar(0, 1, "") for _ in range(formulation.columns)]
        objective = self._solver.Objective()
        for column, cost in zip(self._columns, formulation.costs, strict=False):
            objective.SetCoefficient(column, cost)
        self._rows: list[pywraplp.Constraint] = []
        self._caps = []
        for cap in formulation.caps:
            self._caps.append(self._solver.Constraint(-self._solver.infinity(), cap.most, ""))
            for i, weight in cap.weights:
                self._caps[-1].SetCoefficient(self._columns[i], weight)

    def solve(self, time_limit_s: float) -> Relaxed:
        """Solve the program, from where the last solution ended; a solution that is cut off says nothing."""
        from ortools.linear_solver import pywraplp

        self._add_rows()
        self._solver.SetTimeLimit(max(1, int(time_limit_s * 1e3)))
        status = beside(self._solver.Solve, self._solver.InterruptSolve)
        if status not in (pywraplp.Solver.OPTIMAL, pywraplp.Solver.FEASIBLE):
            nothing = [0.0] * len(self._formulation.candidates)
            return Relaxed(nothing, 0.0, nothing)
        multipliers = ([row.dual_value() for row in rows] for rows in (self._rows, self._caps))
        bound, reduced = self._bound(*multipliers)
        runs = len(self._formulation.candidates)
        shares = [column.solution_value() for column in self._columns[:runs]]
        return Relaxed(shares, bound, [max(0.0, cost) for cost in reduced[:runs]])

    def _add_rows(self) -> None:
        infinity = self._solver.infinity()
        for row in self._formulation.rows[len(self._rows) :]:
            constraint = self._solver.Constraint(1 if row.given == ALWAYS else 0, infinity, "")
            for column in row.one_of:
                constraint.SetCoefficient(self._columns[column], 1)
            if row.given != ALWAYS:
                constraint.SetCoefficient(self._columns[row.given], -1)
            self._rows.append(constraint)

    def _bound(self, multipliers: list[float], of_caps: Sequence[float] = ()) -> tuple[float, list[float]]:
        """Return the bound that the multipliers prove, and the reduced costs."""
        reduced = [*map(float, self._formulation.costs)]
        reduced += [0.0] * (self._formulation.columns - len(reduced))
        bound = 0.0
        for row, multiplier in zip(self._formulation.rows, multipliers, strict=True):
            if multiplier > 0.0:
                for column in row.one_of:
                    reduced[column] -= multiplier
                if row.given == ALWAYS:
                    bound += multiplier
                else:
                    reduced[row.given] += multiplier
        for cap, multiplier in zip(self._formulation.caps, of_caps, strict=True):
            if multiplier < 0.0:
                bound += multiplier * cap.most
                for i, weight in cap.weights:
                    reduced[i] -= multiplier * weight
        return bound + sum(min(0.0, cost) for cost in reduced), reduced
