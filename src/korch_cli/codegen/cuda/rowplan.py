"""How many threads share a row, and where its values stay."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from korch_cli.codegen.cuda.access import Access, accesses, best_width
from korch_cli.codegen.cuda.keeping import kept_nodes, operands_of, phases, row_axes
from korch_cli.codegen.cuda.schedule import Keep, Rows
from korch_cli.codegen.index import Var
from korch_cli.codegen.nest import Load, Nest, reachable
from korch_cli.codegen.schedule import reduced_rows

BUSY = 1 << 16
"""Threads that keep a large GPU busy: 64 on each lane of 132 multiprocessors, about."""
_WARP = 32
_MOST_THREADS = 1024
_SERIAL = 32
"""A reduction over at most this many elements is done by one thread where rows lie side by side."""
_MOST_ROUNDS = 16
"""Vectors of a row that a thread of a warp takes before a whole block is better."""
_KEPT_BYTES = {128: 160, 256: 128, 512: 96, 1024: 64}
"""What a thread keeps in registers at most, by threads of a block: no more than half of what there is."""
_SHARED_BYTES = 40 << 10


def row_schedules(nest: Nest) -> list[Rows]:
    """Return the ways to run a nest with reductions in one launch, the most promising first."""
    rows = reduced_rows(nest)
    across = _across(nest, rows)
    length = max(_length(variables) for variables, _ in phases(nest))
    found: list[Rows] = []
    if across is not None:
        numbered = (*(var for var in rows if var != across), across)
        found += [_columns(nest, numbered, length)]
    if _is_along(nest) or not found:
        found += _along(nest, rows)
    if length <= _SERIAL and across is None:
        found.sort(key=lambda schedule: schedule.team > 1 and _length(rows) >= BUSY)
    return list(dict.fromkeys(found))


def _length(variables: tuple[Var, ...]) -> int:
    return math.prod(var.extent for var in variables)


def _power(number: int) -> int:
    """The smallest power of two that is not smaller."""
    return 1 << max(0, number - 1).bit_length()


def _inner(nest: Nest, rows: tuple[Var, ...]) -> tuple[Var, ...]:
    return tuple(var for var in nest.variables if var not in rows)


# --- neighbouring threads, neighbouring rows ---


def _columns(nest: Nest, rows: tuple[Var, ...], length: int) -> Rows:
    count = _length(rows)
    inner = _inner(nest, rows)
    team = 1
    while team < _WARP and count * team < BUSY and length >= 8 * team:
        team *= 2
    threads = min(256, max(_WARP * team, 128 if count * team < BUSY else 256))
    if team * _WARP > threads:
        threads = team * _WARP
    return _kept(nest, Rows(rows, inner, team, columns=team > 1, threads=threads))


# --- neighbouring threads, one row ---


def _along(nest: Nest, rows: tuple[Var, ...]) -> list[Rows]:
    inner = _inner(nest, rows)
    width = _width(nest)
    vectors = max(-(-_length(variables) // width) for variables, _ in phases(nest))
    if inner:
        vectors = max(vectors, -(-_length(inner) // width)) if row_axes(nest) == inner else vectors
    count = _length(rows)
    if vectors <= _WARP:
        team = _power(vectors)
        return [_shared_out(nest, rows, team, width, 256 if count * team >= BUSY else 128)]
    threads = min(_MOST_THREADS, max(64, _power(-(-vectors // 4))))
    warp = _shared_out(nest, rows, _WARP, width, 256 if count * _WARP >= BUSY else 128)
    block = _shared_out(nest, rows, threads, width, threads)
    if vectors > _MOST_ROUNDS * _WARP:
        return [block]
    return [warp, block] if count * _WARP >= BUSY else [block, warp]


def _shared_out(nest: Nest, rows: tuple[Var, ...], team: int, width: int, threads: int) -> Rows:
    inner = _inner(nest, rows)
    count = _length(rows)
    reduced = sum(_length(variables) for variables, _ in phases(nest))
    spread = 1
    if count * team < BUSY and 4 * reduced <= _length(inner):
        spread = max(1, min(BUSY // (count * team), _length(inner) // (2 * team * width)))
    return _kept(nest, Rows(rows, inner, team, columns=False, threads=threads, width=width, spread=spread))


def _kept(nest: Nest, schedule: Rows) -> Rows:
    """The same with values kept where there is room."""
    axes = row_axes(nest)
    if schedule.team == 1 or schedule.spread > 1 or not axes:
        return schedule
    kept = kept_nodes(nest, axes)
    if not kept:
        return schedule
    size = sum(max(4, nest.nodes[position].dtype.size_bytes) for position in kept)
    steps = _length(axes[:-1]) * -(-axes[-1].extent // schedule.width)
    limit = next(limit for threads, limit in _KEPT_BYTES.items() if schedule.threads <= threads)
    if -(-steps // schedule.team) * schedule.width * size <= limit:
        keep = Keep.REGISTERS
    elif schedule.teams == 1 and not schedule.columns and steps * schedule.width * size <= _SHARED_BYTES:
        keep = Keep.SHARED
    else:
        return schedule
    return Rows(
        schedule.rows, schedule.inner, schedule.team, schedule.columns, schedule.threads, schedule.width, keep
    )


def _width(nest: Nest) -> int:
    """Elements of a vector along the row."""
    axes = row_axes(nest)
    if not axes:
        return 1
    moved: list[Access] = []
    for variables, members in phases(nest):
        if variables == axes:
            moved += accesses(nest, operands_of(nest, members), ())
    known = frozenset(reduced_rows(nest))
    along = [s for s in nest.stores if not nest.nodes[s.node].free | s.address.variables <= known]
    moved += accesses(nest, [store.node for store in along], along)
    return best_width(list(dict.fromkeys(moved)), axes[-1])


# --- what lies side by side in memory ---


def _reduced_loads(nest: Nest) -> Iterator[tuple[Var, Load]]:
    for variables, members in phases(nest):
        for position in reachable(nest.nodes, operands_of(nest, members)):
            operation = nest.nodes[position].operation
            if isinstance(operation, Load) and operation.address.variables & set(variables):
                yield variables[-1], operation


def _is_along(nest: Nest) -> bool:
    """Whether some reduction runs along contiguous memory."""
    return any(load.address.coefficient(last) == 1 and last.extent >= 4 for last, load in _reduced_loads(nest))


def _across(nest: Nest, rows: tuple[Var, ...]) -> Var | None:
    """The variable of the rows along which operands and results are contiguous."""
    votes: Counter[Var] = Counter()
    for _, load in _reduced_loads(nest):
        votes.update(v for v in rows if load.address.coefficient(v) in (1, 2) and v.extent >= 4)
    for store in nest.stores:
        votes.update(v for v in rows if store.address.coefficient(v) == 1 and v.extent >= 4)
    # Among equals, the innermost.
    order = {var: i for i, var in enumerate(nest.variables)}
    return max(votes, key=lambda v: (votes[v], order[v]), default=None)
