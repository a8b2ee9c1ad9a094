"""What a CUDA kernel moves and computes, for the roofline."""

from __future__ import annotations

import math
from collections.abc import Sequence

from korch_cli.codegen.cuda.plan import Step
from korch_cli.codegen.nest import Load, Nest
from korch_cli.codegen.schedule import Schedule, unit_cost
from korch_cli.core.graph import PrimitiveGraph

_WHOLE = Schedule("whole", (), None, None, (), columns=False)


def total_cost(graph: PrimitiveGraph, steps: Sequence[Step]) -> tuple[int, int, int]:
    """Return the bytes that `steps` read and write, each element once a launch, and the operations that they do."""
    sizes = [value.type.size_bytes for value in graph.inputs()]
    read = sum(_read_bytes(step.nest, sizes) for step in steps)
    written = sum(_written_bytes(step.nest) for step in steps)
    return read, written, sum(unit_cost(step.nest, _WHOLE)[1] for step in steps)


def _read_bytes(nest: Nest, sizes: Sequence[int]) -> int:
    touched: dict[int, int] = {}
    for node in nest.nodes:
        if isinstance(node.operation, Load):
            points = math.prod(var.extent for var in node.operation.address.variables)
            argument = node.operation.argument
            touched[argument] = touched.get(argument, 0) + points * node.dtype.size_bytes
    return sum(min(moved, sizes[a]) if a < len(sizes) else moved for a, moved in touched.items())


def _written_bytes(nest: Nest) -> int:
    return sum(
        math.prod(var.extent for var in store.address.variables) * nest.nodes[store.node].dtype.size_bytes
        for store in nest.stores
    )
