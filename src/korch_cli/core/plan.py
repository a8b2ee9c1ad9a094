"""What the solver decides."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from korch_cli.core.kernel import Candidate

UNITS_PER_US = 1000
"""The program counts in whole nanoseconds."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A candidate with the cost that the program uses for it, in microseconds."""

    candidate: Candidate
    cost_us: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Kernels in an order in which they can run.

    Attributes:
        kernels: the chosen candidates; each reads only what earlier ones wrote.
        cost_us: sum of their costs.
        bound_us: no plan of all candidates that there were to choose from is cheaper than this, whether their costs
            are known or only bounded; at most `cost_us`, and 0 where nothing is known.
    """

    kernels: tuple[Priced, ...]
    cost_us: float
    bound_us: float

    @property
    def is_proven(self) -> bool:
        """Whether no plan is cheaper."""
        return self.bound_us >= self.cost_us

    @property
    def gap(self) -> float:
        """How far above the bound the plan may be, as a share of its cost; 0 if and only if it is proven."""
        return 0.0 if self.is_proven else 1.0 - self.bound_us / self.cost_us

    @property
    def status(self) -> str:
        """What is proven, in the solvers' words: "optimal", or else "feasible", whatever ended the search."""
        return "optimal" if self.is_proven else "feasible"


def bounded(kernels: Iterable[Priced], bound_us: float = 0.0) -> Plan:
    """Return the plan of some kernels, with a bound that the program found for plans like it.

    The program rounds each cost to a whole unit, so that a bound within a unit for each kernel is as good as equal.
    """
    chosen = tuple(kernels)
    cost_us = math.fsum(p.cost_us for p in chosen)
    bound_us = max(0.0, bound_us)
    is_near = cost_us - bound_us <= max(1, len(chosen)) / UNITS_PER_US
    return Plan(chosen, cost_us, cost_us if is_near else bound_us)
