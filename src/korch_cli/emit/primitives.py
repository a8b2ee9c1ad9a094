"""Primitives as standard ONNX nodes: the bodies of the functions that stand in for kernels.

One function for each kind of primitive. Every node means exactly what the primitive means, at the opset version given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.primitive import (
    Broadcast,
    Concat,
    Constant,
    Elementwise,
    Gather,
    Linear,
    Pad,
    Reduce,
    Reshape,
    Slice,
    Transpose,
    WindowReduce,
)
from korch_cli.core.types import Array, DType
from korch_cli.emit.clamps import Clamp
from korch_cli.emit.elementwise import elementwise, held_in
from korch_cli.emit.windows import window_reduce

OLDEST_OPSET = 7
"""Before it, too many of these operators do not exist."""

_CONSTANTS = 9
"""The opset that brought constants of other types than floats."""
_EXPAND = 8
"""The opset that brought Expand."""
_SLICE_HAS_OPERANDS = 10
"""Before this opset Slice has attributes and no steps."""
_PAD_HAS_OPERANDS = 11
"""Before this opset Pad and Clip have attributes."""

_ZERO_IS_AN_EXTENT = 14
"""From this opset on Reshape can be told that a zero does not mean to copy an extent."""
_WHOLE_PRODUCTS = 9
"""The opset that brought products of matrices of integers."""
_CONVOLVED = (DType.F32, DType.F16)
_MULTIPLIED_WHOLE = (DType.F64, DType.I32, DType.I64, DType.U32, DType.U64)

_REDUCTIONS = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}


@dataclass(slots=True)
class FunctionBody:
    """Collects the nodes of one function.

    Attributes:
        graph: whose primitives become nodes.
        opset: version of the standard operators.
        names: the tensor of each value.
        nodes: what was made.
    """

    graph: PrimitiveGraph
    opset: int
    names: dict[int, str]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    _constants: dict[bytes, str] = field(default_factory=dict)

    def node(self, op_type: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Add a node; return its output."""
        self.nodes.append(helper.make_node(op_type, list(inputs), [output], **attributes))
        return output

    def constant(self, array: Array) -> str:
        """Return the tensor of a constant; equal ones are one node. Raises Refusal."""
        if self.opset < _CONSTANTS and array.dtype.kind != "f":
            raise Refusal(f"Opset {self.opset} has no constants of {array.dtype}.")
        key = str(array.dtype).encode() + str(array.shape).encode() + array.tobytes()
        if key not in self._constants:
            name = f"c{len(self._constants)}"
            self._constants[key] = name
            tensor = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        return self._constants[key]

    def integers(self, numbers: Sequence[int]) -> str:
        """Return a constant list of int64."""
        return self.constant(np.array(numbers, np.int64))

    def cast(self, tensor: str, dtype: DType, output: str) -> str:
        """Add a conversion of element type; return its output."""
        return self.node("Cast", [tensor], output, to=dtype.onnx)

    def operand(self, v: int) -> str:
        """Return the tensor of an operand; a literal becomes a constant."""
        if v not in self.names:
            op = self.graph.values[v].op
            assert isinstance(op, Constant)
            self.names[v] = self.constant(op.array())
        return self.names[v]

    def clamp(self, value: Value, clamp: Clamp) -> None:
        """Add the one node of a clamp, which ONNX Runtime can fuse into what comes before it."""
        operand = self.operand(clamp.operand)
        if clamp.low == 0 and clamp.high is None:
            self.node("Relu", [operand], self.names[value.id])
            return
        if self.opset < _PAD_HAS_OPERANDS:
            bounds = {"min": clamp.low, "max": clamp.high}
            given = {name: limit for name, limit in bounds.items() if limit is not None}
            self.node("Clip", [operand], self.names[value.id], **given)
            return
        limits = [
            "" if limit is None else self.constant(np.array(limit, value.type.dtype.numpy))
            for limit in (clamp.low, clamp.high)
        ]
        self.node("Clip", [operand, *limits], self.names[value.id])

    def add(self, value: Value) -> None:
        """Add the nodes of one primitive.

        Raises:
            Refusal: standard operators of this opset cannot say it.
        """
        rule = _RULES.get(type(value.op))
        if rule is None:
            raise Refusal(f"A {type(value.op).__name__.lower()} has no function.")
        rule(self, value, [self.operand(a) for a in value.args], self.names[value.id])


def _reduce(body: FunctionBody, value: Value, args: list[str], out: str) -> None:
    assert isinstance(value.op, Reduce)
    op, dtype = value.op, value.type.dtype
    if op.function == "mean" and not dtype.is_float:
        raise Refusal("A mean of integers has no operator.")
    held = held_in("reduce", dtype, body.opset)
    result = out if held is dtype else f"{out}_wide"
    if held is not dtype:
        args = [body.cast(args[0], held, f"{out}_arg")]
    op_type = _REDUCTIONS[op.function]
    if body.opset >= (13 if op_type == "ReduceSum" else 18):
        body.node(op_type, [*args, body.integers(op.axes)], result, keepdims=1)
    else:
        body.node(op_type, args, result, axes=list(op.axes), keepdims=1)
    if held is not dtype:
        body.cast(result, dtype, out)


def _broadcast(body: FunctionBody, value: Value, args: list[str], out: str) -> None:
    if body.opset < _EXPAND:
        raise Refusal(f"Opset {body.opset} cannot repeat a tensor to a shape.")
    dtype = value.type.dtype
    held = held_in("broadcast", dtype, body.opset)
    if held is dtype:
        body.node("Expand", [*args, body.integers(value.type.shape)], out)
        return
    wide = body.cast(args[0], held, f"{out}_arg")
    body.cast(body.node("Expand", [wide, body.integers(value.type.shape)], f"{out}_wide"), dtype, out)


def _transpose(body: FunctionBody, value: Value, args: list[str], out: str) -> None:
    assert isinstance(value.op, Transpose)
    if value.type.rank == 0:
        body.node("Identity", args, out)
    else:
        body.node("Transpose", args, out, perm=list(value.op.perm))


def _reshape(body: FunctionBody, value: Value, args: list[str], out: str) -> None:
    (operand,) = body.graph.args(value)
    if operand.type == value.type:
        body.node("Identity", args, out)
    elif value.type.elements > 0:
        body.node("Reshape", [*args, body.integers(value.type.shape)], out)
    elif body.opset >= _ZERO_IS_AN_EXTENT:
        body.node("Reshape", [*args, body.integers(value.type.shape)], out, allowzero=1)
    else:
        raise Refusal(f"Opset {body.opset} cannot reshape to an extent of zero.")


def _slice(body: FunctionBody, value: Value, args: list[str], out: str) -> None:
    assert isinstance(value.op, Slice)
    op, shape = value.op, value.type.shape
    (operand,) = body.graph.args(value)
    whole = zip(op.starts, op.steps, shape, operand.type.shape, strict=True)
    axes = [i for i, (start, step, extent, all_) in enumerate(whole) if (start, step, extent) != (0, 1, all_)]
    if not axes:
        body.node("Identity", args, out)
        return
    ends = [op.starts[i] + op.steps[i] * shape[i] for i in axes]
    # An end before the first element cannot be given as -1, which counts from the back.
    ends = [end if end >= 0 else np.iinfo(np.int64).min for end in ends]
    parts = [[op.starts[i] for i in axes], ends, axes, [op.steps[i] for i in axes]]
    if body.opset < _SLICE_HAS_OPERANDS:
        if any(step != 1 for step in parts[3]):
            raise Refusal(f"Opset {body.opset} cannot slice in steps.")
        body.node("Slice", args, out, starts=parts[0], ends=parts[1], axes=parts[2])
        return
    body.node("Slice", [*args, *map(body.integers, parts)], out)


def _pad(body: FunctionBody, value: Value, args: list[str], out: str) -> None:
    assert isinstance(value.op, Pad)
    (operand,) = body.graph.args(value)
    dtype = value.type.dtype
    if operand.type == value.type:
        body.node("Identity", args, out)
        return
    after = [t - e - b for t, e, b in zip(value.type.shape, operand.type.shape, value.op.before, strict=True)]
    if body.opset < _PAD_HAS_OPERANDS:
        if not dtype.is_float or dtype is DType.BF16:
            raise Refusal(f"Opset {body.opset} cannot pad {dtype.text}.")
        body.node("Pad", args, out, pads=[*value.op.before, *after], value=float(value.op.value))
        return
    amounts = body.integers([*value.op.before, *after])
    held = held_in("pad", dtype, body.opset)
    fill = body.constant(np.array(value.op.value).astype(dtype.numpy).astype(held.numpy))
    if held is dtype:
        body.node("Pad", [*args, amounts, fill], out)
        return
    body.node("Pad", [body.cast(args[0], held, f"{out}_arg"), amounts, fill], f"{out}_wide")
    body.cast(f"{out}_wide", dtype, out)


def _concat(body: FunctionBody, value: Value, args: list[str], out: str) -> None:
    assert isinstance(value.op, Concat)
    body.node("Concat", args, out, axis=value.op.axis)


def _gather(body: FunctionBody, value: Value, args: list[str], out: str) -> None:
    assert isinstance(value.op, Gather)
    body.node("Gather", [*args, body.integers(value.op.indices)], out, axis=value.op.axis)


def _linear(body: FunctionBody, value: Value, args: list[str], out: str) -> None:
    assert isinstance(value.op, Linear)
    dtype = value.type.dtype
    multiplied: tuple[DType, ...] = _CONVOLVED
    if value.op.kind == "matmul":
        multiplied += _MULTIPLIED_WHOLE if body.opset >= _WHOLE_PRODUCTS else (DType.F64,)
    if dtype not in multiplied:
        raise Refusal(f"Opset {body.opset} has no {value.op.kind} of {dtype.text}.")
    if value.op.kind == "matmul":
        body.node("MatMul", args, out)
        return
    attributes: dict[str, Any] = dict(value.op.attributes)
    pads = [*attributes.pop("before"), *attributes.pop("after")]
    body.node("Conv" if value.op.kind == "conv" else "ConvTranspose", args, out, pads=pads, **attributes)


_Rule = Callable[[FunctionBody, Value, list[str], str], None]
_RULES: dict[type, _Rule] = {
    Broadcast: _broadcast,
    Concat: _concat,
    Elementwise: elementwise,
    Gather: _gather,
    Linear: _linear,
    Pad: _pad,
    Reduce: _reduce,
    Reshape: _reshape,
    Slice: _slice,
    Transpose: _transpose,
    WindowReduce: window_reduce,
}
