"""The plan as a document, for people and for tools; equal plans give equal bytes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

from korch_cli.core.kernel import CandidateKind, Kernel
from korch_cli.core.model import Model
from korch_cli.core.plan import Plan

PLAN_SCHEMA = "korch.plan/1"


def plan_document(
    model: Model,
    model_sha256: str,
    reason: str,
    plan: Plan | None,
    kernels: Mapping[str, Kernel],
    domain: str | None,
    operators: Mapping[int, int],
) -> str:
    """Return what was written and why, as JSON with sorted keys.

    The fields are `schema`, `model_sha256`, `changed`, `reason`, and for a plan `domain`, `status` (the solver's word),
    `cost_us` and `bound_us` (of the whole plan), `vendor_operators` (how many ONNX Runtime runs) and `kernels`. Each of
    these has a `name` and `digest`, its `schedule`, the number of `uses`, the `time_us` of one use, and `nodes`: for
    each use the names of the input model's nodes that it computes, wholly or in part. Microseconds have three decimals.

    Args:
        model: what was optimised.
        model_sha256: of the input file.
        reason: one sentence.
        plan: what the output runs; None if it is the input, unchanged.
        kernels: the kernel for each digest of the plan.
        domain: of the custom operators.
        operators: for each value of the graph, the operator that it came from.
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
            "kernels": _kernels(model, plan, kernels, operators),
        }
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _kernels(
    model: Model, plan: Plan, kernels: Mapping[str, Kernel], operators: Mapping[int, int]
) -> list[dict[str, object]]:
    chosen = [p for p in plan.kernels if p.candidate.kind is CandidateKind.GENERATED]
    uses = Counter(p.candidate.digest for p in chosen)
    found: dict[str, dict[str, object]] = {}
    for priced in chosen:
        digest = priced.candidate.digest
        nodes = [model.operators[o].name for o in sorted({operators[v] for v in priced.candidate.body})]
        entry = found.setdefault(
            digest,
            {
                "name": kernels[digest].name,
                "digest": digest,
                "schedule": kernels[digest].schedule,
                "uses": uses[digest],
                "time_us": round(priced.cost_us, 3),
                "nodes": [],
            },
        )
        listed = entry["nodes"]
        assert isinstance(listed, list)
        listed.append(nodes)
    return sorted(found.values(), key=lambda entry: str(entry["name"]))
