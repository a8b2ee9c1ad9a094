"""An output that was planned before, built again: no search, and nothing is timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from korch_cli.candidates import CandidateSet
from korch_cli.core.artifact import KernelResult
from korch_cli.core.errors import Refusal, UsageError
from korch_cli.core.kernel import Candidate, CandidateKind, KernelBody, Timing, TimingSource
from korch_cli.core.launch import GeneratedKernel
from korch_cli.core.model import Bindings
from korch_cli.core.plan import Plan, Priced
from korch_cli.core.progress import Progress
from korch_cli.pipeline.execution import CPU
from korch_cli.pipeline.search import Search
from korch_cli.pipeline.settings import Settings
from korch_cli.pipeline.target import Target
from korch_cli.pipeline.ways import Ways
from korch_cli.solve import SearchResult

_AGAIN = "search again, without --from-plan"


def bindings_of_plan(document: Mapping[str, Any], given: Bindings, digest: str, path: Path) -> Bindings:
    """Return the shapes that a plan was made for, where the user gives none.

    Args:
        document: the plan.
        given: by the user.
        digest: SHA-256 of the model.
        path: of the plan.

    Raises:
        UsageError: the plan is for another model.
    """
    if document["model_sha256"] != digest:
        raise UsageError("this plan was made for another model", where=str(path), hint=_AGAIN)
    shapes = {name: tuple(shape) for name, shape in document.get("shapes", {}).items()}
    return given if given.dims else Bindings({}, {**shapes, **given.shapes})


def planned_settings(settings: Settings, document: Mapping[str, Any]) -> Settings:
    """Return the settings with what a plan was made with."""
    return replace(
        settings,
        portable=bool(document.get("portable", False)),
        processor=settings.processor or document.get("cpu"),
        target=str(document.get("target", CPU)),
        archs=tuple(map(str, document.get("archs", ()))),
        gpu=document.get("estimated_for"),
    )


def planned_search(
    settings: Settings,
    ways: Ways,
    document: Mapping[str, Any],
    target: Target,
    progress: Progress,
) -> tuple[Search, SearchResult]:
    """Return what a search would have returned that ends with this plan; an empty plan for one that changes nothing.

    Raises:
        UsageError: the plan does not fit the model as this version of korch sees it, or not the kernels it generates.
    """
    times = {entry["name"]: float(entry["time_us"]) for entry in document.get("kernels", ())}
    reading = _Reading(ways, target.bench.generate)
    kernels = tuple(reading.step(entry, times) for entry in document.get("sequence", ()))
    cost_us, bound_us = float(document.get("cost_us", 0.0)), float(document.get("bound_us", 0.0))
    plan = Plan(kernels, cost_us, bound_us)
    representatives = {p.candidate.digest: p.candidate for p in kernels if p.candidate.kind is CandidateKind.GENERATED}
    source = TimingSource.MEASURED if target.bench.estimated_for is None else TimingSource.ESTIMATED
    results = {d: [(k, _known(k, times[k.name], source))] for d, k in reading.chosen.items()}
    laboratory = target.laboratory(ways.cut, representatives, progress, results)
    candidates = CandidateSet(tuple(representatives.values()), {})
    bounds = {digest: times[kernel.name] for digest, kernel in reading.chosen.items()}
    search = Search(settings, ways.graph, (), candidates, bounds, laboratory, 0.0)
    return search, SearchResult(plan, False, plan.cost_us, 0, 0.0)


class _Reading:
    """Turns the steps of a plan document into candidates of a graph."""

    def __init__(self, ways: Ways, generate: Callable[[KernelBody], tuple[GeneratedKernel, ...]]) -> None:
        self.chosen: dict[str, GeneratedKernel] = {}
        self._generate = generate
        self._ways = ways
        self._values = {value.name: value.id for value in ways.graph.values}
        self._operators = {operator.name: operator.index for operator in ways.model.operators}
        self._names = {way.name: at for at, way in enumerate(ways.members)}

    def step(self, entry: Mapping[str, Any], times: Mapping[str, float]) -> Priced:
        """Return one kernel of the plan."""
        if "nodes" in entry:
            operators = tuple(self._found(self._operators, name, "node") for name in entry["nodes"])
            body = tuple(sorted(v for o in operators for v in self._ways.graph.by_operator.get(o, ())))
            return Priced(Candidate(CandidateKind.VENDOR, body, (), (), f"vendor:{operators}", operators), 0.0)
        if "primitive" in entry:
            value = self._found(self._values, entry["primitive"], "value")
            return Priced(Candidate(CandidateKind.VENDOR, (value,), (), (), f"node:{value}"), 0.0)
        at = self._found(self._names, entry["way"], "way of writing the model")
        values = [self._found(self._values, name, "value") for name in entry["values"]]
        if not all(v in self._ways.members[at].own for v in values):
            raise UsageError("the plan's kernel is in no way to write the model", where=entry["kernel"], hint=_AGAIN)
        candidate = self._ways.candidate_of(at, values)
        if candidate.digest not in self.chosen:
            self.chosen[candidate.digest] = self._kernel(candidate, entry["kernel"])
        return Priced(candidate, times[entry["kernel"]])

    def _kernel(self, candidate: Candidate, name: str) -> GeneratedKernel:
        try:
            made = {kernel.name: kernel for kernel in self._generate(self._ways.cut(candidate))}
        except Refusal as refusal:
            raise UsageError(f"the plan's kernel cannot be generated: {refusal.sentence}", where=name) from refusal
        if name not in made:
            raise UsageError("the plan's kernel has another text in this version of korch", where=name, hint=_AGAIN)
        return made[name]

    def _found(self, table: Mapping[str, int], name: str, kind: str) -> int:
        if name not in table:
            raise UsageError(f"the plan names a {kind} that the model does not have", where=name, hint=_AGAIN)
        return table[name]


def _known(kernel: GeneratedKernel, time_us: float, source: TimingSource) -> KernelResult:
    return KernelResult(kernel.name, Timing(time_us, time_us, time_us, 0, source), None, None)
