"""Good plans, without a proof, while prices change: by the relaxation over all kernels, measured or not.

What can be computed from what does not depend on prices, so the rows are made once, and each solution starts from the
last one. Kernels that turn out to be of no use are held at zero: the rows stay true without them. A plan then follows
the solution, preferring what runs in it for the larger part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate
from korch_cli.core.plan import Priced
from korch_cli.solve.execution import cover, useful
from korch_cli.solve.formulation import UNITS_PER_US, Formulation
from korch_cli.solve.program import relax, runnable
from korch_cli.solve.relaxation import Relaxation


class Prospect:
    """Plans over one set of candidates, at one list of prices after another."""

    def __init__(self, graph: PrimitiveGraph, candidates: Sequence[Candidate]) -> None:
        """Take candidates in any order. Raises KorchError where they do not compute some output."""
        free = [Priced(candidate, 0.0) for candidate in candidates]
        position = {id(priced): i for i, priced in enumerate(free)}
        usable = runnable(graph, free)
        self._places = [position[id(priced)] for priced in usable]
        self._formulation = Formulation(graph, usable)
        self._relaxation = Relaxation(self._formulation)

    def plan(self, prices_us: Sequence[float], deadline: float) -> list[int]:
        """Return the positions of a good plan at these prices, nothing if there was no time for one.

        Args:
            prices_us: for each candidate; infinite where it cannot be used.
            deadline: on the clock of `time.monotonic`.

        Raises:
            KorchError: what can be used does not compute some output.
        """
        prices = [prices_us[i] for i in self._places]
        self._relaxation.reprice([price * UNITS_PER_US for price in prices])
        relaxed = relax(self._formulation, self._relaxation, deadline)
        if not relaxed.support():
            return []
        graph, candidates = self._formulation.graph, self._formulation.candidates
        usable = [i for i, price in enumerate(prices) if math.isfinite(price)]
        of_use = [candidates[i] for i in usable]

        def preference(at: int) -> tuple[float, ...]:
            i = usable[at]
            return (-relaxed.shares[i], len(candidates[i].body), prices[i])

        return [self._places[usable[at]] for at in useful(graph, of_use, cover(graph, of_use, preference))]
