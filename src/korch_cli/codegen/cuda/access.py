"""How the elements of a nest lie in memory: which accesses are wide, and how large indices get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from korch_cli.codegen.index import Expr, Lookup, Mod, Var
from korch_cli.codegen.nest import Guards, Load, Nest, Store, unreduced

_VECTOR_BYTES = 16
"""What one instruction moves for a thread."""
_INT_MAX = (1 << 31) - 1
_FEWEST_VECTORS = 4


def is_packed(address: Expr, guards: Guards, lane: Var, width: int) -> bool:
    """Whether `width` values of `lane`, from a multiple of `width` on, are one aligned vector in memory."""
    if width == 1 or address.coefficient(lane) != 1 or any(lane in guard.position.variables for guard in guards):
        return False
    return address.constant % width == 0 and all(c % width == 0 for atom, c in address.terms if atom != lane)


@dataclass(frozen=True, slots=True)
class Access:
    """A load or a store of elements of `size` bytes."""

    address: Expr
    guards: Guards
    size: int


def accesses(nest: Nest, roots: Sequence[int], stores: Sequence[Store]) -> list[Access]:
    """Return what computing `roots`, where all reductions are finished, reads, and what `stores` write."""
    found = []
    for position in sorted(unreduced(nest.nodes, roots)):
        node = nest.nodes[position]
        if isinstance(node.operation, Load):
            found.append(Access(node.operation.address, node.operation.guards, node.dtype.size_bytes))
    found += [Access(store.address, (), nest.nodes[store.node].dtype.size_bytes) for store in stores]
    return found


def best_width(moved: Sequence[Access], lane: Var) -> int:
    """Return how many neighbouring values of `lane` a thread should take at a time."""
    varying = [access for access in moved if _varies(access, lane)]
    best, least = 1, float(len(varying))
    for width in (2, 4, 8):
        if lane.extent % width and lane.extent < _FEWEST_VECTORS * width:
            continue
        cost = sum(_instructions(access, lane, width) for access in varying) / width
        if cost < least:
            best, least = width, cost
    return best


def instructions(moved: Sequence[Access], lane: Var) -> float:
    """Return how many accesses an element takes at the best width."""
    width = best_width(moved, lane)
    return sum(_instructions(access, lane, width) for access in moved if _varies(access, lane)) / width


def _varies(access: Access, lane: Var) -> bool:
    return lane in access.address.variables or any(lane in guard.position.variables for guard in access.guards)


def _instructions(access: Access, lane: Var, width: int) -> int:
    if is_packed(access.address, access.guards, lane, width):
        return max(1, width * access.size // _VECTOR_BYTES)
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
