"""A time that no kernel for a body can beat on a given machine."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

from korch_cli.core.elementwise import FUNCTIONS
from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.kernel import KernelBody
from korch_cli.core.machine import MachineLimits, Work
from korch_cli.core.primitive import Concat, Constant, Elementwise, Gather, Linear, Pad, Reduce, Slice, WindowReduce


def lower_bound_us(body: KernelBody, limits: MachineLimits) -> float:
    """Return the dispatch time plus the larger of transfer and arithmetic time of `work_of`."""
    return limits.least_us(work_of(body))


def work_of(body: KernelBody) -> Work:
    """Return what any kernel for a body has to do.

    Every operand is read once, as far as the results depend on it (a slice needs a part), and every result is written
    once. Arithmetic counts each needed element of each primitive once.
    """
    needed = _needed_elements(body.graph)
    size_bytes = sum(needed[v.id] * v.type.dtype.size_bytes for v in body.graph.inputs())
    size_bytes += sum(body.graph.values[v].type.size_bytes for v in set(body.graph.outputs))
    return Work(size_bytes, sum(_flops(body.graph, v, needed[v.id]) for v in body.graph.primitives()))


def _needed_elements(graph: PrimitiveGraph) -> tuple[int, ...]:
    """Return how many elements of each value the outputs depend on, at least."""
    needed = [0] * len(graph.values)
    for v in graph.outputs:
        needed[v] = graph.values[v].type.elements
    for value in reversed(graph.values):
        wanted = needed[value.id]
        if wanted:
            for a in value.args:
                needed[a] = max(needed[a], _needed_of(graph.values[a], value, wanted))
    return tuple(needed)


def _needed_of(operand: Value, value: Value, wanted: int) -> int:
    """How many elements of `operand` any `wanted` elements of `value` depend on, at least."""
    of, all_of = operand.type.elements, value.type.elements
    op = value.op
    if isinstance(op, Slice):
        return wanted
    if isinstance(op, Gather):
        most = max(Counter(op.indices).values())
        return _distinct(operand, op) if wanted == all_of else -(-wanted // most)
    if isinstance(op, Concat | Pad):
        # The wanted elements may lie in the other operands or in the padding first.
        return max(0, wanted - (all_of - of))
    if isinstance(op, WindowReduce):
        return _under_windows(operand, value, op) if wanted == all_of else 0
    if isinstance(op, Linear):
        return of if op.kind == "matmul" and wanted == all_of else 0
    # Elementwise, Broadcast, Reduce, Transpose, Reshape: each operand element meets the same number of result ones.
    return -(-wanted * of // all_of)


def _distinct(operand: Value, op: Gather) -> int:
    return operand.type.elements // operand.type.shape[op.axis] * len(set(op.indices))


def _under_windows(operand: Value, value: Value, op: WindowReduce) -> int:
    """Elements of the operand that lie under some window."""
    rank = len(op.window)
    elements = math.prod(operand.type.shape[:-rank])
    for axis, extent in enumerate(operand.type.shape[-rank:]):
        positions, taps = range(value.type.shape[axis - rank]), range(op.window[axis])
        hit = {i * op.strides[axis] + t * op.dilations[axis] - op.before[axis] for i, t in product(positions, taps)}
        elements *= sum(0 <= i < extent for i in hit)
    return elements


def _is_cheap(graph: PrimitiveGraph, value: Value) -> bool:
    """Whether this is a power or quotient that turns into products: by a literal, or by one number a row."""
    if not isinstance(value.op, Elementwise) or value.op.function not in ("pow", "div"):
        return False
    second = graph.values[value.args[1]]
    return isinstance(second.op, Constant) or second.type.elements < value.type.elements


def _flops(graph: PrimitiveGraph, value: Value, wanted: int) -> float:
    op = value.op
    # A vector holds more narrow elements than it holds float32.
    narrow = min(1.0, value.type.dtype.size_bytes / 4)
    if isinstance(op, Elementwise):
        cost = 1 if _is_cheap(graph, value) else FUNCTIONS[op.function].flops
        return wanted * cost * narrow
    if isinstance(op, Reduce):
        operand = graph.values[value.args[0]]
        return max(0, operand.type.elements // value.type.elements - 1) * wanted * narrow
    if isinstance(op, Linear) and op.kind == "matmul":
        return 2.0 * wanted * graph.values[value.args[0]].type.shape[-1] * narrow
    return 0.0
