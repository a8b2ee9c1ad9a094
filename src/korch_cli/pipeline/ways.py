"""The ways to write a model, as it was loaded and rewritten, in one graph: what the program chooses from.

Candidates are enumerated and priced in each way by itself, exactly as if there were no other, and then translated into
the common graph, in which equal values are one. What a plan may do is therefore never less than what any one way
allows, and a plan may take each region of the model from another way: they meet in values that both have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from korch_cli.algebra import unite_models
from korch_cli.candidates import CandidateSet, SearchLimits, candidate_of, cut_all, enumerate_candidates
from korch_cli.core.check import check
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate, CandidateKind, KernelBody, Port
from korch_cli.core.model import Model
from korch_cli.core.plan import Plan, Priced
from korch_cli.fission import fission
from korch_cli.rewrite import rewrite, unite

WRITTEN, REWRITTEN = "written", "rewritten"


@dataclass(frozen=True)
class Way:
    """One way to write the model.

    Attributes:
        name: WRITTEN or REWRITTEN.
        model: by itself.
        graph: its primitives.
        values: for each of its values, the id in the common graph.
        operators: for each of its operators, the index in the common model.
    """

    name: str
    model: Model
    graph: PrimitiveGraph
    values: tuple[int, ...]
    operators: tuple[int, ...]

    @cached_property
    def own(self) -> Mapping[int, int]:
        """From ids of the common graph to its own."""
        return {v: i for i, v in enumerate(self.values)}


@dataclass(frozen=True)
class Ways:
    """All ways together.

    Attributes:
        model: has the operators of all, those of the first way under the same indices.
        graph: has the primitives of all.
        members: the ways, the written one first if there are several.
    """

    model: Model
    graph: PrimitiveGraph
    members: tuple[Way, ...]

    @cached_property
    def _values(self) -> tuple[Mapping[int, int], ...]:
        """For each way, from the first value of a class to its own value of that class."""
        return tuple({self.graph.first(v): i for i, v in enumerate(way.values)} for way in self.members)

    def common(self, at: int, candidate: Candidate) -> Candidate:
        """Return a candidate of way number `at` as one of the common graph."""
        way = self.members[at]
        operators = tuple(sorted(way.operators[o] for o in candidate.operators))
        digest = candidate.digest
        if candidate.kind is not CandidateKind.GENERATED:
            # It ends in numbers that are the way's own.
            word, _, number = digest.rpartition(":")
            end = operators or (self.graph.first(way.values[int(number)]),)
            digest = f"{word}:{','.join(map(str, end))}"
        return Candidate(
            candidate.kind,
            tuple(sorted(way.values[v] for v in candidate.body)),
            tuple(self._ports(way, candidate.reads)),
            tuple(self._ports(way, candidate.writes)),
            digest,
            operators,
            at,
        )

    def holds(self, at: int, candidate: Candidate) -> bool:
        """Whether way number `at` has all that a candidate computes, reads and writes."""
        way, values = self.members[at], self._values[at]
        return (
            all(v in way.own for v in candidate.body)
            and all(port.value in values for port in (*candidate.reads, *candidate.writes))
            and set(candidate.operators).issubset(way.operators)
        )

    def hold(self, at: int, plan: Plan) -> bool:
        """Whether way number `at` has all that a plan runs."""
        return all(self.holds(at, p.candidate) for p in plan.kernels)

    def candidate_of(self, at: int, body: Iterable[int]) -> Candidate:
        """Return the generated candidate of a body of the common graph, all of which is in way number `at`."""
        way = self.members[at]
        return self.common(at, candidate_of(way.graph, sorted(way.own[v] for v in body)))

    def enumerated(self, limits: SearchLimits) -> CandidateSet:
        """Return the candidates of all ways, each once."""
        found: dict[Candidate, None] = {}
        counters: Counter[str] = Counter()
        for at, way in enumerate(self.members):
            candidates = enumerate_candidates(way.graph, limits)
            found.update((self.common(at, c), None) for c in candidates.candidates)
            # What the ways have in common is left out of both for the same reason.
            counters |= Counter(candidates.counters)
        return CandidateSet(tuple(found), dict(counters))

    def cut(self, candidate: Candidate) -> KernelBody:
        """Return the body of a generated candidate as a graph of its own."""
        return self.cut_all([candidate])[0]

    def cut_all(self, candidates: Sequence[Candidate]) -> list[KernelBody]:
        """Return the bodies of generated candidates, in order."""
        found: dict[Candidate, KernelBody] = {}
        for at, way in enumerate(self.members):
            mine = [c for c in candidates if c.way == at]
            for candidate, body in zip(mine, cut_all(way.graph, [self._own(c) for c in mine]), strict=True):
                arguments, results = (
                    tuple(self.graph.first(way.values[v]) for v in values) for values in (body.arguments, body.results)
                )
                found[candidate] = replace(body, arguments=arguments, results=results)
        return [found[candidate] for candidate in candidates]

    def _own(self, candidate: Candidate) -> Candidate:
        way, values = self.members[candidate.way], self._values[candidate.way]
        reads, writes = (
            tuple(Port(values[p.value], p.arrangement) for p in ports) for ports in (candidate.reads, candidate.writes)
        )
        body = tuple(sorted(way.own[v] for v in candidate.body))
        return Candidate(candidate.kind, body, reads, writes, candidate.digest)

    def _ports(self, way: Way, ports: Iterable[Port]) -> Iterator[Port]:
        return (Port(self.graph.first(way.values[p.value]), p.arrangement) for p in ports)


def single_way(model: Model, name: str = WRITTEN) -> Ways:
    """Return a model that is written in one way only."""
    graph = rewrite(fission(model))
    check(graph)
    values, operators = tuple(range(len(graph.values))), tuple(range(len(model.operators)))
    return Ways(model, graph, (Way(name, model, graph, values, operators),))


def find_ways(written: Model, rewritten: Model | None) -> Ways:
    """Return the ways to write a model; where two do not fit together, the rewritten one alone."""
    if rewritten is None:
        return single_way(written)
    union = unite_models(written, rewritten)
    if union is None:
        return single_way(rewritten, REWRITTEN)
    models = (written, union.rewritten)
    graphs = tuple(rewrite(fission(model)) for model in models)
    operators = (tuple(range(len(written.operators))), union.operators)
    united = unite(graphs, tuple(map(_tensors, models)), operators)
    if united is None:
        return single_way(rewritten, REWRITTEN)
    for graph in (*graphs, united.graph):
        check(graph)
    names = (WRITTEN, REWRITTEN)
    members = tuple(map(Way, names, models, graphs, united.values, operators))
    return Ways(union.model, united.graph, members)


def _tensors(model: Model) -> frozenset[str]:
    made = (name for operator in model.operators for name in operator.outputs)
    return frozenset((*made, *model.inputs, *model.constants))


def cheapest(priced: Iterable[Priced]) -> tuple[Priced, ...]:
    """Return each candidate once, at its lowest price."""
    found: dict[Candidate, Priced] = {}
    for p in priced:
        if p.candidate not in found or p.cost_us < found[p.candidate].cost_us:
            found[p.candidate] = p
    return tuple(found.values())


def same_work(one: Plan, other: Plan) -> bool:
    """Whether two plans run the same operators and kernels."""
    first, second = (
        {work for p in plan.kernels if p.candidate.body for work in (p.candidate.operators or (p.candidate.digest,))}
        for plan in (one, other)
    )
    return first == second
