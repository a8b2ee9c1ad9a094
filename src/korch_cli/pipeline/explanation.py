"""The program of the last search for a model, kept in the store, and what it says of a node."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from korch_cli.core.companions import plan_beside
from korch_cli.core.errors import KorchError, UsageError
from korch_cli.core.explanation import Choice, ExplainRecord, NodeRecord
from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.plan import Plan, Priced
from korch_cli.core.primitive import Input, Opaque
from korch_cli.core.types import UNKNOWN
from korch_cli.emit import read_plan
from korch_cli.measure import ProfileStore
from korch_cli.pipeline.digest import file_digest
from korch_cli.pipeline.search import Search
from korch_cli.pipeline.ways import Ways
from korch_cli.solve import least_us, solve_with

_FORM = 1
_WORKED_OUT = 3
"""Choices of each kind for which the cheapest plan is found; more are only bounded."""
_SECONDS = 60.0
_EQUAL_US = 0.05


@dataclass(frozen=True, slots=True)
class Program:
    """A program with its prices, without what primitives mean.

    Attributes:
        graph: values by name, whether they are given, and which ones are equal; primitives are opaque.
        priced: every candidate that can run; `sources` says where each price comes from.
        sources: "profiled", "measured" or "bound".
        names: of the operators of the common model.
        types: of these operators.
        written: how many of them are those of the model as it is written.
        results: for each operator, the values that it leaves.
        chosen: positions in `priced` of what the plan runs.
        reason: what became of the plan, one sentence.
    """

    graph: PrimitiveGraph
    priced: tuple[Priced, ...]
    sources: tuple[str, ...]
    names: tuple[str, ...]
    types: tuple[str, ...]
    written: int
    results: tuple[tuple[int, ...], ...]
    chosen: frozenset[int]
    reason: str


def program_of(ways: Ways, search: Search, plan: Plan, reason: str) -> Program:
    """Return the program of a search at its end, and what its plan takes."""
    priced = list(search.vendor)
    sources = ["profiled"] * len(priced)
    for candidate in search.candidates.candidates:
        digest = candidate.digest
        known = digest in search.laboratory.results
        cost_us = search.laboratory.cost(digest) if known else search.bounds[digest]
        if math.isfinite(cost_us) and digest not in search.excluded:
            priced.append(Priced(candidate, cost_us))
            sources.append("measured" if known else "bound")
    taken = {p.candidate for p in plan.kernels}
    return Program(
        graph=ways.graph,
        priced=tuple(priced),
        sources=tuple(sources),
        names=tuple(operator.name for operator in ways.model.operators),
        types=tuple(operator.op_type for operator in ways.model.operators),
        written=len(ways.members[0].model.operators),
        results=tuple(
            tuple(v for v in ways.graph.operator_outputs.get(operator.index, ()) if v >= 0)
            for operator in ways.model.operators
        ),
        chosen=frozenset(i for i, p in enumerate(priced) if p.candidate in taken),
        reason=reason,
    )


def keep_program(store: ProfileStore, digest: str, program: Program) -> None:
    """Keep a program for a model whose file has this SHA-256, in place of an earlier one."""
    store.replace(_key(digest), _encoded(program))


def explain(model: Path, node: str | None, store: ProfileStore) -> ExplainRecord:
    """Say what a plan runs for a node, or for all, and what else there was.

    Args:
        model: what was optimised, or what came out of it, with its plan beside it.
        node: name of a node, None for all.
        store: where the search kept its program.

    Raises:
        UsageError: there is neither a program nor a plan for the model, or no such node.
    """
    plan = _plan_of(model)
    digest = file_digest(model) if plan is None else str(plan["model_sha256"])
    program = store.read(_key(digest), _decoded)
    if program is not None:
        return _explained(model, node, program)
    if plan is None or not plan["changed"]:
        raise UsageError(
            "nothing is known of this model", where=str(model), hint="run korch optimize on it first, on this machine"
        )
    return _from_plan(model, node, plan)


def _explained(model: Path, node: str | None, program: Program) -> ExplainRecord:
    plan_us = math.fsum(program.priced[i].cost_us for i in program.chosen)
    asked = list(range(program.written)) if node is None else [_index(program.names, node, model)]
    asking = _Asking(program, plan_us)
    records = tuple(asking.brief(o) if node is None else asking.node(o) for o in asked)
    return ExplainRecord(str(model), plan_us, records, (program.reason,))


def _index(names: Sequence[str], node: str, model: Path) -> int:
    if node not in names:
        near = [name for name in names if node in name][:5]
        hint = f"did you mean {', '.join(near)}?" if near else "korch explain without a node lists all of them"
        raise UsageError("the model has no such node", where=f"{model.name}: {node}", hint=hint)
    return names.index(node)


class _Asking:
    """Finds the choices for nodes of one program."""

    def __init__(self, program: Program, plan_us: float) -> None:
        self._program, self._plan_us = program, plan_us
        self._deadline = time.monotonic() + _SECONDS
        self._own: list[set[int]] = [set() for _ in program.names]
        for value in program.graph.primitives():
            if value.operator >= 0:
                self._own[value.operator].add(value.id)

    def brief(self, operator: int) -> NodeRecord:
        """Return what the plan runs for a node."""
        program, places = self._program, list(self._places(operator))
        taken = [self._choice(i, None, None) for i in places if i in program.chosen]
        reason = self._plain(taken)
        return NodeRecord(program.names[operator], program.types[operator], tuple(taken), len(places), reason)

    def node(self, operator: int) -> NodeRecord:
        """Return what could compute a node, with the cost of the cheapest plan for the most promising choices."""
        program, places = self._program, list(self._places(operator))
        least = self._least(places)
        places = [i for i in places if math.isfinite(least[i])]
        ranked = sorted(places, key=lambda i: (i not in program.chosen, least[i], program.priced[i].cost_us, i))
        counts: dict[str, int] = {}
        choices = []
        for i in ranked:
            kind = self._kind(i)
            taken = i in program.chosen
            counts[kind] = counts.get(kind, 0) + (not taken)
            if not taken and counts[kind] > _WORKED_OUT:
                continue
            choices.append(self._choice(i, self._plan_us if taken else self._with(i), least[i]))
        choices.sort(key=lambda c: (not c.taken, math.inf if c.plan_us is None else c.plan_us))
        reason = self._reason(choices)
        return NodeRecord(program.names[operator], program.types[operator], tuple(choices), len(places), reason)

    def _places(self, operator: int) -> Iterator[int]:
        """The candidates that run the node, compute a part of it, or leave what it leaves."""
        program, own = self._program, self._own[operator]
        results = {program.graph.first(v) for v in program.results[operator]}
        for i, priced in enumerate(program.priced):
            candidate = priced.candidate
            if candidate.kind is CandidateKind.REORDER:
                continue
            leaves = any(program.graph.first(v) in results for v in candidate.body)
            if operator in candidate.operators or leaves or not own.isdisjoint(candidate.body):
                yield i

    def _kind(self, i: int) -> str:
        candidate = self._program.priced[i].candidate
        if candidate.kind is CandidateKind.GENERATED:
            return "kernel"
        return "rewritten" if any(o >= self._program.written for o in candidate.operators) else "operators"

    def _choice(self, i: int, plan_us: float | None, least: float | None) -> Choice:
        program = self._program
        priced = program.priced[i]
        candidate = priced.candidate
        operators = candidate.operators or sorted({program.graph.values[v].operator for v in candidate.body})
        nodes = tuple(program.names[o] for o in operators)
        taken = i in program.chosen
        return Choice(self._kind(i), nodes, priced.cost_us, program.sources[i], plan_us, least, taken)

    def _least(self, places: Sequence[int]) -> dict[int, float]:
        """Return what a plan with each of these candidates costs at least, all others having been measured."""
        program, asked = self._program, set(places)
        kept = [i for i, source in enumerate(program.sources) if source != "bound" or i in asked]
        found = least_us(program.graph, [program.priced[i] for i in kept], time_limit_s=_SECONDS / 2)
        return dict(zip(kept, found, strict=True))

    def _with(self, i: int) -> float | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            return None
        # What was never measured is in no plan that the search could have ended with, but for what is asked about.
        others = [p for j, p in enumerate(self._program.priced) if j != i and self._program.sources[j] != "bound"]
        try:
            plan = solve_with(self._program.graph, [self._program.priced[i], *others], 0, time_limit_s=left)
        except KorchError:  # It reads what only kernels leave that were not measured either.
            return None
        return plan.cost_us if plan.is_proven else None

    def _plain(self, taken: Sequence[Choice]) -> str:
        if not taken:
            return "Nothing is run for it: what reads its results is computed in another way."
        return f"The plan runs {' and '.join(_words(choice) for choice in taken)}."

    def _reason(self, choices: Sequence[Choice]) -> str:
        taken = [choice for choice in choices if choice.taken]
        others = [choice for choice in choices if not choice.taken and choice.plan_us is not None]
        sentence = self._plain(taken)
        if not others:
            return f"{sentence} There was no other choice."
        best = min(others, key=lambda choice: choice.plan_us or 0.0)
        more = (best.plan_us or 0.0) - self._plan_us
        if more > _EQUAL_US:
            return f"{sentence} With {_words(best)} instead, the whole would take {more:.1f} µs more."
        if best.source == "bound":
            return f"{sentence} {_words(best).capitalize()} was never measured, and might be as good."
        return f"{sentence} With {_words(best)} instead, the whole would take as long."


def _words(choice: Choice) -> str:
    nodes = " + ".join(choice.nodes[:4]) + (f" + {len(choice.nodes) - 4} more" if len(choice.nodes) > 4 else "")
    if choice.kind == "kernel":
        return f"a generated kernel for {nodes}"
    return f"ONNX Runtime's {nodes}"


def _plan_of(model: Path) -> Mapping[str, Any] | None:
    """Return the plan beside a model, None if there is none, or if it only names the model that it was made from."""
    path = plan_beside(model)
    return read_plan(path) if path.is_file() else None


def _from_plan(model: Path, node: str | None, plan: Mapping[str, Any]) -> ExplainRecord:
    """Say what a plan runs; what else there was is known only where the search was."""
    times = {entry["name"]: entry for entry in plan["kernels"]}
    used: dict[str, int] = {}
    choices: list[Choice] = []
    for step in plan["sequence"]:
        if "kernel" in step:
            entry = times[step["kernel"]]
            place = used[step["kernel"]] = used.get(step["kernel"], -1) + 1
            try:
                nodes = tuple(map(str, entry["nodes"][place]))
            except (LookupError, TypeError) as error:
                raise UsageError("the plan does not say what its kernels compute", where=step["kernel"]) from error
            choices.append(Choice("kernel", nodes, float(entry["time_us"]), "measured", None, None, True))
        elif "nodes" in step:
            choices.append(Choice("operators", tuple(step["nodes"]), None, "profiled", None, None, True))
    names = list(dict.fromkeys(name for choice in choices for name in choice.nodes))
    asked = names if node is None else [names[_index(names, node, model)]]
    records = []
    for name in asked:
        taken = tuple(choice for choice in choices if name in choice.nodes)
        reason = f"The plan runs {' and '.join(map(_words, taken))}."
        records.append(NodeRecord(name, "", taken, len(taken), reason))
    note = "The store of this machine has nothing of the search: what else was considered is not known."
    return ExplainRecord(str(model), float(plan["cost_us"]), tuple(records), (note,))


def _key(digest: str) -> str:
    return f"program/{_FORM}/{digest}"


def _encoded(program: Program) -> dict[str, Any]:
    graph = program.graph
    return {
        "values": [[v.name, v.is_source, v.operator] for v in graph.values],
        "outputs": list(graph.outputs),
        "alternatives": [[v, first] for v, first in graph.alternatives.items()],
        "candidates": [
            [
                p.candidate.kind.value,
                list(p.candidate.body),
                [[port.value, port.arrangement] for port in p.candidate.reads],
                [[port.value, port.arrangement] for port in p.candidate.writes],
                list(p.candidate.operators),
                p.cost_us,
                source,
            ]
            for p, source in zip(program.priced, program.sources, strict=True)
        ],
        "operators": [
            list(entry) for entry in zip(program.names, program.types, map(list, program.results), strict=True)
        ],
        "written": program.written,
        "chosen": sorted(program.chosen),
        "reason": program.reason,
    }


def _decoded(document: dict[str, Any]) -> Program:
    values = tuple(
        Value(i, str(name), UNKNOWN, Input() if given else Opaque(int(operator), 0), (), int(operator))
        for i, (name, given, operator) in enumerate(document["values"])
    )
    alternatives = {int(v): int(first) for v, first in document["alternatives"]}
    graph = PrimitiveGraph(values, tuple(map(int, document["outputs"])), {}, {}, alternatives)
    priced, sources = [], []
    for kind, body, reads, writes, operators, cost_us, source in document["candidates"]:
        ports = [tuple(Port(int(v), str(arrangement)) for v, arrangement in group) for group in (reads, writes)]
        candidate = Candidate(CandidateKind(kind), tuple(body), ports[0], ports[1], "", tuple(operators))
        priced.append(Priced(candidate, float(cost_us)))
        sources.append(str(source))
    names, types, results = zip(*document["operators"], strict=True) if document["operators"] else ((), (), ())
    return Program(
        graph,
        tuple(priced),
        tuple(sources),
        tuple(map(str, names)),
        tuple(map(str, types)),
        int(document["written"]),
        tuple(tuple(map(int, entry)) for entry in results),
        frozenset(map(int, document["chosen"])),
        str(document["reason"]),
    )
