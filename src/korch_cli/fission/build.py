"""The builder: makes values, infers their types, interns scalars and folds what is known before the model runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from korch_cli.core.elementwise import FUNCTIONS
from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.interpreter import apply
from korch_cli.core.primitive import (
    Broadcast,
    Concat,
    Constant,
    Elementwise,
    Gather,
    Input,
    Linear,
    Op,
    Opaque,
    Pad,
    Reduce,
    Reshape,
    Slice,
    Transpose,
    WindowReduce,
)
from korch_cli.core.types import Array, DType, TensorType, broadcast_shapes

FOLD_ALWAYS_BYTES = 4 << 10
"""A folded constant up to this size is kept whatever its operands' size."""
FOLD_LIMIT_BYTES = 1 << 20
"""A folded constant up to this size is kept if its operands together are no smaller."""
FOLD_READ_BYTES = 64 << 20
"""Operands beyond this size are not read for folding."""
TABLE_LIMIT = 1 << 16
"""The longest table of indices that a Gather may hold."""

Operand = Value | float | int | bool
"""A value, or a number that becomes a literal of the other operand's element type."""


class Builder:
    """Collects the values of one graph, operator by operator.

    Every method returns a value whose type is inferred from its operands, and raises Refusal where these do not fit
    together. A method whose result would be its operand unchanged returns the operand.
    """

    def __init__(self, reserved: Iterable[str]) -> None:
        """Start an empty graph; `reserved` are the names of the model's tensors, which no inner value may take."""
        self.values: list[Value] = []
        self._names = set(reserved)
        self._literals: dict[tuple[DType, bytes], int] = {}
        self._operator = -1
        self._base = ""

    # --- sources and the frame around an operator ---

    def source(self, name: str, typed: TensorType, op: Input | Constant) -> Value:
        """Add an input, or a constant, under the model's own name."""
        return self._append(name, typed, op, (), -1)

    def opaque(self, name: str, typed: TensorType, op: Opaque, args: tuple[int, ...]) -> Value:
        """Add an output of an operator that stays as it is, under the model's own name."""
        return self._append(name, typed, op, args, op.operator)

    def begin(self, operator: int, base: str) -> int:
        """Attribute what follows to `operator`; inner names start with `base`. Return a mark for `finish`."""
        self._operator, self._base = operator, base
        return len(self.values)

    def finish(self, mark: int, results: Mapping[str, Value]) -> tuple[Value, ...]:
        """Name the results of an operator that began at `mark`; what is no value of its own becomes a copy."""
        taken: set[int] = set()
        named = []
        for name, result in results.items():
            own = result
            if result.id < mark or result.is_source or result.id in taken:
                own = self._emit(Reshape(), result.type, (result,), "copy", fold=False)
            taken.add(own.id)
            self._names.discard(own.name)
            named.append(replace(own, name=name))
            self.values[own.id] = named[-1]
        return tuple(named)

    # --- constants ---

    def literal(self, number: float | int | bool, dtype: DType) -> Value:
        """Return the scalar constant `number`; equal ones are one value."""
        with np.errstate(all="ignore"):
            array = np.array(number).astype(dtype.numpy)
        key = (dtype, array.tobytes())
        if key not in self._literals:
            name = self._unique(f"literal/{dtype.text}/{array}")
            self._literals[key] = self._append(name, TensorType(dtype, ()), Constant(array), (), -1).id
        return self.values[self._literals[key]]

    def constant(self, array: Array, suffix: str) -> Value:
        """Return a constant made by fission, named after the operator and `suffix`."""
        constant = Constant(array)
        typed = TensorType(constant.dtype, constant.shape)
        return self._append(self._unique(f"{self._base}/{suffix}"), typed, constant, (), -1)

    # --- elementwise ---

    def elementwise(self, function: str, *operands: Operand) -> Value:
        """Apply a function of `core.elementwise`; numbers take the element type of the last operand that has one."""
        dtype = next((o.type.dtype for o in reversed(operands) if isinstance(o, Value)), DType.F32)
        args = tuple(o if isinstance(o, Value) else self.literal(o, dtype) for o in operands)
        typed = args[1:] if function == "where" else args
        if len({a.type.dtype for a in typed}) != 1:
            raise Refusal(f"the operands of {function} have different element types")
        try:
            shape = broadcast_shapes(*(a.type.shape for a in args))
        except ValueError as error:
            raise Refusal(str(error)) from error
        result = FUNCTIONS[function].result or typed[0].type.dtype
        return self._emit(Elementwise(function), TensorType(result, shape), args, function)

    def add(self, x: Operand, y: Operand) -> Value:
        """Return x + y."""
        return self.elementwise("add", x, y)

    def sub(self, x: Operand, y: Operand) -> Value:
        """Return x - y."""
        return self.elementwise("sub", x, y)

    def mul(self, x: Operand, y: Operand) -> Value:
        """Return x * y."""
        return self.elementwise("mul", x, y)

    def div(self, x: Operand, y: Operand) -> Value:
        """Return x / y."""
        return self.elementwise("div", x, y)

    def max(self, x: Operand, y: Operand) -> Value:
        """Return the larger one, NaN if either is."""
        return self.elementwise("max", x, y)

    def min(self, x: Operand, y: Operand) -> Value:
        """Return the smaller one, NaN if either is."""
        return self.elementwise("min", x, y)

    def where(self, condition: Value, x: Operand, y: Operand) -> Value:
        """Return x where `condition` holds and y elsewhere."""
        return self.elementwise("where", condition, x, y)

    def cast(self, x: Value, dtype: DType) -> Value:
        """Return x with another element type."""
        if x.type.dtype is dtype:
            return x
        return self._emit(Elementwise("cast"), TensorType(dtype, x.type.shape), (x,), "cast")

    def wide(self, x: Value) -> Value:
        """Return x in the type to compute several steps in: float32 for the 16-bit floats, else its own."""
        return self.cast(x, DType.F32) if x.type.dtype in (DType.F16, DType.BF16) else x

    # --- reductions ---

    def reduce(self, function: str, x: Value, axes: Iterable[int]) -> Value:
        """Reduce over `axes`, which keep the extent 1."""
        axes = tuple(sorted(axes))
        if not axes:
            return x
        shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(x.type.shape))
        return self._emit(Reduce(function, axes), TensorType(x.type.dtype, shape), (x,), function)

    def window_reduce(self, op: WindowReduce, x: Value, spatial: tuple[int, ...]) -> Value:
        """Slide a window over the last axes, which get the extents `spatial`."""
        shape = x.type.shape[: -len(spatial)] + spatial
        return self._emit(op, TensorType(x.type.dtype, shape), (x,), "window")

    # --- layout ---

    def broadcast(self, x: Value, shape: tuple[int, ...]) -> Value:
        """Repeat x to `shape`."""
        if shape == x.type.shape:
            return x
        try:
            fits = broadcast_shapes(x.type.shape, shape) == shape
        except ValueError:
            fits = False
        if not fits:
            raise Refusal(f"{x.type} does not broadcast to {list(shape)}")
        return self._emit(Broadcast(), TensorType(x.type.dtype, shape), (x,), "broadcast")

    def reshape(self, x: Value, shape: tuple[int, ...]) -> Value:
        """Return the elements of x under `shape`."""
        typed = TensorType(x.type.dtype, shape)
        if shape == x.type.shape:
            return x
        if typed.elements != x.type.elements:
            raise Refusal(f"{x.type} cannot be reshaped to {list(shape)}")
        return self._emit(Reshape(), typed, (x,), "reshape")

    def transpose(self, x: Value, perm: tuple[int, ...]) -> Value:
        """Permute the axes of x."""
        if sorted(perm) != list(range(x.type.rank)):
            raise Refusal(f"{perm} is no permutation of the axes of {x.type}")
        if perm == tuple(range(len(perm))):
            return x
        shape = tuple(x.type.shape[axis] for axis in perm)
        return self._emit(Transpose(perm), TensorType(x.type.dtype, shape), (x,), "transpose")

    def slice(self, x: Value, starts: tuple[int, ...], steps: tuple[int, ...], shape: tuple[int, ...]) -> Value:
        """Take `shape` elements, from `starts` on by `steps`; the bounds must be right."""
        if shape == x.type.shape and all(s == 1 for s in steps):
            return x
        return self._emit(Slice(starts, steps), TensorType(x.type.dtype, shape), (x,), "slice")

    def pad(self, x: Value, before: tuple[int, ...], after: tuple[int, ...], value: float) -> Value:
        """Surround x with `value`."""
        if not any(before + after):
            return x
        shape = tuple(b + extent + a for b, extent, a in zip(before, x.type.shape, after, strict=True))
        return self._emit(Pad(before, value), TensorType(x.type.dtype, shape), (x,), "pad")

    def concat(self, axis: int, parts: tuple[Value, ...]) -> Value:
        """Put `parts` one after the other along `axis`."""
        first = parts[0]
        for part in parts:
            other = part.type
            if other.dtype is not first.type.dtype or other.rank != first.type.rank:
                raise Refusal(f"{first.type} and {other} cannot be concatenated")
            if any(a != b for i, (a, b) in enumerate(zip(first.type.shape, other.shape, strict=True)) if i != axis):
                raise Refusal(f"{first.type} and {other} cannot be concatenated along axis {axis}")
        if len(parts) == 1:
            return first
        extent = sum(part.type.shape[axis] for part in parts)
        shape = (*first.type.shape[:axis], extent, *first.type.shape[axis + 1 :])
        return self._emit(Concat(axis), TensorType(first.type.dtype, shape), parts, "concat")

    def gather(self, x: Value, axis: int, indices: tuple[int, ...]) -> Value:
        """Take the elements at `indices` of one axis."""
        if indices == tuple(range(x.type.shape[axis])):
            return x
        if len(indices) > TABLE_LIMIT:
            raise Refusal(f"a table of {len(indices)} indices is too long for a kernel")
        shape = (*x.type.shape[:axis], len(indices), *x.type.shape[axis + 1 :])
        return self._emit(Gather(axis, indices), TensorType(x.type.dtype, shape), (x,), "gather")

    # --- linear ---

    def matmul(self, x: Value, y: Value) -> Value:
        """Multiply matrices of rank at least 2."""
        left, right = x.type, y.type
        if min(left.rank, right.rank) < 2 or left.shape[-1] != right.shape[-2] or left.dtype is not right.dtype:
            raise Refusal(f"{left} and {right} cannot be multiplied")
        try:
            batch = broadcast_shapes(left.shape[:-2], right.shape[:-2])
        except ValueError as error:
            raise Refusal(str(error)) from error
        typed = TensorType(left.dtype, (*batch, left.shape[-2], right.shape[-1]))
        return self._emit(Linear("matmul"), typed, (x, y), "matmul")

    def conv(self, op: Linear, x: Value, w: Value, spatial: tuple[int, ...]) -> Value:
        """Convolve; `spatial` are the extents of the result's last axes."""
        typed = TensorType(x.type.dtype, (x.type.shape[0], w.type.shape[0], *spatial))
        return self._emit(op, typed, (x, w), "conv")

    def conv_transpose(self, op: Linear, x: Value, w: Value, spatial: tuple[int, ...]) -> Value:
        """Convolve transposed; `spatial` are the extents of the result's last axes."""
        group = dict(op.attributes)["group"]
        assert isinstance(group, int)
        typed = TensorType(x.type.dtype, (x.type.shape[0], w.type.shape[1] * group, *spatial))
        return self._emit(op, typed, (x, w), "conv_transpose")

    # --- inside ---

    def _emit(self, op: Op, typed: TensorType, args: tuple[Value, ...], suffix: str, *, fold: bool = True) -> Value:
        if fold and self._foldable(typed, args):
            known = [a.op.array() for a in args if isinstance(a.op, Constant)]
            array = apply(op, known, typed)
            return self.literal(array.item(), typed.dtype) if not array.shape else self.constant(array, suffix)
        name = self._unique(f"{self._base}/{suffix}")
        return self._append(name, typed, op, tuple(a.id for a in args), self._operator)

    def _foldable(self, typed: TensorType, args: tuple[Value, ...]) -> bool:
        if not args or not all(isinstance(a.op, Constant) for a in args):
            return False
        read = sum(a.type.size_bytes for a in args)
        if read > FOLD_READ_BYTES:
            return False
        return typed.size_bytes <= FOLD_ALWAYS_BYTES or typed.size_bytes <= min(read, FOLD_LIMIT_BYTES)

    def _append(self, name: str, typed: TensorType, op: Op, args: tuple[int, ...], operator: int) -> Value:
        value = Value(len(self.values), name, typed, op, args, operator)
        self.values.append(value)
        return value

    def _unique(self, wanted: str) -> str:
        name, count = wanted, 0
        while name in self._names:
            count += 1
            name = f"{wanted}_{count}"
        self._names.add(name)
        return name
