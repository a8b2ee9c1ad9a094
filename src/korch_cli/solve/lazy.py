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
from dataclasses import dataclass

from korch_cli.core.errors import KorchError
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate
from korch_cli.core.plan import Plan, Priced, bounded
from korch_cli.solve.program import solve

Measure = Callable[[Sequence[str]], Mapping[str, float]]
"""From digests of kernels to their times in microseconds, infinite for one that cannot be used."""

_QUANTILES = (0.5, 0.2, 0.0)
_NEIGHBOURS = 16
_FIRST_RATIO = 2.0
"""Measured time over the bound that is expected before anything was measured."""


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
    hint: Plan | None = search.plan(0.0, start)
    # Where the bounds promise no more than the gap, or kernels were measured before, only the proof is left.
    hopeless = hint is not None and start.cost_us - hint.bound_us <= gap * start.cost_us
    for quantile in () if hopeless or known else _QUANTILES[:-1]:
        while time.monotonic() < deadline:
            hint = search.plan(quantile, hint)
            wanted = search.unmeasured(hint)
            if not wanted:
                break
            search.measure(wanted, measure)
    while True:
        best = search.plan_of_measured()
        plan = search.plan(0.0, best)
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
    solver_time_s: float
    rounds: int = 0
    seconds: float = 0.0

    def measure(self, digests: Sequence[str], measure: Measure) -> None:
        """Have kernels measured, and remember their times."""
        self.times.update(measure(digests))
        self.rounds += 1

    def plan_of_vendor(self) -> Plan:
        """The best plan over the vendor's kernels alone."""
        return self._solve(self.vendor, None)

    def plan_of_measured(self) -> Plan:
        """The best plan over what has a measured price; it depends on the prices alone, not on how they came about."""
        measured = [Priced(c, self.times[c.digest]) for c in self.generated if c.digest in self.times]
        return self._solve([*self.vendor, *measured], None)

    def plan(self, quantile: float, hint: Plan | None) -> Plan:
        """The best plan where what is unmeasured costs what it may be expected to."""
        expected = self._expectation(quantile)
        priced = [
            Priced(c, self.times[c.digest] if c.digest in self.times else expected(self.bounds[c.digest]))
            for c in self.generated
        ]
        return self._solve([*self.vendor, *priced], hint)

    def unmeasured(self, plan: Plan) -> list[str]:
        """The digests of the plan that have no time yet."""
        vendor = {p.candidate.digest for p in self.vendor}
        digests = dict.fromkeys(p.candidate.digest for p in plan.kernels)
        return [d for d in digests if d not in self.times and d not in vendor]

    def _solve(self, priced: Sequence[Priced], hint: Plan | None) -> Plan:
        start = time.monotonic()
        try:
            return solve(self.graph, priced, time_limit_s=self.solver_time_s, hint=hint)
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
