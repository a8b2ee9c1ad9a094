"""How a loop nest is run: which variables make units, which one fills the lanes of a vector."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from korch_cli.codegen.expressions import LANES
from korch_cli.codegen.index import Var
from korch_cli.codegen.nest import Load, Nest, Node, Reduction, operation_flops, reachable
from korch_cli.core.types import DType

_LANES = 16
"""What a loop should be worth at least before vectors pay; the real number is the compiler's."""
_BLOCK = 4096
"""Elements of one unit of a long loop: four pages of float32."""
_COLUMN_BLOCK = 64
_SHORT_ROW, _LONG_ROW = 64, 512
"""Longer rows gain nothing from being run in batches; from the shorter length on, only what is in a cache gains."""
_CACHED = 1 << 20
"""Elements of one operand that are likely to be in a cache with the others."""
_TILE = 16
"""A transposed operand is read in squares of this size: a cache line of float32."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A way to run a nest.

    Attributes:
        kind: in words.
        rows: variables that are fixed in one unit; together with the blocks they number the units.
        blocked: a variable of which a unit runs only a block, with the block's length; outermost inside the unit.
        lanes: the variable whose neighbouring values share a vector in the loops over results; None for none.
        inner: the variables that the loops over results run over, inside the unit, outermost first.
        columns: whether `lanes` is a variable of the rows: then whole reductions run in each lane.
        batched: whether the blocked variable is one of the rows, of which a unit runs as many at once as there are
            lanes.
    """

    kind: str
    rows: tuple[Var, ...]
    blocked: tuple[Var, int] | None
    lanes: Var | None
    inner: tuple[Var, ...]
    columns: bool
    batched: bool = False

    @property
    def units(self) -> int:
        """The number of units."""
        blocks = -(-self.blocked[0].extent // self.blocked[1]) if self.blocked else 1
        return math.prod(var.extent for var in self.rows) * blocks


def schedules(nest: Nest) -> list[Schedule]:
    """Return the ways to run a nest that are worth measuring, the most promising first."""
    if not nest.reductions:
        return _pointwise(nest)
    rows = reduced_rows(nest)
    inner = tuple(var for var in nest.variables if var not in rows)
    across, along = _column_lane(nest, rows), _row_lane(nest)
    found = []
    if along and (batched := _batched(nest, rows, inner)) is not None:
        found.append(batched)
    elif along:
        found.append(Schedule("row", rows, None, inner[-1] if inner else None, inner, columns=False))
    if across is not None:
        outer = tuple(var for var in rows if var != across)
        found.append(Schedule("column", outer, (across, _COLUMN_BLOCK), across, inner, columns=True))
    if not found:
        found.append(Schedule("row", rows, None, inner[-1] if inner else None, inner, columns=False))
    return found


def _batched(nest: Nest, rows: tuple[Var, ...], inner: tuple[Var, ...]) -> Schedule | None:
    """Short rows together, where there are enough of them."""
    if not rows or rows[-1].extent < _LANES or not is_vectorisable(nest):
        return None
    for node in nest.reductions:
        assert isinstance(node.operation, Reduction)
        elements = math.prod(var.extent for var in node.operation.variables)
        points = elements * math.prod(var.extent for var in rows)
        if rows[-1] not in node.free or elements > (_LONG_ROW if points <= _CACHED else _SHORT_ROW):
            return None
    lane = inner[-1] if inner else None
    return Schedule("rows", rows[:-1], (rows[-1], _LANES), lane, inner, columns=False, batched=True)


def reduced_rows(nest: Nest) -> tuple[Var, ...]:
    """Return the free variables that the reductions depend on, in loop order."""
    used: set[Var] = set()
    for node in nest.reductions:
        used |= node.free
    return tuple(var for var in nest.variables if var in used)


def is_vectorisable(nest: Nest) -> bool:
    """Whether all elements are held as float32 or bool, which have lanes; others are computed one by one."""
    if any(node.dtype is DType.BOOL for node in nest.reductions):
        return False
    return all(node.dtype in LANES or node.dtype is DType.BOOL for node in nest.nodes)


def unit_cost(nest: Nest, schedule: Schedule) -> tuple[int, int]:
    """Return the bytes that one unit moves and the operations that it does, both at least 1."""
    points = math.prod(var.extent for var in nest.variables)
    flops = bytes_moved = 0
    weights = dict.fromkeys(reachable(nest.nodes, [store.node for store in nest.stores]), points)
    for position in reversed(range(len(nest.nodes))):
        node = nest.nodes[position]
        if position not in weights:
            continue
        times = math.prod(var.extent for var in node.free)
        if isinstance(node.operation, Reduction):
            inside = math.prod(var.extent for var in node.operation.variables)
            weights[node.operation.operand] = times * inside
            times *= inside
        flops += times * operation_flops(node.operation)
        if isinstance(node.operation, Load):
            bytes_moved += times * node.dtype.size_bytes
    for store in nest.stores:
        bytes_moved += math.prod(v.extent for v in store.address.variables) * nest.nodes[store.node].dtype.size_bytes
    units = schedule.units
    return max(1, bytes_moved // units), max(1, flops // units)


def _pointwise(nest: Nest) -> list[Schedule]:
    if not nest.variables:
        return [Schedule("scalar", (), None, None, (), columns=False)]
    lane = nest.variables[-1]
    outer = nest.variables[:-1]
    plain = Schedule("pointwise", outer, (lane, _BLOCK), lane, (), columns=True)
    across = _transposed(nest, lane)
    if across is None:
        return [plain]
    rest = tuple(var for var in outer if var != across)
    tiled = Schedule("tiled", rest, (across, _TILE), lane, (lane, across), columns=False)
    return [tiled, plain]


def _transposed(nest: Nest, lane: Var) -> Var | None:
    """The variable along which operands are contiguous that are strided along `lane`."""
    votes: Counter[Var] = Counter()
    for node in nest.nodes:
        if isinstance(node.operation, Load):
            stride = node.operation.address.coefficient(lane)
            if stride is None or abs(stride) > 1:
                votes.update(v for v in nest.variables if node.operation.address.coefficient(v) == 1 and v != lane)
    best = votes.most_common(1)
    return best[0][0] if best and best[0][0].extent >= 4 and lane.extent >= 4 else None


def _loads_below(nest: Nest, node: Node) -> list[Load]:
    assert isinstance(node.operation, Reduction)
    below = reachable(nest.nodes, [node.operation.operand])
    return [n.operation for i, n in enumerate(nest.nodes) if i in below and isinstance(n.operation, Load)]


def _row_lane(nest: Nest) -> bool:
    """Whether every reduction runs along contiguous memory that is long enough."""
    for node in nest.reductions:
        assert isinstance(node.operation, Reduction)
        last = node.operation.variables[-1]
        loads = _loads_below(nest, node)
        if last.extent < _LANES or not any(load.address.coefficient(last) == 1 for load in loads):
            return False
    return True


def _column_lane(nest: Nest, rows: tuple[Var, ...]) -> Var | None:
    """The variable of the rows along which operands and results are contiguous, if it is long enough."""
    votes: Counter[Var] = Counter()
    for node in nest.reductions:
        for load in _loads_below(nest, node):
            votes.update(v for v in rows if load.address.coefficient(v) in (1, 2) and v.extent >= 4)
    for store in nest.stores:
        votes.update(v for v in rows if store.address.coefficient(v) == 1 and v.extent >= 4)
    # Among equals, the innermost.
    order = {var: i for i, var in enumerate(nest.variables)}
    return max(votes, key=lambda v: (votes[v], order[v]), default=None)
