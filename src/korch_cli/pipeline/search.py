"""The search for a plan: candidates, their bounds, and lazy profiling in the laboratory."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from korch_cli.candidates import CandidateSet, SearchLimits, lower_bound_us, single_operators
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate
from korch_cli.core.machine import MachineLimits
from korch_cli.core.plan import Plan, Priced
from korch_cli.core.progress import Progress
from korch_cli.measure import Watch, Worker, is_due
from korch_cli.pipeline.laboratory import Laboratory
from korch_cli.pipeline.settings import Settings
from korch_cli.pipeline.target import Target
from korch_cli.pipeline.ways import REWRITTEN, Ways
from korch_cli.solve import SearchResult, check_plan, orchestrate, solve

_PROTOCOL = 4
"""Part of the key: what an earlier version kept in another form is not read."""


@dataclass(slots=True)
class Search:
    """Looks for the best plan; can be asked again after kernels were found guilty.

    Attributes:
        settings: the limits of the search.
        graph: what to compute.
        vendor: ONNX Runtime's own kernels.
        candidates: what could be generated.
        bounds: for each digest of a candidate, a time in microseconds that no kernel beats.
        laboratory: measures.
        deadline: on the clock of `time.monotonic`.
        excluded: digests that must not be used.
    """

    settings: Settings
    graph: PrimitiveGraph
    vendor: tuple[Priced, ...]
    candidates: CandidateSet
    bounds: dict[str, float]
    laboratory: Laboratory
    deadline: float
    excluded: set[str] = field(default_factory=set)

    def run(self) -> SearchResult:
        """Return the best plan that was found, checked.

        Which kernels a search measured is kept in the store. Another one for the same model begins with them, and
        measures more only if it has a larger budget or asks for a smaller gap.
        """
        with Worker() as self.laboratory.worker:
            result = self._orchestrated()
        self.laboratory.worker = None
        check_plan(self.graph, result.plan)
        return result

    def _orchestrated(self) -> SearchResult:
        store, key = self.laboratory.bench.store, self._key()
        earlier = None if self.settings.force_fusion else store.read(key, _decoded)
        deadline, watch = self.deadline, Watch()
        if earlier is not None and not self.excluded:
            if self._ended(earlier):
                # That search did what this one may do, and found its end: what it measured is all that counts.
                deadline = time.monotonic()
            digests = [d for d in earlier.digests if d in self.bounds and d not in self.laboratory.results]
            if digests:
                self.laboratory.measure(digests, earlier.failed)
        known = {d: self.laboratory.cost(d) for d in self.laboratory.results}
        known |= dict.fromkeys(self.excluded, math.inf)
        result = orchestrate(
            self.graph,
            self.vendor,
            self.candidates.candidates,
            self.bounds,
            known,
            self.laboratory.measure,
            gap=self.settings.gap,
            deadline=deadline,
            solver_time_s=self.settings.solver_time_s,
        )
        if deadline == self.deadline and not self.settings.force_fusion:
            limits = {"budget_s": self.settings.budget_s, "gap": self.settings.gap}
            found = {"digests": list(self.laboratory.results), "failed": self.laboratory.failures()}
            doubt = {"others": watch.others(), "at": time.time()}
            store.replace(key, found | limits | doubt)
        return result

    def without_kernels(self) -> Plan:
        """Return the best plan of ONNX Runtime's own kernels."""
        return solve(self.graph, self.vendor, time_limit_s=self.settings.solver_time_s)

    def unchanged(self, ways: Ways, at: int = 0) -> Plan:
        """Return the best plan of ONNX Runtime's own kernels for one way, which is what it makes of that model."""
        own = [p for p in self.vendor if ways.holds(at, p.candidate)]
        return solve(self.graph, own, time_limit_s=self.settings.solver_time_s)

    def rewritten(self, ways: Ways) -> Plan | None:
        """Return the plan that runs the rewritten model as it is, None where there is none.

        ONNX Runtime fuses its operators as it likes, so that they have a price only together.
        """
        for at, way in enumerate(ways.members):
            if way.name == REWRITTEN:
                singles = (ways.common(at, c) for c in single_operators(way.model, way.graph))
                return Plan(tuple(Priced(c, 0.0) for c in singles), self.unchanged(ways, at).cost_us, 0.0)
        return None

    def alone(self, ways: Ways, result: SearchResult) -> dict[str, Plan]:
        """Return the best plan that takes only one of several ways to write the model, by the way's name.

        Args:
            ways: to write the model.
            result: of the search over all ways together; where the best plan keeps to one of them, it is the best of
                that one too.
        """
        if len(ways.members) == 1:
            return {}
        found = {}
        for at, way in enumerate(ways.members):
            is_it = result.is_best_measured and ways.hold(at, result.plan)
            found[way.name] = result.plan if is_it else self.keeping_to(ways, at, self.settings.solver_time_s)
        return found

    def keeping_to(self, ways: Ways, at: int, time_limit_s: float) -> Plan:
        """Return the best plan over what has a measured price that keeps to way number `at` to write the model."""
        own = [p for p in self.prices() if ways.holds(at, p.candidate)]
        return solve(self.graph, own, time_limit_s=time_limit_s)

    def prices(self) -> list[Priced]:
        """Return all that has a measured price: ONNX Runtime's own kernels, and the generated ones that can be used."""
        known = {d: self.laboratory.cost(d) for d in self.laboratory.results if d not in self.excluded}
        generated = (Priced(c, known[c.digest]) for c in self.candidates.candidates if c.digest in known)
        return [*self.vendor, *(p for p in generated if math.isfinite(p.cost_us))]

    def recall(self) -> dict[str, float]:
        """Return the times of the kernels that an earlier search for the same measured, in microseconds by digest."""
        earlier = self.laboratory.bench.store.read(self._key(), _decoded)
        if earlier is None:
            return {}
        return self.laboratory.measure([d for d in earlier.digests if d in self.bounds], earlier.failed)

    def was_searched(self) -> bool:
        """Whether an earlier search for the same came to its end with limits like these."""
        earlier = self.laboratory.bench.store.read(self._key(), _decoded)
        return earlier is not None and self._ended(earlier)

    def _ended(self, earlier: _Earlier) -> bool:
        return earlier.budget_s >= self.settings.budget_s and earlier.gap <= self.settings.gap

    def _key(self) -> str:
        digests = hashlib.sha256("\n".join(c.digest for c in self.candidates.candidates).encode()).hexdigest()
        return f"search/{_PROTOCOL}/{digests}/{self.laboratory.bench.origin}"

    def exclude(self, names: Iterable[str]) -> None:
        """Leave out the kernels of these names from now on."""
        wanted = set(names)
        for digest, results in self.laboratory.results.items():
            if any(kernel.name in wanted for kernel, _ in results):
                self.excluded.add(digest)


@dataclass(frozen=True, slots=True)
class _Earlier:
    """What an earlier search measured, which kernels failed in a way that the store does not keep, and its limits."""

    digests: tuple[str, ...]
    failed: Mapping[str, str]
    budget_s: float
    gap: float


def _decoded(document: dict[str, Any]) -> _Earlier:
    # What took too long beside other processes may be tried again.
    failures = {} if is_due(document) else document["failed"]
    failed = {str(name): str(sentence) for name, sentence in failures.items()}
    return _Earlier(tuple(map(str, document["digests"])), failed, float(document["budget_s"]), float(document["gap"]))


def prepare_search(
    settings: Settings,
    ways: Ways,
    vendor: tuple[Priced, ...],
    limits: MachineLimits,
    target: Target,
    deadline: float,
    progress: Progress,
) -> Search:
    """Enumerate the candidates and bound each distinct one from below."""
    candidates = ways.enumerated(SearchLimits(max_primitives=settings.max_primitives))
    representatives: dict[str, Candidate] = {}
    for candidate in candidates.candidates:
        representatives.setdefault(candidate.digest, candidate)
    bounds = {body.digest: lower_bound_us(body, limits) for body in ways.cut_all(list(representatives.values()))}
    laboratory = target.laboratory(ways.cut, representatives, progress)
    return Search(settings, ways.graph, vendor, candidates, bounds, laboratory, deadline)
