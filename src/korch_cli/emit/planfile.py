"""The plan as a document, for people, for tools, and to build the output again; equal plans give equal bytes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from korch_cli.core.errors import UsageError
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import CandidateKind
from korch_cli.core.launch import GeneratedKernel
from korch_cli.core.machine import Work
from korch_cli.core.model import Model
from korch_cli.core.plan import Plan
from korch_cli.core.processor import PROCESSORS

PLAN_SCHEMA = "korch.plan/2"
_LARGEST_NUMBER = 1e300
"""Neither NaN nor an infinity is below it."""
_LARGEST_EXTENT = 2**31 - 1


def plan_document(
    model: Model,
    model_sha256: str,
    reason: str,
    plan: Plan | None,
    kernels: Mapping[str, GeneratedKernel],
    domain: str | None,
    graph: PrimitiveGraph,
    shapes: Mapping[str, Sequence[int]],
    ways: Sequence[str] = ("written",),
    made_with: Mapping[str, object] | None = None,
    work: Mapping[str, Work] = MappingProxyType({}),
) -> str:
    """Return what was written and why, as JSON with sorted keys.

    The fields are `schema`, `model_sha256`, `changed`, `reason`, and for a plan `domain`, `status` ("optimal" if
    `bound_us` proves it, else "feasible"), `cost_us` and `bound_us` (of the whole plan), `vendor_operators` (how many
    ONNX Runtime runs) and `kernels`. Each of these has a `name` and `digest`, its `schedule`, the number of `uses`, the
    `time_us` of one use, the `bytes` and `flops` that it cannot do without, and `nodes`: for each use the names of the
    input model's nodes that it computes,
    wholly or in part. `shapes` are those of the inputs, and `sequence` says what runs in which order: `nodes` of the
    input model or of the rewritten one, a `primitive` as a node of its own, or a `kernel` with the `values` of the
    primitive graph that it computes and the `way` to write the model that these are in. Microseconds have three
    decimals.

    Args:
        model: what was optimised.
        model_sha256: of the input file.
        reason: one sentence.
        plan: what the output runs; None if it is the input, unchanged.
        kernels: the kernel for each digest of the plan.
        domain: of the custom operators.
        graph: the primitives of the model.
        shapes: what the inputs were bound to.
        ways: names of the ways of writing the model, by the number that candidates have for them.
        made_with: further fields of a plan: `portable`, true if nodes were rewritten in ONNX's own domain alone; `cpu`,
            what the kernels were built for, if that is not the processor at hand; `target` with its `archs`; and
            `estimated_for`, the GPU that the times are estimated for.
        work: what each kernel has to do, by digest.
    """
    document: dict[str, object] = {
        "schema": PLAN_SCHEMA,
        "model_sha256": model_sha256,
        "changed": plan is not None,
        "reason": reason,
    }
    if plan is not None:
        document |= {
            "domain": domain,
            "status": plan.status,
            "cost_us": round(plan.cost_us, 3),
            "bound_us": round(plan.bound_us, 3),
            "vendor_operators": sum(len(p.candidate.operators) for p in plan.kernels),
            "kernels": _kernels(model, plan, kernels, graph, work),
            "shapes": {name: list(shape) for name, shape in shapes.items()},
            "sequence": list(_sequence(model, plan, kernels, graph, ways)),
        }
        document |= made_with or {}
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _kernels(
    model: Model,
    plan: Plan,
    kernels: Mapping[str, GeneratedKernel],
    graph: PrimitiveGraph,
    work: Mapping[str, Work],
) -> list[dict[str, object]]:
    chosen = [p for p in plan.kernels if p.candidate.kind is CandidateKind.GENERATED]
    uses = Counter(p.candidate.digest for p in chosen)
    found: dict[str, dict[str, object]] = {}
    for priced in chosen:
        digest = priced.candidate.digest
        operators = sorted({graph.values[v].operator for v in priced.candidate.body})
        nodes = [model.operators[o].name for o in operators]
        entry = found.setdefault(
            digest,
            {
                "name": kernels[digest].name,
                "digest": digest,
                "schedule": kernels[digest].schedule,
                "uses": uses[digest],
                "time_us": round(priced.cost_us, 3),
                "nodes": [],
                **({"bytes": work[digest].bytes_moved, "flops": round(work[digest].flops)} if digest in work else {}),
            },
        )
        listed = entry["nodes"]
        assert isinstance(listed, list)
        listed.append(nodes)
    return sorted(found.values(), key=lambda entry: str(entry["name"]))


def _sequence(
    model: Model, plan: Plan, kernels: Mapping[str, GeneratedKernel], graph: PrimitiveGraph, ways: Sequence[str]
) -> Iterator[dict[str, object]]:
    for priced in plan.kernels:
        candidate = priced.candidate
        values = [graph.values[v].name for v in candidate.body]
        if candidate.kind is CandidateKind.GENERATED:
            yield {"kernel": kernels[candidate.digest].name, "values": values, "way": ways[candidate.way]}
        elif candidate.operators:
            yield {"nodes": [model.operators[o].name for o in candidate.operators]}
        elif candidate.kind is CandidateKind.VENDOR:
            yield {"primitive": values[0]}


def read_plan(path: Path) -> dict[str, Any]:
    """Return a plan document.

    Raises:
        UsageError: there is no such file, or it holds no plan of this version.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"the plan cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise UsageError("the plan is no JSON document", where=str(path)) from error
    if not isinstance(document, dict) or document.get("schema") != PLAN_SCHEMA:
        raise UsageError(f"this is no plan: its schema is not {PLAN_SCHEMA!r}", where=str(path))
    needed = _FORM | _BUILT_FORM if document.get("changed") is True else _FORM
    damaged = next((key for key, sound in needed.items() if not sound(document.get(key))), None)
    if (
        damaged is None
        and needed is not _FORM
        and not _named_kernels(document) <= {kernel["name"] for kernel in document["kernels"]}
    ):
        damaged = "sequence"
    if damaged is not None:
        hint = "search again, without --from-plan"
        raise UsageError(f"the plan is damaged: its {damaged!r} is not what korch writes", where=str(path), hint=hint)
    return document


def _named_kernels(document: Mapping[str, Any]) -> set[str]:
    return {step["kernel"] for step in document.get("sequence", ()) if "kernel" in step}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST_NUMBER


def _is_architecture(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"sm_\d{2,3}", value) is not None


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_names(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(name, str) for name in value)


def _are_shapes(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(shape, list) and all(type(extent) is int and 0 <= extent <= _LARGEST_EXTENT for extent in shape)
        for shape in value.values()
    )


def _are_kernels(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(entry, dict) and _is_text(entry.get("name")) and _is_number(entry.get("time_us")) for entry in value
    )


def _are_steps(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(step, dict)
        and (_are_names(step.get("nodes")) or _is_text(step.get("primitive")) or _is_kernel_step(step))
        for step in value
    )


def _is_kernel_step(step: Mapping[str, object]) -> bool:
    return _are_names(step.get("values")) and _is_text(step.get("kernel")) and _is_text(step.get("way"))


_FORM: dict[str, Callable[[object], bool]] = {
    "model_sha256": _is_text,
    "changed": lambda value: isinstance(value, bool),
    "cpu": lambda value: value is None or value in PROCESSORS,
}
"""What every plan must hold."""
_BUILT_FORM: dict[str, Callable[[object], bool]] = {
    "shapes": _are_shapes,
    "kernels": _are_kernels,
    "sequence": _are_steps,
    "cost_us": _is_number,
    "bound_us": _is_number,
    "status": _is_text,
    "target": lambda value: value in (None, "cpu", "cuda"),
    "archs": lambda value: value is None or (isinstance(value, list) and all(map(_is_architecture, value))),
    "estimated_for": lambda value: value is None or _is_text(value),
}
"""What a plan that changes the model must hold besides, to be built again."""
