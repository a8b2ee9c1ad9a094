"""Reductions in launches of their own: long ones are split over many blocks, repeated ones are done once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from korch_cli.codegen.cuda.signature import Signature
from korch_cli.codegen.expressions import NARROW_FLOATS
from korch_cli.codegen.index import Expr, Lookup, Var, flatten, variable
from korch_cli.codegen.lower import identity
from korch_cli.codegen.nest import (
    Count,
    Guard,
    Literal,
    Load,
    Nest,
    NestBuilder,
    Node,
    Reduction,
    Select,
    Store,
    moved_operation,
    operation_expressions,
    reachable,
    rewrite,
)
from korch_cli.core.types import DType

_WHOLE_VECTORS = 8


@dataclass(frozen=True, slots=True)
class Split:
    """How reductions over the same variables, of the same rows, get a launch of their own.

    Attributes:
        members: the reductions.
        parts: how many parts the first of their variables is cut into; 1 for a launch that finishes them.
        first: whether the parts of all rows lie side by side in scratch, rather than those of a row.
    """

    members: tuple[int, ...]
    parts: int
    first: bool


def extracted(nest: Nest, split: Split, signature: Signature, scratch: Sequence[int]) -> tuple[Nest, Nest, list[int]]:
    """Take reductions out of a nest.

    Args:
        nest: the nest.
        split: which ones.
        signature: of the whole kernel.
        scratch: bytes of the scratch buffers in use so far.

    Returns:
        The nest that fills new scratch buffers, one a reduction; the nest that reads them; their bytes.
    """
    node = nest.nodes[split.members[0]]
    rows = tuple(var for var in nest.variables if var in node.free)
    part = Var(f"part{len(scratch)}", split.parts)
    shape = ((part, *rows) if split.first else (*rows, part)) if split.parts > 1 else rows
    address = flatten(map(variable, shape), [var.extent for var in shape])
    numbers = range(len(scratch), len(scratch) + len(split.members))
    filling = _partial(nest, split, part) if split.parts > 1 else (nest.nodes, split.members)
    stores = tuple(
        Store(signature.outputs + number, address, member) for number, member in zip(numbers, filling[1], strict=True)
    )
    first = rewrite(Nest(shape, filling[0], stores), {})
    held = {
        member: (Load(signature.inputs + number, address), filling[0][stored].dtype)
        for member, number, stored in zip(split.members, numbers, filling[1], strict=True)
    }
    sizes = [math.prod(var.extent for var in shape) * dtype.size_bytes for _, dtype in held.values()]
    return first, _reading(nest, held, (part,) if split.parts > 1 else ()), sizes


def can_split(nest: Nest, members: Sequence[int], parts: int) -> bool:
    """Whether reductions can be cut into parts: nothing else loops over their first variable or looks it up."""
    var = _variables(nest, members[0])[0]
    below = reachable(nest.nodes, [_operand(nest, member) for member in members])
    if any(isinstance(nest.nodes[p].operation, Reduction) and var in _variables(nest, p) for p in below):
        return False
    if part_length(var.extent, parts) * parts == var.extent:
        return True
    # Behind the end, tables must not be read; loads are guarded.
    looked_up = [
        expr
        for position in below
        if isinstance(nest.nodes[position].operation, Select | Count)
        for expr in operation_expressions(nest.nodes[position].operation)
    ]
    return not any(isinstance(atom, Lookup) for expr in looked_up for atom in expr.atoms())


def best_parts(extent: int, wanted: int) -> int:
    """Return a number of parts near `wanted`, if possible one that leaves no shorter last part."""
    for unit in (_WHOLE_VECTORS, 1):
        for parts in range(wanted, min(2 * wanted, extent) + 1):
            if extent % (parts * unit) == 0:
                return parts
    length = -(-extent // wanted)
    return -(-extent // length)


def part_length(extent: int, parts: int) -> int:
    """Return the length of a part."""
    return -(-extent // parts)


def _operand(nest: Nest, member: int) -> int:
    operation = nest.nodes[member].operation
    assert isinstance(operation, Reduction)
    return operation.operand


def _variables(nest: Nest, member: int) -> tuple[Var, ...]:
    operation = nest.nodes[member].operation
    assert isinstance(operation, Reduction)
    return operation.variables


def _partial(nest: Nest, split: Split, part: Var) -> tuple[tuple[Node, ...], tuple[int, ...]]:
    """Return nodes that reduce a part each, and which of them do."""
    variables = _variables(nest, split.members[0])
    old = variables[0]
    length = part_length(old.extent, split.parts)
    within = Var(f"{old.name}_part", length)
    position = variable(part) * length + variable(within)
    roots = [_operand(nest, member) for member in split.members]
    cut = rewrite(
        Nest((*nest.variables, *variables), nest.nodes, tuple(Store(0, _NOWHERE, root) for root in roots)),
        {old: position},
    )
    nodes, roots = list(cut.nodes), [store.node for store in cut.stores]
    inside = Guard(position, 0, old.extent)
    if not inside.always:
        nodes = [_guarded(node, inside, {part, within}) for node in nodes]
    builder = NestBuilder(nodes, {}, {node.name for node in nodes})
    reduced = []
    for member, root in zip(split.members, roots, strict=True):
        node = nest.nodes[member]
        assert isinstance(node.operation, Reduction)
        nothing = builder.add(Literal(identity(node.operation.function, node.dtype)), node.dtype, f"{node.name}_none")
        operand = builder.add(Select((inside,), root, nothing), node.dtype, f"{node.name}_inside")
        bound = (within, *variables[1:])
        reduced.append(builder.add(Reduction(node.operation.function, operand, bound), _wide(node), node.name))
    return tuple(builder.nodes), tuple(reduced)


_NOWHERE = Expr()


def _wide(node: Node) -> DType:
    """The type that partial results keep all their digits in."""
    assert isinstance(node.operation, Reduction)
    rounds = node.dtype in NARROW_FLOATS and node.operation.function in ("sum", "prod")
    return DType.F32 if rounds else node.dtype


def _guarded(node: Node, inside: Guard, variables: set[Var]) -> Node:
    if isinstance(node.operation, Load) and node.free & variables:
        load = node.operation
        guarded = Load(load.argument, load.address, (*load.guards, inside))
        return replace(node, operation=guarded, free=node.free | inside.position.variables)
    return node


def _reading(nest: Nest, held: dict[int, tuple[Load, DType]], parts: tuple[Var, ...]) -> Nest:
    """Return the nest with reductions replaced by what scratch holds."""
    builder = NestBuilder()
    moved: dict[int, int] = {}
    for position, node in enumerate(nest.nodes):
        if position not in held:
            moved[position] = builder.add(moved_operation(node.operation, moved, {}), node.dtype, node.name)
            continue
        load, dtype = held[position]
        assert isinstance(node.operation, Reduction)
        moved[position] = builder.add(load, dtype, f"{node.name}_part" if parts else node.name)
        if parts:
            total = Reduction(node.operation.function, moved[position], parts)
            moved[position] = builder.add(total, node.dtype, node.name)
    stores = tuple(Store(store.result, store.address, moved[store.node]) for store in nest.stores)
    return rewrite(Nest(nest.variables, tuple(builder.nodes), stores), {})
