"""What korch makes of a model, as far as that can be said without a compiler, without timing and without a runtime."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from korch_cli.candidates import SearchLimits, cut, enumerate_candidates, single_operators
from korch_cli.codegen import generate
from korch_cli.core.check import check
from korch_cli.core.companions import plan_beside
from korch_cli.core.errors import Refusal
from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.inspection import (
    CandidateRecord,
    FileRecord,
    InspectRecord,
    InstalledKernel,
    OpaqueRecord,
    OutputRecord,
    PortRecord,
    PrimitiveCount,
)
from korch_cli.core.kernel import Candidate
from korch_cli.core.model import Bindings, Model, Operator
from korch_cli.core.primitive import Elementwise, Linear, Reduce, WindowReduce
from korch_cli.core.progress import Progress
from korch_cli.core.text import print_op
from korch_cli.emit import PLAN_SCHEMA, can_be_function
from korch_cli.fission import fission
from korch_cli.load import describe_file, load, unroll
from korch_cli.pipeline.digest import file_digest
from korch_cli.rewrite import rewrite
from korch_cli.verify import find_library

_TRIED = 300
"""Distinct candidates that the code generator is asked for, where not all are wanted."""


def inspect_model(
    source: Path, bindings: Bindings, progress: Progress, *, max_primitives: int = 16, exhaustive: bool = False
) -> InspectRecord:
    """Return what korch makes of a model.

    Args:
        source: the ONNX file.
        bindings: values of symbolic dimensions.
        progress: told what happens.
        max_primitives: primitives in one kernel.
        exhaustive: ask the code generator for every distinct candidate; else for those of one primitive, and for others
            evenly spread over all sizes.

    Raises:
        UsageError: the file is missing, or a dimension has no number.
        ModelError: the file is no valid ONNX model.
    """
    progress.stage("Loading the model")
    file = describe_file(source)
    loaded = load(source, bindings)
    model = unroll(loaded).flat
    graph = rewrite(fission(model))
    check(graph)
    progress.stage("Enumerating candidate kernels")
    candidates = _candidates(model, graph, progress, max_primitives, exhaustive=exhaustive)
    return InspectRecord(
        model=str(source),
        file=file,
        inputs=_ports(loaded, loaded.inputs),
        outputs=_ports(loaded, loaded.outputs),
        operators=_by_count(Counter(map(_type_name, model.operators))),
        primitives=_primitives(graph),
        opaque=tuple(_opaque(model.operators[o], sentence) for o, sentence in sorted(graph.refusals.items())),
        candidates=candidates,
        output=_output(source, file),
        notes=loaded.notes,
    )


def _ports(model: Model, names: Sequence[str]) -> tuple[PortRecord, ...]:
    types = [model.constants.get(name) or model.types.get(name) for name in names]
    return tuple(
        PortRecord(name, None if t is None else t.dtype.text, None if t is None else t.shape)
        for name, t in zip(names, types, strict=True)
    )


def _type_name(operator: Operator) -> str:
    return f"{operator.domain}::{operator.op_type}" if operator.domain else operator.op_type


def _by_count(counter: Counter[str]) -> dict[str, int]:
    return dict(sorted(counter.items(), key=lambda item: (-item[1], item[0])))


def _opaque(operator: Operator, sentence: str) -> OpaqueRecord:
    return OpaqueRecord(operator.name, operator.op_type, operator.domain, sentence)


def _primitives(graph: PrimitiveGraph) -> tuple[PrimitiveCount, ...]:
    found = Counter(map(_kind, graph.primitives()))
    totals: Counter[str] = Counter()
    for (kind, _), number in found.items():
        totals[kind] += number
    ordered = sorted(found.items(), key=lambda item: (-totals[item[0][0]], item[0][0], -item[1], item[0][1]))
    return tuple(PrimitiveCount(kind, function, number) for (kind, function), number in ordered)


def _kind(value: Value) -> tuple[str, str]:
    kind = print_op(value.op).split(maxsplit=1)[0]
    match value.op:
        case Elementwise(function) | Reduce(function) | WindowReduce(function):
            return kind, function
        case Linear(product):
            return kind, product
    return kind, ""


def _candidates(
    model: Model, graph: PrimitiveGraph, progress: Progress, max_primitives: int, *, exhaustive: bool
) -> CandidateRecord:
    found = enumerate_candidates(graph, SearchLimits(max_primitives=max_primitives))
    distinct = {c.digest: c for c in reversed(found.candidates)}
    tried = _sample(sorted(distinct.values(), key=lambda c: (len(c.body), c.body)), None if exhaustive else _TRIED)
    progress.stage("Asking the code generator")
    opset = model.opsets.get("", 1)
    accepted: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    inexpressible: Counter[str] = Counter()
    for done, candidate in enumerate(tried):
        progress.step(done, len(tried))
        body = cut(graph, candidate)
        unsayable = can_be_function(body, opset)
        if unsayable is not None:
            inexpressible[unsayable] += 1
            continue
        try:
            accepted[generate(body)[0].schedule] += 1
        except Refusal as refusal:
            refused[refusal.sentence] += 1
    return CandidateRecord(
        operators=len(single_operators(model, graph)),
        enumerated=len(found.candidates),
        distinct=len(distinct),
        tried=len(tried),
        accepted=_by_count(accepted),
        refused=_by_count(refused),
        inexpressible=_by_count(inexpressible),
        left_out=_by_count(Counter({reason: number for reason, number in found.counters.items() if number})),
        max_primitives=max_primitives,
    )


def _sample(ordered: Sequence[Candidate], most: int | None) -> Sequence[Candidate]:
    """Return the candidates of one primitive and others evenly spread, at most `most` of them."""
    if most is None or len(ordered) <= most:
        return ordered
    single = sum(len(candidate.body) == 1 for candidate in ordered)
    first = min(single, most // 2)
    rest, places = ordered[first:], most - first
    return [*ordered[:first], *(rest[i * len(rest) // places] for i in range(places))]


def _output(source: Path, file: FileRecord) -> OutputRecord | None:
    """Return what is known of a model that korch wrote: one with kernels, or one that it left as it was."""
    document, path = plan_of(source, file)
    if not file.kernels and document is None:
        return None
    planned = {entry["name"]: entry for entry in (document or {}).get("kernels", ())}
    uses: Counter[str] = Counter()
    for kernels in file.kernels.values():
        uses.update(kernels)
    library = find_library(source)
    return OutputRecord(
        library=None if library is None else str(library),
        plan=path,
        reason=None if document is None else document["reason"],
        kernels=tuple(_installed(name, number, planned.get(name)) for name, number in _by_count(uses).items()),
    )


def _installed(name: str, uses: int, planned: dict[str, Any] | None) -> InstalledKernel:
    if planned is None:
        return InstalledKernel(name, uses, None, None, ())
    return InstalledKernel(name, uses, planned["time_us"], planned["schedule"], tuple(map(tuple, planned["nodes"])))


def plan_of(source: Path, file: FileRecord) -> tuple[dict[str, Any] | None, str | None]:
    """Return the plan beside a model and its path, if it is this model's."""
    path = plan_beside(source)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None, None
    if not isinstance(document, dict) or document.get("schema") != PLAN_SCHEMA:
        return None, None
    if document.get("changed"):
        belongs = document.get("domain") in file.kernels
    else:
        digest = file_digest(source)
        belongs = not file.kernels and document.get("model_sha256") == digest
    return (document, str(path)) if belongs else (None, None)
