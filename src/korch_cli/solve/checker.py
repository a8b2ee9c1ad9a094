"""An independent check of a plan: it knows nothing of how the plan was found."""

from __future__ import annotations

import math

from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Arrangement, Candidate, CandidateKind, Port
from korch_cli.core.plan import Plan
from korch_cli.core.primitive import Constant, Linear, Opaque, Reshape

_PLAIN = Arrangement.PLAIN.value


def check_plan(graph: PrimitiveGraph, plan: Plan) -> None:
    """Run the plan symbolically and check every kernel on the way.

    Raises:
        ValueError: a sentence that says which kernel or output is wrong, and how.
    """
    memory = {Port(v.id, _PLAIN) for v in graph.values if v.is_source}
    for position, priced in enumerate(plan.kernels):
        candidate = priced.candidate
        where = f"kernel {position} ({candidate.kind.value} {list(candidate.body)})"
        for port in candidate.reads:
            if port not in memory:
                raise ValueError(f"{where} reads value %{port.value} ({port.arrangement}), which is not in memory yet")
        problem = _problem(graph, candidate)
        if problem is not None:
            raise ValueError(f"{where} {problem}")
        if not math.isfinite(priced.cost_us) or priced.cost_us < 0:
            raise ValueError(f"{where} costs {priced.cost_us} µs")
        memory.update(candidate.writes)
    for output in graph.outputs:
        if Port(output, _PLAIN) not in memory:
            raise ValueError(f"the output %{output} ({graph.values[output].name}) is never in memory")
    total_us = sum(priced.cost_us for priced in plan.kernels)
    if not math.isclose(total_us, plan.cost_us, rel_tol=1e-9, abs_tol=1e-9):
        raise ValueError(f"the kernels cost {total_us} µs together, not {plan.cost_us} µs")
    if plan.bound_us > plan.cost_us:
        raise ValueError(f"the bound of {plan.bound_us} µs is above the cost of {plan.cost_us} µs")


def _problem(graph: PrimitiveGraph, candidate: Candidate) -> str | None:
    if not candidate.writes:
        return "writes nothing"
    if any(graph.values[port.value].is_source and port.arrangement == _PLAIN for port in candidate.writes):
        return "writes a source"
    if any(a >= b for a, b in zip(candidate.body, candidate.body[1:], strict=False)):
        return "has a body that is not ascending"
    if any(graph.values[v].is_source for v in candidate.body):
        return "has a source in its body"
    if any(port.value in graph.alternatives for port in (*candidate.reads, *candidate.writes)):
        return "exchanges a value that stands for no class"
    if candidate.kind is CandidateKind.REORDER:
        return _reorder_problem(candidate)
    if candidate.kind is CandidateKind.VENDOR:
        return None if candidate.operators else _node_problem(graph, candidate)
    return _generated_problem(graph, candidate)


def _reorder_problem(candidate: Candidate) -> str | None:
    if candidate.body or len(candidate.reads) != 1 or len(candidate.writes) != 1:
        return "is not a conversion of one value"
    if candidate.reads[0].value != candidate.writes[0].value:
        return "converts one value into another"
    return None


def _node_problem(graph: PrimitiveGraph, candidate: Candidate) -> str | None:
    if len(candidate.body) != 1 or not isinstance(graph.values[candidate.body[0]].op, Linear | Reshape):
        return "names no operator to run"
    return _generated_problem(graph, candidate)


def _generated_problem(graph: PrimitiveGraph, candidate: Candidate) -> str | None:
    computed = set(map(graph.first, candidate.body))
    if len(computed) < len(candidate.body):
        return "computes one value in two ways"
    read = {port.value for port in candidate.reads}
    if any(port.arrangement != _PLAIN for port in candidate.reads + candidate.writes):
        return "takes or leaves an arrangement that generated code does not know"
    for v in candidate.body:
        if isinstance(graph.values[v].op, Opaque):
            return f"has the opaque value %{v} in its body"
        for a in graph.values[v].args:
            if a not in computed and a not in read and not isinstance(graph.values[a].op, Constant):
                return f"computes %{v} from %{a}, which it neither computes nor reads"
    for port in candidate.writes:
        if port.value not in computed:
            return f"writes %{port.value}, which it does not compute"
    return None
