"""From a kernel body to loop nests: index maps are computed backward from the outputs, one loop variable an axis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from korch_cli.codegen.index import ZERO, Expr, Lookup, Var, flatten, lookup, unflatten, variable
from korch_cli.codegen.nest import (
    Apply,
    Count,
    Guard,
    Guards,
    Literal,
    Load,
    Nest,
    NestBuilder,
    Reduction,
    Select,
    Store,
)
from korch_cli.core.errors import Refusal
from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.primitive import (
    Broadcast,
    Concat,
    Constant,
    Elementwise,
    Gather,
    Input,
    Linear,
    Opaque,
    Pad,
    Reduce,
    Reshape,
    Slice,
    Transpose,
    WindowReduce,
)
from korch_cli.core.types import DType

Index = tuple[Expr, ...]

_MAX_PRIMITIVES = 200
_MAX_TABLE = 1 << 16


def lower(graph: PrimitiveGraph) -> list[Nest]:
    """Return loop nests that together write every output of `graph` once.

    Outputs share a nest where each point of its domain computes one element of each of them, or where an output has
    one element a row of the domain.

    Raises:
        Refusal: the body holds what no nest computes.
    """
    _check_body(graph)
    pending = list(range(len(graph.outputs)))
    nests: list[Nest] = []
    while pending:
        main = max(pending, key=lambda r: (_result(graph, r).type.elements, _result(graph, r).id, -r))
        nest, taken = _lower_with(graph, main, pending)
        nests.append(nest)
        pending = [result for result in pending if result not in taken]
    return nests


def _result(graph: PrimitiveGraph, result: int) -> Value:
    return graph.values[graph.outputs[result]]


def _check_body(graph: PrimitiveGraph) -> None:
    if len(graph.values) > _MAX_PRIMITIVES:
        raise Refusal(f"The body has more than {_MAX_PRIMITIVES} values.")
    for value in graph.values:
        if value.type.elements == 0:
            raise Refusal("A tensor of the body is empty.")
        if isinstance(value.op, Linear | Opaque):
            raise Refusal("A product or an operator without primitives is not generated.")
        if isinstance(value.op, Constant) and value.op.literal is None:
            raise Refusal("A constant that is no literal has to be an operand of the body.")


def _lower_with(graph: PrimitiveGraph, main: int, pending: list[int]) -> tuple[Nest, set[int]]:
    """Lower output `main` and what fits beside it."""
    lowering = _Lowering(graph)
    shape = _result(graph, main).type.shape
    variables = tuple(Var(f"i{axis}", extent) for axis, extent in enumerate(shape))
    index = tuple(map(variable, variables))
    stores = [lowering.store(main, index)]
    taken = {main}
    reduced = _row_variables(lowering)
    for result in pending:
        if result in taken:
            continue
        fitting = _fitting_index(lowering, result, index, shape, reduced)
        if fitting is None:
            continue
        attempt = lowering.copy()
        store = attempt.store(result, fitting)
        if _is_complete(store.address, _result(graph, result), variables, _row_variables(attempt)):
            lowering = attempt
            reduced = _row_variables(lowering)
            stores.append(store)
            taken.add(result)
    kept = tuple(var for var in variables if var.extent > 1)
    return Nest(kept, tuple(lowering.builder.nodes), tuple(stores)), taken


def _row_variables(lowering: _Lowering) -> frozenset[Var] | None:
    """The variables that reductions depend on, the same for all of them; None without reductions."""
    found = {node.free for node in lowering.builder.nodes if isinstance(node.operation, Reduction)}
    return frozenset().union(*found) if found else None


def _fitting_index(
    lowering: _Lowering, result: int, index: Index, shape: tuple[int, ...], reduced: frozenset[Var] | None
) -> Index | None:
    """Find where in the domain of the main output another output is computed."""
    value = _result(lowering.graph, result)
    variables = tuple(var for expr in index for var in expr.variables)
    for seen in lowering.seen.get(value.id, ()):
        if _is_complete(flatten(seen, value.type.shape), value, variables, reduced):
            return seen
    own = value.type.shape
    if len(own) == len(shape) and all(o in (1, s) for o, s in zip(own, shape, strict=True)):
        return tuple(ZERO if o == 1 else i for o, i in zip(own, index, strict=True))
    elements = 1
    for axes in range(len(shape) + 1):
        if elements == value.type.elements:
            return unflatten(flatten(index[:axes], shape[:axes]), own)
        if axes < len(shape):
            elements *= shape[axes]
    return None


def _is_complete(address: Expr, value: Value, variables: tuple[Var, ...], reduced: frozenset[Var] | None) -> bool:
    """Whether `address` reaches every element once over the whole domain, or over its rows."""
    used = address.variables
    if used != frozenset(var for var in variables if var.extent > 1) and used != reduced:
        return False
    steps = sorted((coefficient, atom.extent) for atom, coefficient in address.terms if isinstance(atom, Var))
    if len(steps) != len(address.terms) or address.constant:
        return False
    reached = 1
    for step, extent in steps:
        if step != reached:
            return False
        reached *= extent
    return reached == value.type.elements


@dataclass(slots=True)
class _Lowering:
    """Nodes for values at given indices."""

    graph: PrimitiveGraph
    builder: NestBuilder = field(default_factory=NestBuilder)
    arguments: dict[int, int] = field(default_factory=dict)
    known: dict[tuple[int, Index, Guards], int] = field(default_factory=dict)
    seen: dict[int, list[Index]] = field(default_factory=dict)
    windows: int = 0

    def __post_init__(self) -> None:
        self.arguments = {value.id: position for position, value in enumerate(self.graph.inputs())}

    def copy(self) -> _Lowering:
        """Return a lowering that can go on without changing this one."""
        other = _Lowering(self.graph)
        other.builder = self.builder.copy()
        other.known = dict(self.known)
        other.seen = {value: list(indices) for value, indices in self.seen.items()}
        other.windows = self.windows
        return other

    def store(self, result: int, index: Index) -> Store:
        """Write an output at `index`."""
        value = _result(self.graph, result)
        return Store(result, flatten(index, value.type.shape), self.value(value, index, ()))

    def value(self, value: Value, index: Index, guards: Guards) -> int:
        """Return the node of `value` at `index`, which is only in range where `guards` hold."""
        key = (value.id, index, guards)
        if key not in self.known:
            self.known[key] = self._value(value, index, guards)
            if not guards:
                self.seen.setdefault(value.id, []).append(index)
        return self.known[key]

    def _value(self, value: Value, index: Index, guards: Guards) -> int:
        name, dtype, args = f"v{value.id}", value.type.dtype, self.graph.args(value)
        match value.op:
            case Input():
                address = flatten(index, value.type.shape)
                return self.builder.add(Load(self.arguments[value.id], address, guards), dtype, name)
            case Constant():
                literal = value.op.literal
                assert literal is not None
                return self.builder.add(Literal(literal), dtype, name)
            case Elementwise(function):
                nodes = tuple(self.value(arg, _broadcast(arg, index), guards) for arg in args)
                return self.builder.add(Apply(function, nodes), dtype, name)
            case Reduce():
                return self._reduce(value, value.op, index, guards)
            case WindowReduce():
                return self._window(value, value.op, index, guards)
            case Pad(before, fill):
                return self._pad(value, before, fill, index, guards)
            case Concat(axis):
                return self._concat(value, axis, index, guards)
        (arg,) = args
        return self.value(arg, _moved_index(value, arg, index), guards)

    def _reduce(self, value: Value, op: Reduce, index: Index, guards: Guards) -> int:
        (operand,) = self.graph.args(value)
        if any(var.name.startswith(("k", "w")) for expr in index for var in expr.variables):
            raise Refusal("A reduction would run once for each step of another one.")
        extents = tuple(operand.type.shape[axis] for axis in op.axes)
        code = "x".join(map(str, extents))
        axes = {axis: Var(f"k{n}of{code}", extents[n]) for n, axis in enumerate(op.axes)}
        inner = tuple(variable(axes[axis]) if axis in axes else index[axis] for axis in range(operand.type.rank))
        node = self.value(operand, inner, guards)
        bound = tuple(axes.values())
        if op.function != "mean":
            return self.builder.add(Reduction(op.function, node, bound), value.type.dtype, f"v{value.id}")
        return self._mean(value, node, bound, Literal(float(_product(extents))))

    def _mean(self, value: Value, operand: int, bound: tuple[Var, ...], count: Literal | Count) -> int:
        dtype = value.type.dtype
        if not dtype.is_float:
            raise Refusal(f"A mean of {dtype.text} is not generated.")
        # Sixteen bits hold neither the sum nor the number of many elements; only the quotient is rounded.
        wide = dtype if dtype.size_bytes >= DType.F32.size_bytes else DType.F32
        total = self.builder.add(Reduction("sum", operand, bound), wide, f"v{value.id}_sum")
        number = self.builder.add(count, wide, f"v{value.id}_count")
        return self.builder.add(Apply("div", (total, number)), dtype, f"v{value.id}")

    def _window(self, value: Value, op: WindowReduce, index: Index, guards: Guards) -> int:
        (operand,) = self.graph.args(value)
        if any(var.name.startswith("w") for expr in index for var in expr.variables):
            raise Refusal("A window reduction would run once for each position of another window.")
        self.windows += 1
        rank, dtype = len(op.window), value.type.dtype
        bound = tuple(Var(f"w{self.windows}_{axis}", extent) for axis, extent in enumerate(op.window))
        inner = list(index)
        inside: list[Guard] = []
        for axis, var in enumerate(bound):
            place = axis - rank
            position = index[place] * op.strides[axis] + variable(var) * op.dilations[axis] - op.before[axis]
            inner[place] = position
            inside.append(Guard(position, 0, operand.type.shape[place]))
        needed = tuple(guard for guard in inside if not guard.always)
        node = self.value(operand, tuple(inner), (*guards, *needed))
        function = "max" if op.function == "max" else "sum"
        nothing = self.builder.add(Literal(identity(function, dtype)), dtype, f"v{value.id}_none")
        node = self.builder.add(Select(_decidable(needed, guards), node, nothing), dtype, f"v{value.id}_inside")
        if op.function != "mean":
            return self.builder.add(Reduction(function, node, bound), dtype, f"v{value.id}")
        counts = _window_counts(op, operand.type.shape, value.type.shape, index)
        return self._mean(value, node, bound, Count(counts, guards if _may_leave_tables(counts) else ()))

    def _pad(self, value: Value, before: tuple[int, ...], fill: float, index: Index, guards: Guards) -> int:
        (operand,) = self.graph.args(value)
        dtype = value.type.dtype
        inner = tuple(position - amount for position, amount in zip(index, before, strict=True))
        inside = [Guard(p, 0, extent) for p, extent in zip(inner, operand.type.shape, strict=True)]
        needed = tuple(guard for guard in inside if not guard.always)
        number = fill if dtype.is_float else bool(fill) if dtype is DType.BOOL else int(fill)
        outside = self.builder.add(Literal(number), dtype, f"v{value.id}_fill")
        if any(guard.never for guard in needed):
            return outside
        node = self.value(operand, inner, (*guards, *needed))
        return self.builder.add(Select(_decidable(needed, guards), node, outside), dtype, f"v{value.id}")

    def _concat(self, value: Value, axis: int, index: Index, guards: Guards) -> int:
        end = value.type.shape[axis]
        result: int | None = None
        for operand in reversed(self.graph.args(value)):
            start = end - operand.type.shape[axis]
            inside = Guard(index[axis] - start, 0, end - start)
            end = start
            if inside.never:
                continue
            needed = () if inside.always else (inside,)
            inner = (*index[:axis], index[axis] - start, *index[axis + 1 :])
            node = self.value(operand, inner, (*guards, *needed))
            if result is None:
                result = node
            else:
                # What comes after was built first, so that one condition decides each part.
                first = Guard(inside.position, min(inside.position.range[0], 0), inside.high)
                decisive = _decidable((first,), guards)
                result = self.builder.add(Select(decisive, node, result), value.type.dtype, f"v{value.id}")
        assert result is not None
        return result


def _decidable(own: Guards, guards: Guards) -> Guards:
    """Return `own`, behind the guards under which it is asked where its tables may only be read under these."""
    return (*guards, *own) if _may_leave_tables(guard.position for guard in own) else own


def _may_leave_tables(positions: Iterable[Expr]) -> bool:
    lookups = (atom for position in positions for atom in position.atoms() if isinstance(atom, Lookup))
    return any(not 0 <= atom.operand.range[0] <= atom.operand.range[1] < len(atom.table) for atom in lookups)


def identity(function: str, dtype: DType) -> float | int | bool:
    """Return what a reduction starts from."""
    if function == "sum":
        return 0
    if function == "prod":
        return 1
    if dtype.is_float:
        return float("-inf") if function == "max" else float("inf")
    if dtype is DType.BOOL:
        return function == "min"
    limits = np.iinfo(dtype.numpy)
    return int(limits.min if function == "max" else limits.max)


def _broadcast(arg: Value, index: Index) -> Index:
    own = index[len(index) - arg.type.rank :]
    return tuple(ZERO if extent == 1 else i for extent, i in zip(arg.type.shape, own, strict=True))


def _moved_index(value: Value, arg: Value, index: Index) -> Index:
    """Where a layout primitive with one operand takes its element from."""
    match value.op:
        case Broadcast():
            return _broadcast(arg, index)
        case Transpose(perm):
            return tuple(index[perm.index(axis)] for axis in range(len(perm)))
        case Reshape():
            if arg.type.shape == value.type.shape:
                return index
            return unflatten(flatten(index, value.type.shape), arg.type.shape)
        case Slice(starts, steps):
            return tuple(i * step + start for i, start, step in zip(index, starts, steps, strict=True))
        case Gather(axis, indices):
            if len(indices) > _MAX_TABLE:
                raise Refusal(f"A gather has more than {_MAX_TABLE} indices.")
            return (*index[:axis], lookup(index[axis], indices), *index[axis + 1 :])
    raise AssertionError(value.op)


def _window_counts(
    op: WindowReduce, operand: tuple[int, ...], result: tuple[int, ...], index: Index
) -> tuple[Expr, ...]:
    """Count, for each axis, the window positions that a mean divides by."""
    rank = len(op.window)
    factors = []
    for axis in range(rank):
        low = -op.before[axis] if op.count_padding else 0
        high = operand[axis - rank] + (op.after[axis] if op.count_padding else 0)
        counts = []
        for out in range(result[axis - rank]):
            start = out * op.strides[axis] - op.before[axis]
            positions = range(start, start + op.window[axis] * op.dilations[axis], op.dilations[axis])
            counts.append(sum(1 for p in positions if low <= p < high))
        factors.append(lookup(index[axis - rank], tuple(counts)))
    return tuple(factors)


def _product(extents: tuple[int, ...]) -> int:
    result = 1
    for extent in extents:
        result *= extent
    return result
