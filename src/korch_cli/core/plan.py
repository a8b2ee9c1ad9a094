"""What the solver decides."""

from __future__ import annotations

from dataclasses import dataclass

from korch_cli.core.kernel import Candidate


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
        bound_us: no plan over the same candidates and costs is cheaper than this.
        status: the solver's word: "optimal" or "feasible".
    """

    kernels: tuple[Priced, ...]
    cost_us: float
    bound_us: float
    status: str

    @property
    def gap(self) -> float:
        """How far above the bound the plan may be, as a share of its cost."""
        return max(0.0, 1.0 - self.bound_us / self.cost_us) if self.cost_us > 0 else 0.0
