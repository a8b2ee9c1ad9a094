"""Lazy profiling: a kernel is measured only when a plan wants it.

A kernel that was never measured enters the program with a price that it is expected to beat rarely: its lower bound,
times what kernels of about its size took over theirs, at some quantile. The plan's unmeasured kernels are measured, and
the program is solved again, until it wants nothing new. The quantile then falls: the first passes find a good plan with
few measurements, the last one, at quantile zero, uses the bounds themselves and so proves how good the plan is.

The first passes follow the relaxation, which takes a moment where only prices have changed; the program is solved where
that has nothing new to say. A round that would measure less than compilers can work on takes along what the next rounds
would want, if the kernels that are wanted now came out no better than others did.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from korch_cli.core.errors import KorchError
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate, CandidateKind
from korch_cli.core.plan import Plan, Priced
from korch_cli.solve.expectation import Expectation
from korch_cli.solve.program import solve
from korch_cli.solve.prospect import Prospect

Measure = Callable[[Sequence[str]], Mapping[str, float]]
"""From digests of kernels to their times in microseconds, infinite for one that cannot be used."""

_QUANTILES = (0.5, 0.2)
_DISAPPOINTING = 0.8
"""The quantile at which the kernels of a round are expected to turn out, for the question what else is wanted then."""
_ROUND = 4
"""Kernels from which on a round is worth its start."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A plan of measured kernels.

    Attributes:
        plan: over the vendor's kernels and the measured ones; its `bound_us` holds for all candidates, measured or not.
        vendor_us: cost of the best plan of the vendor's kernels alone.
        rounds: how often kernels were measured.
        solve_seconds: time in the solver.
    """

    plan: Plan
    vendor_us: float
    rounds: int
    solve_seconds: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a search could find, before anything is measured.

    Attributes:
        vendor_us: cost of the best plan of the vendor's kernels alone.
        bound_us: no plan costs less.
        hopeless: whether this is so near that a search would measure nothing.
    """

    vendor_us: float
    bound_us: float
    hopeless: bool


def outlook(
    graph: PrimitiveGraph,
    vendor: Sequence[Priced],
    generated: Sequence[Candidate],
    bounds: Mapping[str, float],
    gap: float,
    *,
    solver_time_s: float,
) -> Outlook:
    """Return what `orchestrate` starts from where no kernel was measured before.

    Raises:
        KorchError: no set of kernels computes some output.
    """
    search = _Search(graph, vendor, generated, bounds, {}, solver_time_s)
    try:
        vendor_us = search.plan_of_vendor().cost_us
    except KorchError:  # The vendor alone cannot compute everything.
        return Outlook(math.inf, search.plan(0.0, None).bound_us, False)
    bound_us = search.plan(0.0, None).bound_us
    return Outlook(vendor_us, min(bound_us, vendor_us), vendor_us - bound_us <= gap * vendor_us)


def orchestrate(
    graph: PrimitiveGraph,
    vendor: Sequence[Priced],
    generated: Sequence[Candidate],
    bounds: Mapping[str, float],
    known: Mapping[str, float],
    measure: Measure,
    *,
    gap: float,
    deadline: float,
    solver_time_s: float,
) -> SearchResult:
    """Return the best plan over the vendor's kernels and the generated ones.

    Args:
        graph: what to compute.
        vendor: kernels that have a price already.
        generated: kernels to measure where a plan wants them.
        bounds: for each digest of `generated`, a time in microseconds that the kernel cannot beat.
        known: for some of the digests, a time that was measured before.
        measure: measures kernels; called with digests that have no time yet.
        gap: stop when the plan is proven to be within this share of the optimum.
        deadline: on the clock of `time.monotonic`; no kernel is measured later.
        solver_time_s: limit of one solution of the program.

    Raises:
        KorchError: no set of kernels computes some output.
    """
    search = _Search(graph, vendor, generated, bounds, dict(known), solver_time_s)
    start = search.plan_of_measured()
    plan = search.plan(0.0, start)
    # Where the bounds promise no more than the gap, or kernels were measured before, only the proof is left.
    hopeless = start.cost_us - plan.bound_us <= gap * start.cost_us
    for quantile in () if hopeless or known else _QUANTILES:
        while time.monotonic() < deadline:
            wanted = search.wanted(quantile)
            if not wanted:
                plan = search.plan(quantile, plan)
                wanted = search.wanted(quantile, search.unmeasured(p.candidate for p in plan.kernels))
            if not wanted:
                break
            search.measure(wanted, measure)
    while True:
        best = search.plan_of_measured()
        plan = search.plan(0.0, best)
        wanted = search.unmeasured(p.candidate for p in plan.kernels)
        if not wanted or time.monotonic() >= deadline or best.cost_us - plan.bound_us <= gap * best.cost_us:
            break
        search.measure(search.wanted(0.0, wanted), measure)
    bound_us = min(plan.bound_us, best.cost_us)
    vendor_us = search.plan_of_vendor().cost_us
    return SearchResult(replace(best, bound_us=bound_us), vendor_us, search.rounds, search.seconds)


class _Search:
    """What is known so far."""

    def __init__(
        self,
        graph: PrimitiveGraph,
        vendor: Sequence[Priced],
        generated: Sequence[Candidate],
        bounds: Mapping[str, float],
        times: Mapping[str, float],
        solver_time_s: float,
    ) -> None:
        self._graph, self._vendor, self._generated, self._bounds = graph, vendor, generated, bounds
        self._times = dict(times)
        self._solver_time_s = solver_time_s
        self._best: Plan | None = None
        self._at_bounds: Plan | None = None
        self._prospect: Prospect | None = None
        self.rounds = 0
        self.seconds = 0.0

    def measure(self, digests: Sequence[str], measure: Measure) -> None:
        """Have kernels measured, and remember their times."""
        self._times.update(measure(digests))
        self._best = self._at_bounds = None
        self.rounds += 1

    def plan_of_vendor(self) -> Plan:
        """The best plan over the vendor's kernels alone."""
        return self._solve(self._vendor, None)

    def plan_of_measured(self) -> Plan:
        """The best plan over what has a measured price; it depends on the prices alone, not on how they came about."""
        if self._best is None:
            measured = [Priced(c, self._times[c.digest]) for c in self._generated if c.digest in self._times]
            self._best = self._solve([*self._vendor, *measured], None)
        return self._best

    def plan(self, quantile: float, hint: Plan | None) -> Plan:
        """The best plan where what is unmeasured costs what it may be expected to; at quantile zero, with a bound."""
        if quantile == 0.0 and self._at_bounds is not None:
            return self._at_bounds
        prices = self._expected(quantile)
        priced = [Priced(c, self._times.get(c.digest, prices[c.digest])) for c in self._generated]
        plan = self._solve([*self._vendor, *priced], hint)
        if quantile == 0.0:
            self._at_bounds = plan
        return plan

    def wanted(self, quantile: float, first: Iterable[str] = ()) -> list[str]:
        """The digests that a round of measurements is for: `first`, and what a plan near the relaxation wants.

        More is added while there are only a few: what would be wanted if those so far came out slow.
        """
        prices = self._expected(quantile)
        slow = self._expected(_DISAPPOINTING)
        found = dict.fromkeys(first)
        prices |= {d: slow[d] for d in found}
        while len(found) < _ROUND:
            new = [d for d in self.unmeasured(map(self._candidate, self._near(prices))) if d not in found]
            if not new:
                break
            found.update(dict.fromkeys(new))
            prices |= {d: slow[d] for d in new}
        return list(found)

    def unmeasured(self, candidates: Iterable[Candidate]) -> list[str]:
        """The digests of the generated ones that have no time yet, each once."""
        kernels = (c.digest for c in candidates if c.kind is CandidateKind.GENERATED)
        return [d for d in dict.fromkeys(kernels) if d not in self._times]

    def _expected(self, quantile: float) -> dict[str, float]:
        likely = Expectation(self._bounds, self._times)
        return {d: likely.time_us(bound, quantile) for d, bound in self._bounds.items()}

    def _candidate(self, place: int) -> Candidate:
        """What stands at a position of the relaxation: the vendor's kernels come first."""
        vendor = len(self._vendor)
        return self._vendor[place].candidate if place < vendor else self._generated[place - vendor]

    def _near(self, prices: Mapping[str, float]) -> list[int]:
        """A plan near the relaxation where the unmeasured ones have these prices, in microseconds by digest."""
        start = time.monotonic()
        if self._prospect is None:
            self._prospect = Prospect(self._graph, [*(p.candidate for p in self._vendor), *self._generated])
        costs = [p.cost_us for p in self._vendor]
        costs += [self._times.get(c.digest, prices[c.digest]) for c in self._generated]
        try:
            return self._prospect.plan(costs, start + self._solver_time_s)
        finally:
            self.seconds += time.monotonic() - start

    def _solve(self, priced: Sequence[Priced], hint: Plan | None) -> Plan:
        start = time.monotonic()
        try:
            return solve(self._graph, priced, time_limit_s=self._solver_time_s, hint=hint)
        finally:
            self.seconds += time.monotonic() - start
