"""What a kernel would cost the whole plan, if it had to run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.kernel import Port
from korch_cli.core.plan import UNITS_PER_US, Plan, Priced
from korch_cli.core.primitive import Opaque
from korch_cli.core.types import UNKNOWN
from korch_cli.solve.formulation import Formulation
from korch_cli.solve.program import runnable, solve
from korch_cli.solve.relaxation import Relaxation

_MARK = "korch/required"


def solve_with(graph: PrimitiveGraph, priced: Sequence[Priced], required: int, *, time_limit_s: float) -> Plan:
    """Return the cheapest plan that runs the candidate at position `required`; proven unless time is up before.

    The candidate gets one more result, which nothing else writes and every plan has to leave.

    Raises:
        KorchError: no plan runs it.
    """
    mark = len(graph.values)
    value = Value(mark, _MARK, UNKNOWN, Opaque(-1, 0), (), -1)
    marked = replace(graph, values=(*graph.values, value), outputs=(*graph.outputs, mark))
    one = priced[required]
    with_mark = Priced(replace(one.candidate, writes=(*one.candidate.writes, Port(mark))), one.cost_us)
    plan = solve(marked, [*priced[:required], with_mark, *priced[required + 1 :]], time_limit_s=time_limit_s)
    kernels = tuple(one if p is with_mark else p for p in plan.kernels)
    return replace(plan, kernels=kernels)


def least_us(graph: PrimitiveGraph, priced: Sequence[Priced], *, time_limit_s: float) -> list[float]:
    """Return, for each candidate, what any plan that runs it costs at least; infinity for what can never run."""
    usable = runnable(graph, list(priced))
    relaxed = Relaxation(Formulation(graph, usable)).solve(time_limit_s)
    found = {id(p): (relaxed.bound + excess) / UNITS_PER_US for p, excess in zip(usable, relaxed.excess, strict=True)}
    return [found.get(id(p), math.inf) for p in priced]
