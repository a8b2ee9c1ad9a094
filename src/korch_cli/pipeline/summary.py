"""What a run found out, as the record that the report shows."""

from __future__ import annotations

import importlib.metadata
import platform
import statistics
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from korch_cli.candidates import work_of
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import CandidateKind
from korch_cli.core.model import Model
from korch_cli.core.primitive import Linear, Opaque
from korch_cli.core.record import KernelRecord, OptimizeRecord, Prediction, SearchRecord
from korch_cli.pipeline.delivery import Outcome
from korch_cli.pipeline.execution import CPU
from korch_cli.pipeline.search import Search
from korch_cli.pipeline.settings import Settings
from korch_cli.pipeline.ways import Way, Ways
from korch_cli.solve import SearchResult
from korch_cli.version import __version__

_CLOSED = 0.05
"""A plan that is proven to be within this share of the best is what the search was for."""


def summarize(
    settings: Settings,
    ways: Ways,
    search: Search,
    result: SearchResult,
    outcome: Outcome,
    written: tuple[Path, ...],
    environment: Mapping[str, str],
    seconds: Mapping[str, float],
) -> OptimizeRecord:
    """Return the record of a run."""
    caveats = search.laboratory.caveats(changed=outcome.built is not None)
    return OptimizeRecord(
        model=str(settings.source),
        written=tuple(map(str, written)),
        changed=outcome.built is not None,
        reason=outcome.reason,
        search=_search_record(ways, search, result),
        kernels=_kernel_records(ways.model, search, outcome),
        verdicts=outcome.verdicts,
        comparison=outcome.comparison,
        opaque=opaque_operators(ways.members[0]),
        guilty=outcome.guilty,
        notes=(*ways.model.notes, *search.laboratory.bench.store.notes, *caveats),
        environment=dict(environment),
        seconds=dict(seconds),
        contest=outcome.contest,
        prediction=_prediction(search, ways, outcome),
        estimated_for=search.laboratory.bench.estimated_for,
    )


def describe_environment(search: Search) -> dict[str, str]:
    """Return the versions and the machine that the figures hold for."""
    return {
        "korch": __version__,
        "python": platform.python_version(),
        "onnx": importlib.metadata.version("onnx"),
        **search.laboratory.environment(),
    }


def why_nothing_is_faster(graph: PrimitiveGraph, result: SearchResult) -> str:
    """Say why a plan is not worth building."""
    plan = result.plan
    linear = {v.id for v in graph.primitives() if isinstance(v.op, Linear | Opaque)}
    inside_us = sum(p.cost_us for p in plan.kernels if not linear.isdisjoint(p.candidate.body))
    share = inside_us / plan.cost_us if plan.cost_us > 0 else 1.0
    saved = max(0.0, 1.0 - plan.bound_us / result.vendor_us) if result.vendor_us > 0 else 0.0
    if plan.gap > _CLOSED:
        return (
            "No kernels were found in the time given that are faster, so the input is written unchanged. Those that "
            f"were not measured save {saved:.1%} of the time at most; a larger --budget measures more of them."
        )
    return (
        f"Generated kernels could save {saved:.1%} of the time at most, so the input is written unchanged: "
        f"{share:.0%} of the time goes into convolutions, matrix products and what ONNX Runtime has fused with them."
    )


def _prediction(search: Search, ways: Ways, outcome: Outcome) -> Prediction | None:
    if outcome.comparison is None or outcome.predicted_us is None:
        return None
    input_us, measured_us = (statistics.median(samples.times_us) for samples in outcome.comparison.samples[:2])
    # Where ONNX Runtime's prices are estimates, they say nothing of the machine's pace.
    own_us = search.unchanged(ways).cost_us if search.settings.target == CPU else None
    pace = input_us / own_us if own_us else 1.0
    return Prediction(outcome.predicted_us, measured_us, own_us, outcome.predicted_us * pace / measured_us)


def _search_record(ways: Ways, search: Search, result: SearchResult) -> SearchRecord:
    plan = result.plan
    timed = not search.settings.force_fusion and search.settings.plan is None
    return SearchRecord(
        operators=len(ways.members[0].model.operators),
        primitives=sum(1 for _ in ways.members[0].graph.primitives()),
        candidates=len(search.candidates.candidates) + len(search.vendor),
        distinct=len(search.bounds),
        measured=search.laboratory.measured,
        from_store=search.laboratory.remembered,
        rejected=dict(search.laboratory.rejected + Counter(search.candidates.counters)),
        rounds=result.rounds,
        solver_status=plan.status,
        plan_us=plan.cost_us,
        vendor_us=result.vendor_us,
        bound_us=plan.bound_us,
        gap=plan.gap,
        solve_seconds=result.solve_seconds,
        tried=len(search.laboratory.results),
        alone_us={name: plan.cost_us for name, plan in search.alone(ways, result).items()} if timed else {},
    )


def _kernel_records(model: Model, search: Search, outcome: Outcome) -> tuple[KernelRecord, ...]:
    if outcome.built is None or search.settings.force_fusion:
        return ()
    chosen = [p.candidate for p in outcome.built.plan.kernels if p.candidate.kind is CandidateKind.GENERATED]
    uses = Counter(c.digest for c in chosen)
    first = {c.digest: c for c in reversed(chosen)}
    records = []
    for digest, candidate in first.items():
        kernel, measured = search.laboratory.best(digest)
        assert measured.timing is not None
        needs = search.laboratory.resources(kernel)
        work = work_of(search.laboratory.cut(candidate))
        operators = sorted({search.graph.values[v].operator for v in candidate.body})
        records.append(
            KernelRecord(
                name=kernel.name,
                nodes=tuple(model.operators[o].name for o in operators),
                schedule=kernel.schedule,
                uses=uses[digest],
                time_us=measured.timing.low_us,
                alternative_us=None if measured.alternative is None else measured.alternative.low_us,
                bytes_moved=work.bytes_moved,
                flops=work.flops,
                share_of_limit=_share(search, digest, measured.timing.low_us),
                source=measured.timing.source.value,
                registers=None if needs is None else needs.registers,
                spill_bytes=None if needs is None else needs.spill_bytes,
            )
        )
    return tuple(sorted(records, key=lambda r: (-r.time_us * r.uses, r.name)))


def _share(search: Search, digest: str, time_us: float) -> float | None:
    """Return the bound of a kernel over its time; a plan that is built again knows no bounds."""
    return None if search.settings.plan is not None else min(1.0, search.bounds[digest] / max(time_us, 1e-9))


def opaque_operators(way: Way) -> tuple[tuple[str, int, str], ...]:
    """Return type, count and reason of the operators that were left alone."""
    left = Counter((way.model.operators[o].op_type, sentence) for o, sentence in way.graph.refusals.items())
    return tuple((op_type, count, sentence) for (op_type, sentence), count in sorted(left.items()))
