"""The invariants of a primitive graph: a pass that breaks one is a bug, found here rather than in a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from korch_cli.core.elementwise import FUNCTIONS
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
from korch_cli.core.types import DType, TensorType, broadcast_shapes

_LOGICAL = frozenset({"and", "or", "xor", "not"})
_REDUCTIONS = frozenset({"sum", "mean", "max", "min", "prod"})
_WINDOW_REDUCTIONS = frozenset({"sum", "max", "mean"})
_Rule = Callable[[Any, TensorType, list[TensorType]], None]


def check(graph: PrimitiveGraph) -> None:
    """Check ids, order, names, operand and result types of every value, and the graph's outputs.

    Raises:
        ValueError: a sentence that names the value and says what is broken.
    """
    names: set[str] = set()
    last = _last_ways(graph)
    for index, value in enumerate(graph.values):
        where = f"value %{index} ({value.name})"
        _need(value.id == index, f"{where} has the id {value.id}")
        _need(value.name not in names, f"{where} has a name that an earlier value has")
        names.add(value.name)
        for arg in value.args:
            _need(0 <= arg < index, f"{where} reads %{arg}, which does not come before it")
            _need(arg not in graph.alternatives, f"{where} reads %{arg}, which stands for no class")
            _need(last.get(arg, arg) < index, f"{where} reads %{arg}, and another way to compute it comes later")
        try:
            _check_value(value, [graph.values[arg].type for arg in value.args])
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    for output in graph.outputs:
        _need(0 <= output < len(graph.values), f"the output %{output} is not a value of the graph")
        _need(output not in graph.alternatives, f"the output %{output} stands for no class")
    for operator, outputs in graph.operator_outputs.items():
        for output in outputs:
            _need(-1 <= output < len(graph.values), f"the output %{output} of operator {operator} does not exist")


def _last_ways(graph: PrimitiveGraph) -> dict[int, int]:
    """Check the classes of equal values; return, for the first value of each, the last one."""
    last: dict[int, int] = {}
    for v, first in graph.alternatives.items():
        where = f"the alternative %{v} of %{first}"
        _need(0 <= first < v < len(graph.values), f"{where} does not come after it")
        _need(first not in graph.alternatives, f"{where} is one of an alternative")
        one, other = graph.values[first], graph.values[v]
        _need(not one.is_source and not other.is_source, f"{where} is not computed, or that one is not")
        _need(one.type == other.type, f"{where} is {other.type}, not {one.type}")
        last[first] = max(v, last.get(first, first))
    return last


def _need(condition: bool, sentence: str) -> None:
    if not condition:
        raise ValueError(sentence)


def _check_value(value: Value, args: list[TensorType]) -> None:
    _need(all(extent >= 0 for extent in value.type.shape), "an extent is negative")
    if value.is_source:
        _need(not args, "a source has no operands")
        _need(value.operator == -1, "a source comes from no operator")
    if isinstance(value.op, Opaque):
        _need(value.op.operator == value.operator, "an opaque value names another operator than it comes from")
        _need(value.op.output >= 0, "an opaque value names no output")
        return
    _RULES[type(value.op)](value.op, value.type, args)


def _input(_op: Input, _result: TensorType, _args: list[TensorType]) -> None:
    """Accept: what an Input is, its type says."""


def _constant(op: Constant, result: TensorType, _args: list[TensorType]) -> None:
    held = TensorType(op.dtype, op.shape)
    _need(held == result, f"the constant holds {held}, not {result}")


def _elementwise(op: Elementwise, result: TensorType, args: list[TensorType]) -> None:
    function = FUNCTIONS.get(op.function)
    if function is None:
        raise ValueError(f"there is no elementwise function {op.function}")
    _operands(args, function.arity)
    _need(broadcast_shapes(*(a.shape for a in args)) == result.shape, f"the operands do not broadcast to {result}")
    typed = args
    if op.function == "where":
        _need(args[0].dtype is DType.BOOL, "the condition of where is bool")
        typed = args[1:]
    _need(len({a.dtype for a in typed}) == 1, "the operands have different element types")
    if op.function in _LOGICAL:
        _need(typed[0].dtype is DType.BOOL, f"the operands of {op.function} are bool")
    if op.function != "cast":
        expected = function.result or typed[0].dtype
        _need(result.dtype is expected, f"the result is {expected.text}, not {result.dtype.text}")


def _broadcast(_op: Broadcast, result: TensorType, args: list[TensorType]) -> None:
    (operand,) = _same_dtype(result, args, 1)
    _need(broadcast_shapes(operand.shape, result.shape) == result.shape, f"{operand} does not broadcast to {result}")


def _reduce(op: Reduce, result: TensorType, args: list[TensorType]) -> None:
    (operand,) = _same_dtype(result, args, 1)
    _need(op.function in _REDUCTIONS, f"there is no reduction {op.function}")
    _need(bool(op.axes), "a reduction has at least one axis")
    _need(tuple(sorted(set(op.axes))) == op.axes, f"the axes {op.axes} are not ascending")
    _need(op.axes[0] >= 0 and op.axes[-1] < operand.rank, f"the axes {op.axes} are not all axes of {operand}")
    _shape(result, tuple(1 if axis in op.axes else extent for axis, extent in enumerate(operand.shape)))


def _window_reduce(op: WindowReduce, result: TensorType, args: list[TensorType]) -> None:
    (operand,) = _same_dtype(result, args, 1)
    _need(op.function in _WINDOW_REDUCTIONS, f"there is no window reduction {op.function}")
    _need(operand.rank == result.rank, f"{operand} and {result} differ in rank")
    rank = len(op.window)
    _need(1 <= rank <= operand.rank, f"{operand} has too few axes for a window of rank {rank}")
    _need(operand.shape[:-rank] == result.shape[:-rank], f"{result} changes an axis without a window")
    _window(op.window, op.strides, op.dilations, op.before, op.after)
    for axis in range(rank):
        extent, wanted = operand.shape[axis - rank], result.shape[axis - rank]
        span = op.dilations[axis] * (op.window[axis] - 1) + 1
        room = extent + op.before[axis] + op.after[axis] - span
        # ONNX's ceil_mode lets the last window begin inside the operand and end past its padding.
        low, high = room // op.strides[axis] + 1, -(-room // op.strides[axis]) + 1
        _need(low <= wanted <= high, f"the window gives {low} to {high} positions, not {wanted}")


def _transpose(op: Transpose, result: TensorType, args: list[TensorType]) -> None:
    (operand,) = _same_dtype(result, args, 1)
    _need(sorted(op.perm) == list(range(operand.rank)), f"{op.perm} is no permutation of the axes of {operand}")
    _shape(result, tuple(operand.shape[axis] for axis in op.perm))


def _reshape(_op: Reshape, result: TensorType, args: list[TensorType]) -> None:
    (operand,) = _same_dtype(result, args, 1)
    _need(operand.elements == result.elements, f"{operand} and {result} differ in the number of elements")


def _slice(op: Slice, result: TensorType, args: list[TensorType]) -> None:
    (operand,) = _same_dtype(result, args, 1)
    lengths = {len(op.starts), len(op.steps), result.rank, operand.rank}
    _need(len(lengths) == 1, "the slice does not have a start and a step for each axis")
    for extent, wanted, start, step in zip(operand.shape, result.shape, op.starts, op.steps, strict=True):
        _need(step != 0, "a step is zero")
        last = start + (wanted - 1) * step
        _need(wanted == 0 or (0 <= start < extent and 0 <= last < extent), f"the slice leaves {operand}")


def _pad(op: Pad, result: TensorType, args: list[TensorType]) -> None:
    (operand,) = _same_dtype(result, args, 1)
    _need(len(op.before) == operand.rank == result.rank, "the padding does not have an amount for each axis")
    for extent, wanted, before in zip(operand.shape, result.shape, op.before, strict=True):
        _need(before >= 0 and before + extent <= wanted, f"the padded operand does not fit into {result}")


def _concat(op: Concat, result: TensorType, args: list[TensorType]) -> None:
    _need(bool(args), "a concatenation has at least one operand")
    _same_dtype(result, args, len(args))
    _need(0 <= op.axis < result.rank, f"{result} has no axis {op.axis}")
    for operand in args:
        _need(operand.rank == result.rank, f"{operand} and {result} differ in rank")
        kept = operand.shape[: op.axis] + result.shape[op.axis : op.axis + 1] + operand.shape[op.axis + 1 :]
        _need(kept == result.shape, f"{operand} and {result} differ in another axis than {op.axis}")
    _need(sum(a.shape[op.axis] for a in args) == result.shape[op.axis], f"the operands do not add up to {result}")


def _gather(op: Gather, result: TensorType, args: list[TensorType]) -> None:
    (operand,) = _same_dtype(result, args, 1)
    _need(0 <= op.axis < operand.rank, f"{operand} has no axis {op.axis}")
    _need(all(0 <= i < operand.shape[op.axis] for i in op.indices), f"an index leaves {operand}")
    _shape(result, (*operand.shape[: op.axis], len(op.indices), *operand.shape[op.axis + 1 :]))


def _linear(op: Linear, result: TensorType, args: list[TensorType]) -> None:
    _same_dtype(result, args, 2)
    _need(list(op.attributes) == sorted(op.attributes), "the attributes are not sorted by name")
    if op.kind == "matmul":
        _matmul(op, result, args)
    elif op.kind == "conv":
        _conv(op, result, args)
    elif op.kind == "conv_transpose":
        _conv_transpose(op, result, args)
    else:
        raise ValueError(f"there is no product {op.kind}")


def _matmul(op: Linear, result: TensorType, args: list[TensorType]) -> None:
    left, right = args
    _need(not op.attributes, "a matmul has no attributes")
    _need(left.rank >= 2 and right.rank >= 2, "the operands of a matmul have at least two axes")
    _need(left.shape[-1] == right.shape[-2], f"{left} and {right} differ in the inner extent")
    _shape(result, (*broadcast_shapes(left.shape[:-2], right.shape[:-2]), left.shape[-2], right.shape[-1]))


_CONV = frozenset({"strides", "dilations", "before", "after", "group"})


def _conv(op: Linear, result: TensorType, args: list[TensorType]) -> None:
    operand, weight = args
    group, amounts = _geometry(op, _CONV, result, args)
    _need(operand.shape[1] == weight.shape[1] * group, f"{operand} does not have the channels that {weight} takes")
    _need(weight.shape[0] % group == 0, f"the channels of {weight} do not divide into {group} groups")
    spatial = []
    for axis, extent in enumerate(operand.shape[2:]):
        span = amounts["dilations"][axis] * (weight.shape[axis + 2] - 1) + 1
        room = extent + amounts["before"][axis] + amounts["after"][axis] - span
        spatial.append(room // amounts["strides"][axis] + 1)
    _shape(result, (operand.shape[0], weight.shape[0], *spatial))


def _conv_transpose(op: Linear, result: TensorType, args: list[TensorType]) -> None:
    operand, weight = args
    group, amounts = _geometry(op, _CONV | {"output_padding"}, result, args)
    _need(operand.shape[1] == weight.shape[0], f"{operand} does not have the channels that {weight} takes")
    _need(weight.shape[0] % group == 0, f"the channels of {weight} do not divide into {group} groups")
    spatial = []
    for axis, extent in enumerate(operand.shape[2:]):
        span = amounts["dilations"][axis] * (weight.shape[axis + 2] - 1) + 1
        reach = (extent - 1) * amounts["strides"][axis] + amounts["output_padding"][axis] + span
        spatial.append(reach - amounts["before"][axis] - amounts["after"][axis])
    _shape(result, (operand.shape[0], weight.shape[1] * group, *spatial))


def _geometry(
    op: Linear, names: frozenset[str], result: TensorType, args: list[TensorType]
) -> tuple[int, dict[str, tuple[int, ...]]]:
    """Check what all convolutions have in common; return the number of groups and the amounts for each axis."""
    operand, weight = args
    attributes = dict(op.attributes)
    _need(attributes.keys() == names, f"a {op.kind} has the attributes {sorted(names)}")
    group = attributes.pop("group")
    amounts = {name: amount for name, amount in attributes.items() if isinstance(amount, tuple)}
    if not isinstance(group, int) or len(amounts) != len(attributes):
        raise ValueError("group is a number, and all others are one for each axis")
    _need(group >= 1, "group is at least 1")
    _need(operand.rank == weight.rank == result.rank >= 3, f"the operands and the result of a {op.kind} differ in rank")
    padding = amounts.get("output_padding", (0,) * (operand.rank - 2))
    _need(len(padding) == operand.rank - 2 and min(padding) >= 0, "there is no output padding for each axis")
    _window(weight.shape[2:], *(amounts[name] for name in ("strides", "dilations", "before", "after")))
    return group, amounts


def _window(
    window: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    before: tuple[int, ...],
    after: tuple[int, ...],
) -> None:
    lengths = {len(amounts) for amounts in (window, strides, dilations, before, after)}
    _need(len(lengths) == 1, "strides, dilations and padding do not have an amount for each axis of the window")
    _need(min(window + strides + dilations) >= 1, "a window, stride or dilation is less than 1")
    _need(min(before + after) >= 0, "padding is negative")


def _operands(args: list[TensorType], count: int) -> None:
    _need(len(args) == count, f"{len(args)} operands instead of {count}")


def _same_dtype(result: TensorType, args: list[TensorType], count: int) -> list[TensorType]:
    _operands(args, count)
    _need(all(a.dtype is result.dtype for a in args), f"an operand is not {result.dtype.text} as the result is")
    return args


def _shape(result: TensorType, expected: tuple[int, ...]) -> None:
    _need(result.shape == expected, f"the result has the shape {result.shape}, not {expected}")


_RULES: dict[type, _Rule] = {
    Input: _input,
    Constant: _constant,
    Elementwise: _elementwise,
    Broadcast: _broadcast,
    Reduce: _reduce,
    WindowReduce: _window_reduce,
    Transpose: _transpose,
    Reshape: _reshape,
    Slice: _slice,
    Pad: _pad,
    Concat: _concat,
    Gather: _gather,
    Linear: _linear,
}
