"""The cheapest plan, with a proof.

The relaxation of the program (formulation.py) comes first, with rows that its solution breaks (separation.py): then its
bound is nearly tight, and its solution is often whole, so that nothing is left to do. Otherwise it tells how far above
the bound every plan with a given candidate lies. The few candidates near the bound are searched exactly, which improves
the best known plan, and then those up to that plan's cost, which proves it: what was left out costs more. Where that
takes too long, the plan is improved piece by piece (windows.py), and the bound is what the relaxation proved.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from korch_cli.core.errors import KorchError
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.plan import UNITS_PER_US, Plan, Priced, bounded
from korch_cli.solve.exact import search
from korch_cli.solve.execution import cover, execute, goals, is_given, useful
from korch_cli.solve.formulation import Cap, Formulation, Lessons
from korch_cli.solve.greedy import merged
from korch_cli.solve.relaxation import Relaxation, Relaxed
from korch_cli.solve.windows import improve_by_parts

_SHARES = (0.05, 0.3, 1.0)
"""How far from the bound to the best plan's cost the candidates of each exact search reach."""
_RELAXED = 0.5
"""Of the time limit: what the relaxation may take."""
_WORTH = 1e-3
"""How much the bound has to rise, and to lie below the best plan, as a share of it, for more rows to be looked for."""
_WHOLE = 0.75
"""Of the time limit: what the relaxation and the search of the whole graph may take before it is divided."""
_LEFT_OUT = 0.1
"""Of the time of a plan's generated kernels: what another plan leaves out of it at least."""


def solve(
    graph: PrimitiveGraph,
    priced: Sequence[Priced],
    *,
    time_limit_s: float,
    hint: Plan | None = None,
    apart: Sequence[Plan] = (),
    tolerance: float = 0.0,
    lessons: Lessons | None = None,
) -> Plan:
    """Return the cheapest plan over `priced`, proven unless the time limit comes first.

    The search starts from `hint` where all its kernels are among `priced`, else from the greedy plan, and never returns
    a worse one. Candidates whose cost is infinite are left out. From each plan of `apart`, the plan leaves out
    generated kernels that make up at least a tenth of the time of all that are in there. With a `tolerance`, any plan
    will do that is proven to cost at most this share of itself too much. `lessons` of earlier programs help, and gain.

    Raises:
        ValueError: a cost is negative or not a number.
        KorchError: no set of candidates computes some output.
    """
    begin = time.monotonic()
    if any(math.isnan(p.cost_us) or p.cost_us < 0 for p in priced):
        raise ValueError("a candidate's cost is negative or not a number")
    usable = runnable(graph, [p for p in priced if math.isfinite(p.cost_us)])
    caps = [cap for cap in (_cap(usable, plan) for plan in apart) if cap is not None]
    start = _start_apart(graph, usable, caps) if caps else _start(graph, usable, hint)
    formulation = Formulation(graph, usable, caps, lessons)
    best = _Best(formulation, usable, start, tolerance)
    whole, deadline = begin + _WHOLE * time_limit_s, begin + time_limit_s
    relaxed = relax(formulation, Relaxation(formulation), begin + _RELAXED * time_limit_s, best.consider)
    for share in _SHARES:
        _search_near(formulation, best, relaxed, share, whole)
    if not best.is_good:
        _search_parts(formulation, best, relaxed, deadline)
        _search_near(formulation, best, relaxed, 1.0, deadline)
    return best.plan()


class _Best:
    """The best plan so far, and the best bound, in units."""

    def __init__(
        self, formulation: Formulation, priced: Sequence[Priced], start: Sequence[int], tolerance: float
    ) -> None:
        self.tolerance = tolerance
        self._graph = formulation.graph
        self._caps = formulation.caps
        self._priced = priced
        self.candidates = formulation.candidates
        self.chosen: list[int] = []
        self.units = math.inf
        self.bound = 0
        self.offer(start)

    @property
    def is_good(self) -> bool:
        """Whether no plan is better, or none by more than the tolerance."""
        return self.units - self.bound <= self.tolerance * self.units

    def offer(self, chosen: Sequence[int]) -> None:
        """Keep a plan if it computes all outputs and is better; its kernels can be ordered."""
        kept = useful(self._graph, self.candidates, chosen)
        units = sum(round(self._priced[i].cost_us * UNITS_PER_US) for i in kept)
        written = {port for i in kept for port in self.candidates[i].writes}
        if not all(cap.admits(kept) for cap in self._caps):
            return
        if units < self.units and written.issuperset(goals(self._graph)):
            self.chosen, self.units = kept, units

    def repair(self, preference: Sequence[float]) -> None:
        """Offer the plan that prefers candidates of a high preference to others."""
        self.offer(
            cover(
                self._graph,
                self.candidates,
                lambda i: (-preference[i], len(self.candidates[i].body), self._priced[i].cost_us),
            )
        )

    def consider(self, relaxed: Relaxed, ordered: bool) -> bool:
        """Take the bound of a solution of the relaxation, and make a plan of it; tell whether the two are near."""
        self.bound = max(self.bound, relaxed.whole_bound)
        if ordered:
            self.offer(relaxed.support())
        self.repair(relaxed.shares)
        return self.is_good or self.units - self.bound <= _WORTH * self.bound

    def plan(self) -> Plan:
        """Return the plan with what is known of it."""
        return bounded((self._priced[i] for i in self.chosen), self.bound / UNITS_PER_US)


def relax(
    formulation: Formulation,
    relaxation: Relaxation,
    deadline: float,
    seen: Callable[[Relaxed, bool], bool] = lambda _relaxed, _ordered: False,
) -> Relaxed:
    """Solve the relaxation, adding rows that it breaks, until it keeps to all and what runs in it can be ordered.

    Args:
        formulation: gains rows.
        relaxation: of `formulation`.
        deadline: on the clock of `time.monotonic`.
        seen: told of each solution on the way, and whether what runs in it can be ordered; tells whether its bound is
            so good that no more rows are worth looking for.
    """
    best = None
    while True:
        relaxed = relaxation.solve(deadline - time.monotonic())
        loops = formulation.loops(relaxed.support())
        near = seen(relaxed, not loops)
        rises = not near and (best is None or relaxed.bound > (1 + _WORTH) * best.bound)
        # A solution that was cut off says nothing, and the one before it as much as it did.
        if best is None or relaxed.bound > best.bound:
            best = relaxed
        if not relaxed.support() or time.monotonic() >= deadline:
            return best
        if not (rises and formulation.tighten(relaxed.shares)) and not loops:
            return best
        formulation.forbid(loops)


def _search_near(formulation: Formulation, best: _Best, relaxed: Relaxed, share: float, deadline: float) -> None:
    """Search the candidates that lie within a share of the gap exactly; where these are all, that proves the result."""
    if best.is_good or time.monotonic() >= deadline:
        return
    everything = relaxed.within(best.units - 1)
    kept = relaxed.within(relaxed.bound + share * (best.units - 1 - relaxed.bound))
    _search(formulation, best, kept, deadline, proving=len(kept) == len(everything))


def _search_parts(formulation: Formulation, best: _Best, relaxed: Relaxed, deadline: float) -> None:
    """Improve the best plan piece by piece."""
    everything = set(relaxed.within(best.units - 1))

    def improve(members: Sequence[int]) -> bool:
        before = best.units
        if time.monotonic() < deadline and not best.is_good:
            _search(formulation, best, sorted(everything.intersection(members)), deadline, proving=False)
        return best.units < before

    improve_by_parts(formulation.graph, formulation.candidates, improve)


def _search(formulation: Formulation, best: _Best, kept: Sequence[int], deadline: float, *, proving: bool) -> None:
    """Search the plans over some candidates and what the best plan runs; `proving` says that there are no others."""
    while True:
        found = search(formulation, kept, best.chosen, deadline - time.monotonic(), best.tolerance)
        if proving:
            best.bound = max(best.bound, min(found.bound, int(best.units)))
        if not found.loops:
            best.offer(found.chosen)
            break
        wanted = set(found.chosen)
        best.repair([float(i in wanted) for i in range(len(best.candidates))])
        if time.monotonic() >= deadline:
            break
        formulation.forbid(found.loops)


def runnable(graph: PrimitiveGraph, priced: list[Priced]) -> list[Priced]:
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


def _start(graph: PrimitiveGraph, usable: list[Priced], hint: Plan | None) -> list[int]:
    """Return the hint's kernels if they are there and compute everything, else the greedy plan's."""
    if hint is not None:
        # The costs may have changed since the hint was found.
        cheapest: dict[Candidate, int] = {}
        for i in sorted(range(len(usable)), key=lambda i: usable[i].cost_us, reverse=True):
            cheapest[usable[i].candidate] = i
        if all(p.candidate in cheapest for p in hint.kernels):
            chosen = [cheapest[p.candidate] for p in hint.kernels]
            _, filled = execute(graph, [usable[i].candidate for i in chosen], lambda i: (i,))
            if filled.issuperset(goals(graph)):
                return chosen
    return merged(graph, usable)


def _cap(usable: Sequence[Priced], plan: Plan) -> Cap | None:
    """Demand that some of a plan's generated kernels do not run; None if there are none to leave out."""
    kernels = {p.candidate for p in plan.kernels if p.candidate.kind is CandidateKind.GENERATED}
    weights = tuple(
        (i, max(1, round(p.cost_us * UNITS_PER_US))) for i, p in enumerate(usable) if p.candidate in kernels
    )
    total = sum(weight for _, weight in weights)
    return Cap(weights, min(total - 1, int((1 - _LEFT_OUT) * total))) if weights else None


def _start_apart(graph: PrimitiveGraph, usable: list[Priced], caps: Sequence[Cap]) -> list[int]:
    """Return the greedy plan without any kernel that a cap limits."""
    limited = {i for cap in caps for i, _ in cap.weights}
    rest = [i for i in range(len(usable)) if i not in limited]
    return [rest[i] for i in merged(graph, [usable[i] for i in rest])]
