"""Values that every plan has to touch: the rows that make the program's relaxation tight.

Say that a plan *touches* a value when it runs a kernel that computes the value in its body, or when the value is in
memory at some time. Let K(v) be the candidates that have v in their body, and those that write v in some arrangement
without reading it in any.

Whatever touches v runs a member of K(v): a kernel with v in its body is one, and if v is in memory, then the kernel
that wrote it first cannot have read it. So for every value that all plans touch, the sum of u over K(v) is at least 1.

All plans touch each output. If all plans touch v, and w is in the body or among the reads of every member of K(v),
then all plans touch w, for the member that runs either computes w or has it in memory. What follows from the outputs
in this way depends only on the candidates, not on what primitives mean; it holds for vendor kernels that read other
values than their primitives do, for recomputation, and for conversions between arrangements.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate
from korch_cli.solve.execution import goals


def coverage(graph: PrimitiveGraph, candidates: Sequence[Candidate]) -> list[tuple[int, ...]]:
    """Return, for each value that every plan touches, the positions of the candidates of which one must run."""
    touching = _touching(candidates)
    todo = [port.value for port in goals(graph)]
    seen = set(todo)
    rows: dict[tuple[int, ...], None] = {}
    while todo:
        v = todo.pop()
        members = touching.get(v, [])
        rows[tuple(members)] = None
        for w in _common(candidates, members):
            if w not in seen and not graph.values[w].is_source:
                seen.add(w)
                todo.append(w)
    return list(rows)


def _touching(candidates: Sequence[Candidate]) -> dict[int, list[int]]:
    touching: dict[int, list[int]] = {}
    for i, candidate in enumerate(candidates):
        read = {port.value for port in candidate.reads}
        written = {port.value for port in candidate.writes}
        for v in (written - read).union(candidate.body):
            touching.setdefault(v, []).append(i)
    return touching


def _common(candidates: Sequence[Candidate], members: Sequence[int]) -> set[int]:
    """The values that every one of `members` computes or reads."""
    common: set[int] | None = None
    for i in members:
        held = chain(candidates[i].body, (port.value for port in candidates[i].reads))
        if common is None:
            common = set(held)
        else:
            common.intersection_update(held)
        if not common:
            break
    return common or set()
