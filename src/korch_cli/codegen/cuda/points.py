"""Nests without reductions: a thread a vector of neighbouring elements."""

from __future__ import annotations

import math

from korch_cli.codegen.cuda.access import index_type
from korch_cli.codegen.cuda.part import Part
from korch_cli.codegen.cuda.schedule import Points
from korch_cli.codegen.cuda.signature import Signature
from korch_cli.codegen.cuda.writer import Writer
from korch_cli.codegen.expressions import Tables
from korch_cli.codegen.index import Var
from korch_cli.codegen.nest import Nest

_THREADS = 256
_MOST_BLOCKS = 1 << 13
"""With more, each thread takes several vectors instead: that many fill any GPU several times."""


def print_points(nest: Nest, schedule: Points, signature: Signature, tables: Tables) -> Part:
    """Return the part that computes every point of a nest without reductions."""
    variables = nest.variables or (Var("i0", 1),)
    lane, width = variables[-1], schedule.width
    total = math.prod(var.extent for var in variables[:-1]) * -(-lane.extent // width)
    needed = -(-total // _THREADS)
    blocks = min(needed, _MOST_BLOCKS)
    step = blocks * _THREADS
    writer = Writer(nest, signature, tables, index_type(nest, [total + step]))
    first = f"{writer.block_number} * {_THREADS} + (int)threadIdx.x"
    if blocks == needed:
        writer.line(f"const {writer.index} number = {first};")
        opening = f"if (number < {total})"
    else:
        opening = f"for ({writer.index} number = {first}; number < {total}; number += {step})"
    with writer.block(opening):
        writer.decode("number", variables, f"{lane.name}_0" if width > 1 else "", width)
        roots = [store.node for store in nest.stores]
        known = variables if width == 1 else variables[:-1]
        with writer.scope(known), writer.elements(lane, width, roots, nest.stores):
            pass
    return writer.part(_THREADS, blocks)
