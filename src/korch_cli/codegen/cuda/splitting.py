"""Which reductions are worth a launch of their own."""

from __future__ import annotations

import math
from collections.abc import Iterator

from korch_cli.codegen.cuda.rowplan import BUSY, row_across
from korch_cli.codegen.cuda.staging import Split, best_parts, can_split
from korch_cli.codegen.index import Var
from korch_cli.codegen.nest import Nest, Node, Reduction
from korch_cli.codegen.schedule import reduced_rows

_LONG = 4096
_MUCH = 1 << 18
"""Fewer elements than that are read in less time than a launch takes."""
_SHORT = 64
_LEAST_PART = 2048
"""Elements of a row that a block should have at least, and of a column:"""
_LEAST_COLUMN = 256


def splits(nest: Nest, level: int) -> Iterator[Split]:
    """Yield the reductions of a level that are better finished before, or cut into parts: those of the same rows."""
    groups: dict[tuple[tuple[Var, ...], frozenset[Var]], list[int]] = {}
    for position, node in enumerate(nest.nodes):
        if isinstance(node.operation, Reduction) and node.level == level:
            groups.setdefault((node.operation.variables, node.free), []).append(position)
    for members in groups.values():
        split = _split(nest, tuple(members))
        if split is not None:
            yield split


def _split(nest: Nest, members: tuple[int, ...]) -> Split | None:
    node = nest.nodes[members[0]]
    assert isinstance(node.operation, Reduction)
    variables = node.operation.variables
    length = math.prod(var.extent for var in variables)
    rows = math.prod(var.extent for var in node.free)
    across = row_across(nest, members) is not None
    # What a single launch can use, and how much of a row a thread should have at least.
    threads = rows * min(-(-length // 8), 32 if across else 1024)
    if length >= _LONG and rows * length >= _MUCH and 4 * threads <= BUSY:
        wanted = min(2 * BUSY // (rows * (8 if across else 256)), length // (_LEAST_COLUMN if across else _LEAST_PART))
        wanted = min(wanted, variables[0].extent)
        if wanted > 1:
            parts = best_parts(variables[0].extent, wanted)
            if can_split(nest, members, parts):
                return Split(members, parts, first=across)
    repeats = math.prod(var.extent for var in reduced_rows(nest)) // rows
    if repeats > 1 and length >= _SHORT and rows * length * (repeats - 1) >= _MUCH and not _joins_parts(node):
        return Split(members, 1, first=False)
    return None


def _joins_parts(node: Node) -> bool:
    """Whether a reduction joins the parts of one that was split already."""
    assert isinstance(node.operation, Reduction)
    return any(var.name.startswith("part") for var in node.operation.variables)
