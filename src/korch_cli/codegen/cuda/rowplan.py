"""How many threads share a row, and whether its values stay in registers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from korch_cli.codegen.cuda.access import Access, accesses, best_width
from korch_cli.codegen.cuda.keeping import Phase, kept_bytes, kept_nodes, operands_of, phases, row_axes
from korch_cli.codegen.cuda.schedule import Rows
from korch_cli.codegen.index import Var
from korch_cli.codegen.nest import Load, Nest, Reduction, reachable
from korch_cli.codegen.schedule import reduced_rows

BUSY = 1 << 16
"""Threads that keep a large GPU busy: 64 on each lane of 132 multiprocessors, about."""
_WARP = 32
_MOST_THREADS = 1024
_FEW = 4
"""Fewer neighbouring elements than that are not worth the name."""
_SERIAL = 16
"""Elements of a column that a thread goes through at least: windows and small products are its alone."""
_MOST_ROUNDS = 16
"""Vectors of a row that a thread of a warp takes before a whole block is better."""
_KEPT_BYTES = {128: 160, 256: 128, 512: 96, 1024: 64}
"""What a thread keeps in registers at most, by threads of a block: no more than half of what there is."""


def row_schedules(nest: Nest) -> list[Rows]:
    """Return the ways to run a nest with reductions in one launch, the most promising first."""
    rows = reduced_rows(nest)
    length = max(_length(variables) for variables, _ in phases(nest))
    along, beside, across = _contiguous(nest, rows)
    columns = []
    if across is not None:
        columns = [_columns(nest, (*(var for var in rows if var != across), across), length)]
    by_team = _along(nest, rows)
    if not columns:
        found = by_team
    elif not along:
        found = columns
    else:
        found = [*by_team, *columns[: beside > 0]] if along >= beside else [*columns, *by_team[:1]]
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
    while team < _WARP and count * team < BUSY and length >= _SERIAL * team:
        team *= 2
    threads = max(team * _WARP, 256 if count * team >= BUSY else 128)
    schedule = Rows(rows, inner, team, columns=team > 1, threads=threads, spread=_spread(nest, rows, team, 1))
    return _kept(nest, schedule)


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
    if 4 * _reduced(nest) <= _length(inner):
        threads = min(threads, 256)
    warp = _shared_out(nest, rows, _WARP, width, 256 if count * _WARP >= BUSY else 128)
    block = _shared_out(nest, rows, threads, width, threads)
    if vectors > _MOST_ROUNDS * _WARP:
        return [block]
    return [warp, block] if count * _WARP >= BUSY else [block, warp]


def _reduced(nest: Nest) -> int:
    """The elements of a row that reductions go through."""
    return sum(_length(variables) for variables, _ in phases(nest))


def _shared_out(nest: Nest, rows: tuple[Var, ...], team: int, width: int, threads: int) -> Rows:
    inner = _inner(nest, rows)
    spread = _spread(nest, rows, team, width)
    return _kept(nest, Rows(rows, inner, team, columns=False, threads=threads, width=width, spread=spread))


def _spread(nest: Nest, rows: tuple[Var, ...], team: int, width: int) -> int:
    """How many teams share the results of a row, where there are few rows and the reductions are short."""
    used = _length(rows) * team
    inner = _length(_inner(nest, rows))
    if team == 1 or used >= BUSY or 4 * _reduced(nest) > inner:
        return 1
    return max(1, min(BUSY // used, inner // (2 * team * width)))


def _kept(nest: Nest, schedule: Rows) -> Rows:
    """The same with values kept in registers where there is room."""
    axes = row_axes(nest)
    if schedule.team == 1 or schedule.spread > 1 or not axes:
        return schedule
    kept = kept_nodes(nest, axes)
    if not kept:
        return schedule
    steps = _length(axes[:-1]) * -(-axes[-1].extent // schedule.width)
    limit = next(limit for threads, limit in _KEPT_BYTES.items() if schedule.threads <= threads)
    fits = -(-steps // schedule.team) * schedule.width * kept_bytes(nest, kept) <= limit
    return replace(schedule, keep=fits)


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


def row_across(nest: Nest, members: Sequence[int]) -> Var | None:
    """Return the variable of the rows along which the operands of reductions are contiguous, if no other one is."""
    votes: Counter[Var] = Counter()
    for _, load in _reduced_loads(nest, [(_variables(nest, member), (member,)) for member in members]):
        votes.update(v for v in nest.nodes[members[0]].free if load.address.coefficient(v) == 1 and v.extent >= _FEW)
    return max(votes, key=lambda v: (votes[v], v.name), default=None)


def _variables(nest: Nest, member: int) -> tuple[Var, ...]:
    operation = nest.nodes[member].operation
    assert isinstance(operation, Reduction)
    return operation.variables


def _reduced_loads(nest: Nest, loops: Sequence[Phase]) -> Iterator[tuple[Var, Load]]:
    for variables, members in loops:
        for position in sorted(reachable(nest.nodes, operands_of(nest, members))):
            operation = nest.nodes[position].operation
            if isinstance(operation, Load) and operation.address.variables & set(variables):
                yield variables[-1], operation


def _contiguous(nest: Nest, rows: tuple[Var, ...]) -> tuple[int, int, Var | None]:
    """Return how many loads run along contiguous memory, how many beside it, and along which variable of the rows."""
    along, beside = 0, Counter[Var]()
    for last, load in _reduced_loads(nest, phases(nest)):
        along += load.address.coefficient(last) == 1 and last.extent >= _FEW
        beside.update(v for v in rows if load.address.coefficient(v) in (1, 2) and v.extent >= _FEW)
    votes = Counter(beside)
    for store in nest.stores:
        votes.update(v for v in rows if store.address.coefficient(v) == 1 and v.extent >= _FEW)
    # Among equals, the innermost.
    order = {var: i for i, var in enumerate(nest.variables)}
    across = max(votes, key=lambda v: (votes[v], order[v]), default=None)
    return along, beside[across] if across is not None else 0, across
