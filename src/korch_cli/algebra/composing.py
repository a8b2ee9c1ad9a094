"""Two linear maps with nothing but views between them become one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx

from korch_cli.algebra.matching import VIEWS, as_view, indices
from korch_cli.algebra.product import Product, is_pointwise, read_product
from korch_cli.algebra.rule import Kind, rule
from korch_cli.algebra.surgery import Place, Surgery
from korch_cli.core.types import Array, DType, TensorType

_LEAST_GAIN = 1.2
_MOST_VIEWS = 6
_MOST_WEIGHTS = 1 << 22


@dataclass(frozen=True, slots=True)
class _Linear:
    """A product whose weights are a matrix, and an addition that may follow it.

    Attributes:
        operand: its one variable input.
        result: what its last node makes.
        matrix: float64, of inputs and outputs.
        bias: float64, of outputs.
        axis: of the channels in operand and result.
        typed: type of the result.
    """

    operand: str
    result: str
    matrix: Array
    bias: Array
    axis: int
    typed: TensorType


@rule("B (A x) = (B A) x", Kind.REASSOCIATES)
def compose(surgery: Surgery) -> int:
    """Compose products of width 1 where the composed one is smaller than the two.

    Views may lie between them, as long as a channel stays a channel.
    """
    count = 0
    for place, node in list(surgery.nodes()):
        if not surgery.holds(place, node):
            continue
        first = _linear(surgery, node)
        end = None if first is None else _after_views(surgery, first)
        second = None if end is None else _linear(surgery, surgery.node(end))
        if first is None or second is None or end is None or not _is_smaller(first, second):
            continue
        if not _keeps_channels(surgery, first, second):
            continue
        last = surgery.maker(second.result)
        assert last is not None
        surgery.replace(last, list(_composed(surgery, first, second)))
        count += 1
    return count


def _linear(surgery: Surgery, node: onnx.NodeProto) -> _Linear | None:
    product = read_product(node, surgery.constant, surgery.types)
    typed = None if product is None else surgery.types.get(node.output[0])
    if product is None or typed is None or typed.dtype is not DType.F32 or product.weights.size > _MOST_WEIGHTS:
        return None
    matrix = _matrix(product)
    if matrix is None:
        return None
    bias = np.zeros(product.outputs) if product.bias is None else product.bias.astype(np.float64)
    result = node.output[0]
    if node.op_type == "MatMul":
        place = surgery.only_reader(result)
        added = None if place is None else _added(surgery, surgery.node(place), result, product.outputs)
        if place is not None and added is not None:
            bias, result = bias + added, surgery.node(place).output[0]
    return _Linear(node.input[0], result, matrix, bias, product.axis, typed)


def _matrix(product: Product) -> Array | None:
    wide = product.weights.astype(np.float64)
    match product.node.op_type:
        case "MatMul":
            return wide
        case "Conv" if is_pointwise(product.node):
            return wide.reshape(product.outputs, product.inputs).T
    return None


def _added(surgery: Surgery, node: onnx.NodeProto, name: str, channels: int) -> Array | None:
    """Return what a node adds to each channel of the last axis."""
    if node.op_type != "Add" or node.domain or not surgery.alike(name, node.output[0]):
        return None
    other = node.input[1] if node.input[0] == name else node.input[0]
    array = surgery.constant(other) if surgery.shape(other) == (channels,) else None
    return None if array is None else array.astype(np.float64)


def _after_views(surgery: Surgery, first: _Linear) -> Place | None:
    """Return the place of the one node that reads a result through views alone."""
    place = surgery.only_reader(first.result)
    for _ in range(_MOST_VIEWS):
        if place is None or surgery.node(place).op_type not in VIEWS or surgery.node(place).domain:
            return place
        place = surgery.only_reader(surgery.node(place).output[0])
    return None


def _is_smaller(first: _Linear, second: _Linear) -> bool:
    inputs, middle, outputs = first.matrix.shape[0], first.matrix.shape[1], second.matrix.shape[1]
    return bool((inputs + outputs) * middle >= _LEAST_GAIN * inputs * outputs)


def _keeps_channels(surgery: Surgery, first: _Linear, second: _Linear) -> bool:
    """Whether the views between two products move whole channels, and keep what a channel holds in order."""
    shape = first.typed.shape
    if math.prod(shape) == 0 or surgery.shape(first.operand) is None:
        return False
    array: Array | None = indices(shape)
    flat = np.moveaxis(indices(shape), first.axis, -1).reshape(-1, shape[first.axis])
    name = first.result
    while array is not None and name != second.operand:
        place = surgery.only_reader(name)
        assert place is not None
        node = surgery.node(place)
        array, name = as_view(surgery, node, array), node.output[0]
    if array is None or array.shape[second.axis] != flat.shape[1]:
        return False
    return bool(np.array_equal(np.moveaxis(array, second.axis, -1).reshape(flat.shape), flat))


def _composed(surgery: Surgery, first: _Linear, second: _Linear) -> Iterator[onnx.NodeProto]:
    matrix = (first.matrix @ second.matrix).astype(np.float32)
    bias = (first.bias @ second.matrix + second.bias).astype(np.float32)
    outputs = matrix.shape[1]
    shape = list(first.typed.shape)
    shape[first.axis] = outputs
    stem = second.result
    typed = TensorType(first.typed.dtype, tuple(shape))
    is_last = typed.shape == second.typed.shape and first.axis == second.axis
    name = stem if is_last else surgery.fresh(f"{stem}/composed", typed)
    yield from _product(surgery, first, matrix, bias, name, typed)
    if is_last:
        return
    if first.axis != second.axis:
        rank = len(shape)
        perm = [i for i in range(rank) if i != first.axis]
        perm.insert(1 if second.axis == 1 else rank - 1, first.axis)
        moved = TensorType(typed.dtype, tuple(shape[i] for i in perm))
        same = moved.shape == second.typed.shape
        turned = stem if same else surgery.fresh(f"{stem}/turned", moved)
        yield onnx.helper.make_node("Transpose", [name], [turned], perm=perm)
        if same:
            return
        name = turned
    target = surgery.add_constant(f"{stem}/shape", np.array(second.typed.shape, np.int64))
    yield onnx.helper.make_node("Reshape", [name, target], [stem])


def _product(
    surgery: Surgery, first: _Linear, matrix: Array, bias: Array, name: str, typed: TensorType
) -> Iterator[onnx.NodeProto]:
    if first.axis == 1 and typed.rank > 2:
        spatial = (1,) * (typed.rank - 2)
        weights = surgery.add_constant(f"{name}/weights", matrix.T.reshape(*matrix.T.shape, *spatial))
        added = [surgery.add_constant(f"{name}/bias", bias)] if bias.any() else []
        kernel = [1] * (typed.rank - 2)
        yield onnx.helper.make_node("Conv", [first.operand, weights, *added], [name], kernel_shape=kernel)
        return
    weights = surgery.add_constant(f"{name}/weights", matrix)
    if not bias.any():
        yield onnx.helper.make_node("MatMul", [first.operand, weights], [name])
        return
    between = surgery.fresh(f"{name}/product", typed)
    yield onnx.helper.make_node("MatMul", [first.operand, weights], [between])
    yield onnx.helper.make_node("Add", [between, surgery.add_constant(f"{name}/bias", bias)], [name])
