"""Lazy profiling: a kernel is measured only when a plan wants it.

A kernel that was never measured enters the program with a price that it is expected to beat rarely: its lower bound,
times what kernels of about its size took over theirs, at some quantile. The plan's unmeasured kernels are measured, and
the program is solved again, until it wants nothing new. The quantile then falls: the first passes find a good plan with
few measurements, the last one, at quantile zero, uses the bounds themselves and so proves how good the plan is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from korch_cli.core.errors import KorchError
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate
from korch_cli.core.plan import Plan, Priced, bounded
from korch_cli.solve.formulation import Lessons
from korch_cli.solve.program import solve

Measure = Callable[[Sequence[str]], Mapping[str, float]]
"""From digests of kernels to their times in microseconds, infinite for one that cannot be used."""

_QUANTILES = (0.5, 0.2)
_NEIGHBOURS = 16
_FIRST_RATIO = 2.0
"""Measured time over the bound that is expected before anything was measured."""
_ROUGHLY = 0.05
"""How much too expensive a plan may be at prices that are guesses."""
_SHARE = 0.25
"""Of the time that is left for measuring: what a plan at such prices may take."""
_LEAST_S = 5.0
"""What it may take in any case: a solution that is cut off says nothing."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A plan of measured kernels.

    Attributes:
        plan: over the vendor's kernels and the measured ones; its `bound_us` holds for all candidates, measured or not.
        is_best_measured: whether it is proven to be the best of those over the vendor's and the measured ones alone.
        vendor_us: cost of the best plan of the vendor's kernels alone.
        rounds: how often kernels were measured.
        solve_seconds: time in the solver.
    """

    plan: Plan
    is_best_measured: bool
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
    search = _Search(graph, vendor, generated, bounds, {}, gap, solver_time_s)
    try:
        start = search.plan_of_vendor()
    except KorchError:  # The vendor alone cannot compute everything.
        return Outlook(math.inf, search.proof(None).bound_us, False)
    hopeless = search.is_hopeless(start)
    bound_us = search.proof(start).bound_us
    return Outlook(start.cost_us, min(bound_us, start.cost_us), hopeless)


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
    search = _Search(graph, vendor, generated, bounds, dict(known), gap, solver_time_s, deadline)
    hint = search.plan_of_measured()
    # Where the bounds promise no more than the gap, or kernels were measured before, only the proof is left.
    for quantile in () if known or search.is_hopeless(hint) else _QUANTILES:
        while time.monotonic() < deadline:
            hint = search.guess(quantile, hint)
            wanted = search.unmeasured(hint)
            if not wanted:
                break
            search.measure(wanted, measure)
    while True:
        best = search.plan_of_measured()
        plan = search.proof(best)
        wanted = search.unmeasured(plan)
        if not wanted or time.monotonic() >= deadline or best.cost_us - plan.bound_us <= gap * best.cost_us:
            break
        search.measure(wanted, measure)
    vendor_us = search.plan_of_vendor().cost_us
    whole = bounded(best.kernels, plan.bound_us)
    return SearchResult(whole, best.is_proven, vendor_us, search.rounds, search.seconds)


@dataclass(slots=True)
class _Search:
    """What is known so far."""

    graph: PrimitiveGraph
    vendor: Sequence[Priced]
    generated: Sequence[Candidate]
    bounds: Mapping[str, float]
    times: dict[str, float]
    gap: float
    solver_time_s: float
    deadline: float = -math.inf
    lessons: Lessons = field(default_factory=Lessons)
    rounds: int = 0
    seconds: float = 0.0

    def measure(self, digests: Sequence[str], measure: Measure) -> None:
        """Have kernels measured, and remember their times."""
        self.times.update(measure(digests))
        self.rounds += 1

    def plan_of_vendor(self) -> Plan:
        """The best plan over the vendor's kernels alone."""
        return self._solve(self.vendor)

    def plan_of_measured(self) -> Plan:
        """The best plan over what has a measured price; it depends on the prices alone, not on how they came about."""
        measured = [Priced(c, self.times[c.digest]) for c in self.generated if c.digest in self.times]
        return self._solve([*self.vendor, *measured])

    def is_hopeless(self, start: Plan) -> bool:
        """Whether no plan at all is cheaper than `start` by more than the gap."""
        enough = (1 - self.gap) * start.cost_us
        # Mostly the first plan that comes by tells.
        if self._plan(0.0, start, 1.0).cost_us < enough:
            return False
        return self._plan(0.0, start, 0.0).bound_us >= enough

    def guess(self, quantile: float, hint: Plan) -> Plan:
        """A good plan where what is unmeasured costs what it may be expected to."""
        limit_s = max(_LEAST_S, _SHARE * (self.deadline - time.monotonic()))
        return self._plan(quantile, hint, _ROUGHLY, limit_s)

    def proof(self, best: Plan | None) -> Plan:
        """A plan where what is unmeasured costs its bound, proven to half the gap; not more expensive than `best`."""
        return self._plan(0.0, best, self.gap / 2)

    def _plan(self, quantile: float, hint: Plan | None, tolerance: float, limit_s: float = math.inf) -> Plan:
        expected = self._expectation(quantile)
        priced = [
            Priced(c, self.times[c.digest] if c.digest in self.times else expected(self.bounds[c.digest]))
            for c in self.generated
        ]
        return self._solve([*self.vendor, *priced], hint, tolerance, limit_s, self.lessons)

    def unmeasured(self, plan: Plan) -> list[str]:
        """The digests of the plan that have no time yet; first those that save most, if time is up on the way."""
        vendor = {p.candidate.digest for p in self.vendor}
        digests = dict.fromkeys(p.candidate.digest for p in plan.kernels)
        found = [d for d in digests if d not in self.times and d not in vendor]
        return sorted(found, key=lambda d: self.bounds[d], reverse=True)

    def _solve(
        self,
        priced: Sequence[Priced],
        hint: Plan | None = None,
        tolerance: float = 0.0,
        limit_s: float = math.inf,
        lessons: Lessons | None = None,
    ) -> Plan:
        start = time.monotonic()
        limit_s = min(limit_s, self.solver_time_s)
        try:
            return solve(self.graph, priced, time_limit_s=limit_s, hint=hint, tolerance=tolerance, lessons=lessons)
        finally:
            self.seconds += time.monotonic() - start

    def _expectation(self, quantile: float) -> Callable[[float], float]:
        """From a bound to a price; at quantile zero, the bound itself."""
        if quantile == 0.0:
            return lambda bound: bound
        seen = sorted((self.bounds[d], t / self.bounds[d]) for d, t in self.times.items() if self._is_evidence(d, t))
        if len(seen) < _NEIGHBOURS:
            return lambda bound: bound * _FIRST_RATIO
        logs = [math.log(bound) for bound, _ in seen]

        def expected(bound: float) -> float:
            nearest = sorted(range(len(seen)), key=lambda i: (abs(logs[i] - math.log(bound)), i))[:_NEIGHBOURS]
            ratios = sorted(seen[i][1] for i in nearest)
            return bound * max(1.0, ratios[int(quantile * (len(ratios) - 1))])

        cache: dict[float, float] = {}
        return lambda bound: cache[bound] if bound in cache else cache.setdefault(bound, expected(bound))

    def _is_evidence(self, digest: str, time_us: float) -> bool:
        return math.isfinite(time_us) and self.bounds.get(digest, 0.0) > 0.0
