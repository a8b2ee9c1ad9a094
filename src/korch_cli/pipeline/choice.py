"""The choice end to end: the few best plans are built, and timed as a whole against each other and the input.

The program adds up times of kernels that were measured one by one. What a plan really takes also depends on what ONNX
Runtime fuses and arranges around them, so plans that are nearly equal by the sum are compared as they would run.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from korch_cli.core.errors import KorchError
from korch_cli.core.kernel import Candidate, CandidateKind
from korch_cli.core.plan import Plan, Priced, bounded
from korch_cli.core.record import Contest, ContestantRecord, Verdict
from korch_cli.measure import Watch, is_due
from korch_cli.pipeline.clock import Clock
from korch_cli.pipeline.delivery import Built, Delivery
from korch_cli.pipeline.digest import file_digest
from korch_cli.pipeline.search import Search
from korch_cli.pipeline.stored import decode_contest, encode_contest
from korch_cli.pipeline.ways import REWRITTEN, Ways, same_work
from korch_cli.solve import check_plan, solve
from korch_cli.verify import Subject, compare_all

_PROTOCOL = 3
"""Part of the key: what an earlier version compared in another way is not read."""
BEST, CAUTIOUS, SECOND = "the best sum", "the cautious one", "another one"
REWRITTEN_FIRST, SIMPLIFIED = "rewritten first", "no kernels"
_SURCHARGE = 0.25
"""What generated kernels cost more in the cautious plan: it keeps those that pay beyond doubt."""
_CLOSE: Mapping[str, float] = {CAUTIOUS: 0.08, SECOND: 0.03, REWRITTEN_FIRST: 0.08}
"""How much more than the best sum a plan may take; custom nodes are what sums are the least sure about."""
_SOLVER_SECONDS = 10.0
_SECONDS_EACH = 4.0


@dataclass(frozen=True, slots=True)
class Contestant:
    """A plan that was built and computes what it should.

    Attributes:
        name: how it was found.
        built: its files.
        verdicts: the comparisons of its outputs.
    """

    name: str
    built: Built
    verdicts: tuple[Verdict, ...]

    @property
    def custom_nodes(self) -> int:
        """How many nodes run kernels of ours."""
        return _custom_nodes(self.built.plan)


@dataclass(frozen=True, slots=True)
class _Held:
    """A contest that was held: the plans in the order of the contest, and the result."""

    plans: tuple[Plan, ...]
    contest: Contest


def choose(
    search: Search, best: Contestant, delivery: Delivery, clock: Clock
) -> tuple[Contestant, tuple[ContestantRecord, ...]]:
    """Return the plan to deliver, and how each one did; nothing is timed where there is nothing to choose from.

    Of two plans, the one with more custom nodes wins only if it is faster beyond doubt. The result stays in the store,
    so that the same search ends with the same plan.
    """
    book = _Book(search, best.built.plan)
    held = book.read()
    known = [best]
    if held is None:
        if time.monotonic() < search.deadline:
            known += _challengers(search, best.built.plan, delivery, clock)
        known.sort(key=lambda contestant: (contestant.custom_nodes, contestant is not best))
        contest, watch = Contest((), ()), Watch()
        if len(known) > 1:
            delivery.progress.stage(f"Timing {len(known)} plans end to end")
            with clock("compare"):
                contest = _timed(known, delivery)
        held = book.keep(_Held(tuple(c.built.plan for c in known), contest), watch.others())
    if not held.contest.samples:
        return best, ()
    at = winner(held.contest)
    name = held.contest.samples[at].name
    chosen = next((c for c in known if c.name == name), None)
    if chosen is None:
        chosen = next(iter(_contestant(name, held.plans[at - 1], delivery, clock)), best)
    return chosen, tuple(_records(held, chosen.name))


def _challengers(search: Search, best: Plan, delivery: Delivery, clock: Clock) -> list[Contestant]:
    """Build what is worth a comparison with the best sum, within the budget of the search."""
    with clock("search"):
        plans = list(alternatives(search, best))
        first = rewritten_first(search, delivery.ways, [best, *(plan for _, plan in plans)])
        plain = search.without_kernels()
    if first is not None:
        plans.append((REWRITTEN_FIRST, first))
    if not delivery.is_written(plain) and not (first is not None and same_work(first, plain)):
        plans.append((SIMPLIFIED, plain))
    found: list[Contestant] = []
    for name, plan in plans:
        if time.monotonic() < search.deadline:
            found += _contestant(name, plan, delivery, clock)
    return found


def _records(held: _Held, chosen: str) -> Iterator[ContestantRecord]:
    for at, (plan, samples) in enumerate(zip(held.plans, held.contest.samples[1:], strict=True), start=1):
        yield ContestantRecord(
            name=samples.name,
            custom_nodes=_custom_nodes(plan),
            predicted_us=plan.cost_us,
            measured_us=statistics.median(samples.times_us),
            ratio=held.contest.ratios[0][at],
            chosen=samples.name == chosen,
        )


def alternatives(search: Search, best: Plan) -> Iterator[tuple[str, Plan]]:
    """Yield plans that may run faster than the best sum although their own is not smaller."""
    prices = search.prices()
    costs = {p.candidate: p.cost_us for p in prices}
    raised = [
        Priced(p.candidate, p.cost_us * (1 + _SURCHARGE * (p.candidate.kind is CandidateKind.GENERATED)))
        for p in prices
    ]
    limit_s = min(_SOLVER_SECONDS, search.settings.solver_time_s)
    found = [best]
    for name, priced, apart in ((CAUTIOUS, raised, ()), (SECOND, prices, found)):
        try:
            plan = solve(search.graph, priced, time_limit_s=limit_s, apart=tuple(apart))
        except KorchError:  # Nothing else computes what the best plan's kernels do.
            continue
        kernels = (Priced(p.candidate, costs[p.candidate]) for p in plan.kernels)
        plan = bounded(kernels)
        check_plan(search.graph, plan)
        close = plan.cost_us <= (1 + _CLOSE[name]) * best.cost_us
        if close and all(_generated(plan) != _generated(other) for other in found) and _custom_nodes(plan):
            found.append(plan)
            yield name, plan


def rewritten_first(search: Search, ways: Ways, known: Sequence[Plan]) -> Plan | None:
    """Return the best plan that keeps to the rewritten model; None if it is one of `known`, far off, or cannot be.

    Where the ways meet, ONNX Runtime may fuse less than in either of them, which no sum of prices says.

    Args:
        search: has measured what plans are made of.
        ways: to write the model.
        known: other plans, the best one first.
    """
    at = next((at for at, way in enumerate(ways.members) if way.name == REWRITTEN), None)
    if at is None or ways.hold(at, known[0]):
        return None
    plan = search.keeping_to(ways, at, min(_SOLVER_SECONDS, search.settings.solver_time_s))
    check_plan(search.graph, plan)
    close = plan.cost_us <= (1 + _CLOSE[REWRITTEN_FIRST]) * known[0].cost_us
    return plan if close and not any(same_work(plan, other) for other in known) else None


def _generated(plan: Plan) -> frozenset[tuple[int, ...]]:
    return frozenset(p.candidate.body for p in plan.kernels if p.candidate.kind is CandidateKind.GENERATED)


def _custom_nodes(plan: Plan) -> int:
    return sum(p.candidate.kind is CandidateKind.GENERATED for p in plan.kernels)


def _contestant(name: str, plan: Plan, delivery: Delivery, clock: Clock) -> list[Contestant]:
    """Build a plan in a folder of its own and check it; none if its outputs differ."""
    aside = replace(delivery, staged=delivery.staged / f"plan-{name.replace(' ', '-')}")
    aside.staged.mkdir(exist_ok=True)
    with clock("build"):
        built = aside.build(plan)
    with clock("verify"):
        verdicts = aside.verify(built)
    return [Contestant(name, built, verdicts)] if all(verdict.passed for verdict in verdicts) else []


def _timed(contestants: Sequence[Contestant], delivery: Delivery) -> Contest:
    provider = delivery.execution.provider
    subjects = [Subject("input", delivery.prepared.whole.path, None, True, provider)]
    subjects += [Subject(c.name, c.built.model, c.built.library, True, provider) for c in contestants]
    return compare_all(
        subjects,
        delivery.prepared.whole.feeds[0],
        threads=delivery.settings.threads,
        seconds=_SECONDS_EACH * len(subjects),
        progress=delivery.progress,
    )


def winner(contest: Contest) -> int:
    """Return the winner among the plans of a contest, in which the input is the first and then come simpler ones."""
    champion = 1
    for challenger in range(2, len(contest.samples)):
        if contest.ratios[champion][challenger].low > 1.0:
            champion = challenger
    return champion


class _Book:
    """The contests in the store, by the model and the best plan.

    Plans are known by what they run, down to the text of the kernels, and not by prices: a kernel that was measured
    again, or for the first time, changes nothing of how long whole models take.
    """

    def __init__(self, search: Search, best: Plan) -> None:
        self._laboratory = search.laboratory
        self._priced = {self._mark(p.candidate): p for p in search.prices()}
        settings = search.settings
        parts = [_PROTOCOL, file_digest(settings.source), settings.budget_s, self._marks(best)]
        origin = self._laboratory.bench.origin
        self._doubtful: _Held | None = None
        self._key = f"contest/{hashlib.sha256(json.dumps(parts).encode()).hexdigest()}/{origin}"

    def read(self) -> _Held | None:
        """Return the contest that was held before; None if there is none that can run and is not in doubt."""
        store = self._laboratory.bench.store
        found = store.read(self._key, lambda document: (self._held(*_noted(document)), is_due(document)))
        if found is None:
            return None
        held, due = found
        if due:
            self._doubtful, held = held, None
        return held

    def keep(self, held: _Held, others: float) -> _Held:
        """Keep a contest, unless one is kept already; return the one that counts.

        Args:
            held: the contest.
            others: share of the processors that other processes took meanwhile.
        """
        if self._doubtful is not None and not held.contest.samples:
            return self._doubtful
        document = {
            "plans": [self._marks(plan) for plan in held.plans],
            "contest": encode_contest(held.contest),
            "others": others,
            "at": time.time(),
        }
        store = self._laboratory.bench.store
        kept = None if self._doubtful is not None else self._held(*store.keep(self._key, document, _noted))
        if kept is None:
            store.replace(self._key, document)
        return kept or held

    def _held(self, plans: Sequence[Sequence[str]], contest: Contest) -> _Held | None:
        if not all(mark in self._priced for marks in plans for mark in marks):
            return None
        return _Held(tuple(map(self._plan, plans)), contest)

    def _plan(self, marks: Sequence[str]) -> Plan:
        return bounded(self._priced[mark] for mark in marks)

    def _marks(self, plan: Plan) -> list[str]:
        return [self._mark(p.candidate) for p in plan.kernels]

    def _mark(self, candidate: Candidate) -> str:
        """Return what a candidate is known by in every run."""
        generated = candidate.kind is CandidateKind.GENERATED
        ports = [[(port.value, port.arrangement) for port in each] for each in (candidate.reads, candidate.writes)]
        stamp = self._laboratory.stamp(candidate.digest) if generated else candidate.digest
        parts = [candidate.kind.value, candidate.body, *ports, candidate.operators, stamp]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def _noted(document: dict[str, Any]) -> tuple[list[list[str]], Contest]:
    return [list(map(str, marks)) for marks in document["plans"]], decode_contest(document["contest"])
