"""The whole story of `korch optimize`: every stage, in order."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from korch_cli.core.kernel import CandidateKind
from korch_cli.core.plan import Plan
from korch_cli.core.progress import Progress
from korch_cli.core.record import OptimizeRecord, Verdict
from korch_cli.emit import read_plan, require_apart, staging
from korch_cli.pipeline.choice import BEST, Contestant, choose
from korch_cli.pipeline.clock import Clock
from korch_cli.pipeline.delivery import Built, Delivery, Outcome
from korch_cli.pipeline.digest import file_digest
from korch_cli.pipeline.explanation import keep_program, program_of
from korch_cli.pipeline.forced import force_search
from korch_cli.pipeline.prepare import Prepared, prepare
from korch_cli.pipeline.rebuild import bindings_of_plan, planned_search, planned_settings
from korch_cli.pipeline.search import Search, prepare_search
from korch_cli.pipeline.settings import Settings
from korch_cli.pipeline.storage import opened_store
from korch_cli.pipeline.summary import describe_environment, summarize, why_nothing_is_faster
from korch_cli.pipeline.target import Target, find_tools, make_target
from korch_cli.pipeline.ways import Ways, find_ways, same_work
from korch_cli.solve import SearchResult
from korch_cli.verify import require_onnxruntime

_ATTEMPTS = 4
"""Plans that are tried before the input is written unchanged: each one leaves out the kernels that failed."""
_LEAST_GAIN = 0.02
"""A plan that promises to save less than this share is not worth a library, nor can it be told from noise."""


def optimize(settings: Settings, progress: Progress) -> OptimizeRecord:
    """Optimise a model and write the result: a model, its kernel library, and the plan.

    Raises:
        KorchError: with the exit code that says whose fault it is; nothing is written then.
    """
    require_onnxruntime()
    require_apart(settings.source, settings.files)
    clock = Clock()
    document = None if settings.plan is None else read_plan(settings.plan)
    if document is not None and settings.plan is not None:
        digest = file_digest(settings.source)
        bindings = bindings_of_plan(document, settings.bindings, digest, settings.plan)
        settings = planned_settings(replace(settings, bindings=bindings), document)
    tools = find_tools(settings)
    with (
        staging(settings.output.parent) as staged,
        tempfile.TemporaryDirectory(prefix="korch-") as scratch,
        opened_store(Path(scratch)) as store,
    ):
        progress.stage("Loading the model")
        with clock("load"):
            prepared = prepare(settings, Path(scratch))
        with clock("fission"):
            ways = find_ways(prepared.unrolled.flat, prepared.rewritten)
        target = make_target(settings, tools, store, Path(scratch), ways.model)
        if document is None:
            search = find_candidates(settings, ways, prepared, target, clock, progress)
            delivery = Delivery(settings, prepared, ways, search.laboratory, staged, progress)
            outcome, result = _deliver(search, delivery, clock)
            if outcome.built is None and delivery.execution.runs_kernels:
                outcome = _without_kernels(search, delivery, outcome, clock)
            outcome = _bounded(outcome, result)
            if not settings.force_fusion and target.bench.estimated_for is None:
                plan = _explained(search, ways, outcome, result)
                keep_program(store, delivery.source_digest, program_of(ways, search, plan, outcome.reason))
        else:
            search, result = planned_search(settings, ways, document, target, progress)
            delivery = Delivery(settings, prepared, ways, search.laboratory, staged, progress)
            outcome = _rebuilt(result.plan, delivery, clock)
        written = delivery.write(outcome)
    environment = describe_environment(search)
    return summarize(settings, ways, search, result, outcome, written, environment, clock.seconds)


def find_candidates(
    settings: Settings,
    ways: Ways,
    prepared: Prepared,
    target: Target,
    clock: Clock,
    progress: Progress,
) -> Search:
    """Find out what the machine can do and what ONNX Runtime takes; then enumerate what could be generated instead."""
    deadline = clock.start + settings.budget_s
    if settings.force_fusion:
        with clock("candidates"):
            return force_search(settings, ways, target.bench, deadline, progress)
    with clock("calibrate"):
        limits = target.limits(progress)
    with clock("profile"):
        vendor = target.vendor(ways, prepared.runnables, progress)
    progress.stage("Enumerating candidate kernels")
    with clock("candidates"):
        return prepare_search(settings, ways, vendor, limits, target, deadline, progress)


def _deliver(search: Search, delivery: Delivery, clock: Clock) -> tuple[Outcome, SearchResult]:
    """Find a plan, build it and check it; leave out what fails and search again."""
    guilty: list[tuple[str, str]] = []
    outcome = Outcome(None, "")
    for _ in range(_ATTEMPTS):
        with clock("search"):
            result = search.run()
        generated = any(p.candidate.kind is CandidateKind.GENERATED for p in result.plan.kernels)
        forced = search.settings.force_fusion
        if not generated or (not forced and result.plan.cost_us > (1 - _LEAST_GAIN) * result.vendor_us):
            reason = _NOTHING if forced else why_nothing_is_faster(search.graph, result)
            return replace(outcome, reason=reason, guilty=tuple(guilty)), result
        with clock("build"):
            built = delivery.build(result.plan)
        with clock("verify"):
            verdicts = delivery.verify(built)
        if all(verdict.passed for verdict in verdicts):
            best = Contestant(BEST, built, verdicts)
            timed = not forced and delivery.execution.runs_kernels
            best, contest = choose(search, best, delivery, clock) if timed else (best, ())
            outcome = _decided(delivery, best.built, result, clock)
            return replace(outcome, verdicts=best.verdicts, guilty=tuple(guilty), contest=contest), result
        with clock("verify"):
            blamed = delivery.blame(built)
            own = None if blamed else delivery.excused(verdicts)
        if own is not None:
            outcome = _decided(delivery, built, result, clock)
            reason = f"{outcome.reason} {_AMPLIFIED}"
            return replace(outcome, reason=reason, verdicts=(*verdicts, own), guilty=tuple(guilty)), result
        outcome = Outcome(None, _why_not(verdicts), verdicts)
        guilty += blamed
        if not blamed:
            break
        search.exclude(name for name, _ in blamed)
    return replace(outcome, guilty=tuple(guilty)), result


def _bounded(outcome: Outcome, result: SearchResult) -> Outcome:
    """Say of the plan that is delivered what the search proved of all plans, whichever of them it is."""
    if outcome.built is None:
        return outcome
    plan = outcome.built.plan
    plan = replace(plan, bound_us=min(plan.cost_us, result.plan.bound_us))
    return replace(outcome, built=replace(outcome.built, plan=plan))


def _explained(search: Search, ways: Ways, outcome: Outcome, result: SearchResult) -> Plan:
    """Return the plan that is delivered, with a price for each kernel; the best one if the input is unchanged."""
    if outcome.built is None:
        return result.plan
    plan = outcome.built.plan
    if any(p.cost_us > 0 for p in plan.kernels):
        return plan
    # The rewritten model as it is, whose operators have a price only as ONNX Runtime fuses them.
    way = next(at for at in range(len(ways.members)) if ways.hold(at, plan))
    return search.unchanged(ways, way)


def _without_kernels(search: Search, delivery: Delivery, outcome: Outcome, clock: Clock) -> Outcome:
    """Deliver the best plan without kernels, or the rewritten model, if that is faster than the input."""
    tried: list[Plan] = []
    for plan in (search.without_kernels(), search.rewritten(delivery.ways)):
        if plan is None or delivery.is_written(plan) or any(same_work(plan, other) for other in tried):
            continue
        tried.append(plan)
        alone = _checked(plan, delivery, clock)
        if alone.built is not None:
            alone = replace(_judged(delivery, alone.built, clock), verdicts=alone.verdicts)
        if alone.built is not None:
            return replace(alone, guilty=outcome.guilty, contest=outcome.contest)
    return outcome


def _rebuilt(plan: Plan, delivery: Delivery, clock: Clock) -> Outcome:
    """Build a given plan and check it; nothing is timed."""
    if not plan.kernels:
        return Outcome(None, "The plan leaves the model as it is.")
    return _checked(plan, delivery, clock)


def _checked(plan: Plan, delivery: Delivery, clock: Clock) -> Outcome:
    """Build a plan and compare its outputs."""
    with clock("build"):
        built = delivery.build(plan)
    with clock("verify"):
        verdicts = delivery.verify(built)
        own = None if all(verdict.passed for verdict in verdicts) else delivery.excused(verdicts)
    if own is None and not all(verdict.passed for verdict in verdicts):
        return Outcome(None, _why_not(verdicts), verdicts)
    return Outcome(built, _REBUILT, verdicts if own is None else (*verdicts, own))


def _decided(delivery: Delivery, built: Built, result: SearchResult, clock: Clock) -> Outcome:
    if not delivery.execution.runs_kernels:
        return delivery.estimated(built, result.vendor_us)
    return _judged(delivery, built, clock)


def _judged(delivery: Delivery, built: Built, clock: Clock) -> Outcome:
    if delivery.settings.force_fusion:
        return Outcome(built, _FORCED.format(len(built.bodies)))
    with clock("compare"):
        return delivery.judged(built)


def _why_not(verdicts: tuple[Verdict, ...]) -> str:
    failure = next((verdict.failure for verdict in verdicts if verdict.failure is not None), None)
    return _DIFFERENT if failure is None else _UNCOMPARABLE.format(failure)


_REBUILT = "Built from a plan, without search and timing."
_FORCED = "All that can be generated is in {} custom nodes, as --force-fusion asks; nothing was timed."
_AMPLIFIED = (
    "This model amplifies rounding: the outputs differ by no more than four times what ONNX Runtime's own "
    "optimisations of the input change."
)
_NOTHING = "Nothing in this model can be generated; the input is written unchanged."
_DIFFERENT = "The optimised outputs differ from the input's by more than the tolerance; the input is written unchanged."
_UNCOMPARABLE = "The outputs could not be compared, so the input is written unchanged. {}"
