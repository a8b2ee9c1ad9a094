"""Which results may take the memory of operands: those that are written where nothing is read any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from korch_cli.codegen.index import Expr, Var, variable
from korch_cli.codegen.nest import Load, Nest, Reduction, Store, unreduced
from korch_cli.codegen.printer import MAX_LANES
from korch_cli.codegen.schedule import Schedule, is_vectorisable
from korch_cli.codegen.segments import segments
from korch_cli.core.graph import PrimitiveGraph

Part = tuple[Nest, Schedule]


def reusable_operands(graph: PrimitiveGraph, parts: Sequence[Part]) -> tuple[tuple[int, int], ...]:
    """Return pairs of an operand and a result, as positions, that may be the same memory.

    Every point reads its own element of the operand before it writes the result there, no point runs twice, and others
    read that element only in reductions over their own row, which end before the row is written.
    """
    inputs = [value.type for value in graph.inputs()]
    pairs = []
    for number, (nest, schedule) in enumerate(parts):
        elsewhere = {load.argument for other, _ in (*parts[:number], *parts[number + 1 :]) for load in _loads(other)}
        for store in nest.stores if _runs_points_once(nest, schedule) else ():
            result = graph.values[graph.outputs[store.result]].type
            for argument in _read_at(nest, store, _along_rows(nest, schedule)) - elsewhere:
                given = inputs[argument]
                if (given.shape, given.dtype.size_bytes) == (result.shape, result.dtype.size_bytes):
                    pairs.append((argument, store.result))
    return tuple(sorted(pairs))


def is_reused(store: Store, pairs: Sequence[tuple[int, int]]) -> bool:
    """Whether a result may take the memory of an operand."""
    return any(result == store.result for _, result in pairs)


def _read_at(nest: Nest, store: Store, rows: Mapping[Var, Expr]) -> set[int]:
    """The operands whose element at the address of a store goes into it, and that are read at no other one."""
    if store.address.variables != {var for var in nest.variables if var.extent > 1}:
        return set()
    used = [nest.nodes[position].operation for position in unreduced(nest.nodes, [store.node])]
    direct = {load.argument for load in used if isinstance(load, Load) and load == Load(load.argument, store.address)}
    other = {load.argument for load in _loads(nest) if load.guards or load.address.substitute(rows) != store.address}
    return direct - other


def _loads(nest: Nest) -> Iterator[Load]:
    return (node.operation for node in nest.nodes if isinstance(node.operation, Load))


def _along_rows(nest: Nest, schedule: Schedule) -> dict[Var, Expr]:
    """The variables of reductions, as those of the loops over results that run over the same row."""
    found: dict[Var, Expr] = {}
    for node in nest.reductions:
        assert isinstance(node.operation, Reduction)
        bound = node.operation.variables
        if [var.extent for var in bound] == [var.extent for var in schedule.inner]:
            found |= zip(bound, map(variable, schedule.inner), strict=True)
    return found


def _runs_points_once(nest: Nest, schedule: Schedule) -> bool:
    """Whether no last vector, and no last batch of rows, does some again."""
    if not is_vectorisable(nest):
        return True
    overlapping = [schedule.lanes, schedule.blocked[0] if schedule.batched and schedule.blocked else None]
    if any(var is not None and var.extent % MAX_LANES for var in overlapping):
        return False
    return bool(nest.reductions) or schedule.lanes is None or not segments(nest, schedule.lanes)
