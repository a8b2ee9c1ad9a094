"""Nests that transpose: squares of points, whose operands go through shared memory where they lie across."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from korch_cli.codegen.cuda.access import index_type
from korch_cli.codegen.cuda.part import Part
from korch_cli.codegen.cuda.schedule import Tiles
from korch_cli.codegen.cuda.signature import Signature
from korch_cli.codegen.cuda.writer import Writer
from korch_cli.codegen.expressions import Tables, held_type
from korch_cli.codegen.index import Var
from korch_cli.codegen.nest import Load, Nest

_SIDE = 32
_THREADS = 256
_ROWS = _THREADS // _SIDE
_SHARED_BYTES = 40 << 10
_FEWEST = 8
"""A variable shorter than that fills too little of a tile."""


def transposed_variable(nest: Nest) -> Var | None:
    """Return the variable along which operands are contiguous that are strided along the last one."""
    lane = nest.variables[-1]
    votes: Counter[Var] = Counter()
    for node in nest.nodes:
        if isinstance(node.operation, Load) and _strided(node.operation, lane):
            votes.update(v for v in nest.variables[:-1] if node.operation.address.coefficient(v) == 1)
    best = votes.most_common(1)
    return best[0][0] if best and best[0][0].extent >= _FEWEST and lane.extent >= _FEWEST else None


def print_tiles(nest: Nest, schedule: Tiles, signature: Signature, tables: Tables) -> Part:
    """Return the part that computes every point of a nest without reductions, tile by tile."""
    lane, across = nest.variables[-1], schedule.across
    outer = tuple(var for var in nest.variables if var not in (lane, across))
    tiles = [-(-var.extent // _SIDE) for var in (across, lane)]
    blocks = math.prod(var.extent for var in outer) * math.prod(tiles)
    writer = _TileWriter(nest, signature, tables, index_type(nest, [blocks, lane.extent, across.extent]))
    kept = {position: f"{nest.nodes[position].name}_tile" for position in _through_tiles(nest, lane, across)}
    numbers = (*outer, Var(f"{across.name}_tile", tiles[0]), Var(f"{lane.name}_tile", tiles[1]))
    writer.line(f"const int x = (int)threadIdx.x % {_SIDE};")
    writer.line(f"const int y = (int)threadIdx.x / {_SIDE};")
    writer.decode("block", numbers)
    for position, name in kept.items():
        writer.line(f"__shared__ {held_type(nest.nodes[position].dtype)} {name}[{_SIDE}][{_SIDE + 1}];")
    with writer.scope(outer):
        with writer.square(across, lane):
            for position, name in kept.items():
                writer.line(f"{name}[y + i][x] = {writer.operand(position).text};")
        writer.line("__syncthreads();")
        writer.hoist([store.node for store in nest.stores])
        with writer.square(lane, across):
            writer.scopes[-1].kept.update({position: f"{name}[x][y + i]" for position, name in kept.items()})
            for store in nest.stores:
                writer.store(store)
    return writer.part(_THREADS, blocks)


class _TileWriter(Writer):
    @contextmanager
    def square(self, along: Var, down: Var) -> Iterator[None]:
        """Print what is inside for the points of a tile that fall to a thread; the next thread has the next `along`."""
        self.line("#pragma unroll")
        with self.block(f"for (int i = 0; i < {_SIDE}; i += {_ROWS})"):
            for var, place in ((along, "x"), (down, "y + i")):
                self.line(f"const {self.index} {var.name} = {var.name}_tile * {_SIDE} + {place};")
            inside = [f"{var.name} < {var.extent}" for var in (along, down) if var.extent % _SIDE]
            with self.block(f"if ({' && '.join(inside)})") if inside else nullcontext(), self.scope((along, down)):
                yield


def _strided(load: Load, lane: Var) -> bool:
    return load.address.coefficient(lane) not in (0, 1, -1)


def _through_tiles(nest: Nest, lane: Var, across: Var) -> list[int]:
    """The loads that are contiguous along `across` alone, as many of them as there is room for."""
    found: list[int] = []
    room = _SHARED_BYTES
    for position, node in enumerate(nest.nodes):
        load = node.operation
        if isinstance(load, Load) and load.address.coefficient(across) == 1 and _strided(load, lane):
            room -= _SIDE * (_SIDE + 1) * max(4, node.dtype.size_bytes)
            if room >= 0:
                found.append(position)
    return found
