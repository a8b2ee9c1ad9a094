"""How the elements of a nest lie in memory: which accesses are wide, and how large indices get."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from korch_cli.codegen.index import Expr, Lookup, Mod, Var
from korch_cli.codegen.nest import Guards, Load, Nest

_VECTOR_BYTES = 16
"""What one instruction moves for a thread."""
_INT_MAX = (1 << 31) - 1
_FEWEST_VECTORS = 4


def is_packed(address: Expr, guards: Guards, lane: Var, width: int) -> bool:
    """Whether `width` values of `lane`, from a multiple of `width` on, are one aligned vector in memory."""
    if width == 1 or address.coefficient(lane) != 1 or any(lane in guard.position.variables for guard in guards):
        return False
    return address.constant % width == 0 and all(c % width == 0 for atom, c in address.terms if atom != lane)


def best_width(nest: Nest, lane: Var, *, tails: bool) -> int:
    """Return how many neighbouring values of `lane` a thread should take at a time.

    Args:
        nest: what is computed.
        lane: the variable.
        tails: whether the last vector may be incomplete.
    """
    accesses = list(_accesses(nest, lane))
    best, least = 1, float(len(accesses))
    for width in (2, 4, 8):
        if lane.extent % width and not (tails and lane.extent >= _FEWEST_VECTORS * width):
            continue
        cost = sum(_instructions(address, guards, size, lane, width) for address, guards, size in accesses) / width
        if cost < least:
            best, least = width, cost
    return best


def _accesses(nest: Nest, lane: Var) -> Iterator[tuple[Expr, Guards, int]]:
    for node in nest.nodes:
        if isinstance(node.operation, Load) and lane in node.free:
            yield node.operation.address, node.operation.guards, node.dtype.size_bytes
    for store in nest.stores:
        if lane in store.address.variables:
            yield store.address, (), nest.nodes[store.node].dtype.size_bytes


def _instructions(address: Expr, guards: Guards, size: int, lane: Var, width: int) -> int:
    if is_packed(address, guards, lane, width):
        return max(1, width * size // _VECTOR_BYTES)
    return width


def index_type(nest: Nest, counts: Sequence[int]) -> str:
    """Return the type in which all indices of a nest, and the numbers up to `counts`, can be computed."""
    largest = max([*counts, *(_magnitude(expr) for expr in nest.expressions())], default=0)
    return "int" if largest <= _INT_MAX else "long long"


def _magnitude(expr: Expr) -> int:
    """A bound of every partial sum and product on the way to the value."""
    total = inner = abs(expr.constant)
    for atom, coefficient in expr.terms:
        if isinstance(atom, Var):
            total += abs(coefficient) * (atom.extent - 1)
            continue
        inner = max(inner, _magnitude(atom.operand))
        size = max(map(abs, atom.table)) if isinstance(atom, Lookup) else _magnitude(atom.operand)
        total += abs(coefficient) * (min(size, atom.by) if isinstance(atom, Mod) else size)
    return max(total, inner)
