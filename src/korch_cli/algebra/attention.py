"""Attention written out in products and a softmax."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx

from korch_cli.algebra.matching import as_view, indices, mask, normalizes_rows, scaled
from korch_cli.algebra.rule import Kind, rule
from korch_cli.algebra.surgery import CONTRIB, Surgery
from korch_cli.core.types import Array, DType, TensorType

_MOST_STEPS = 8


@dataclass(frozen=True, slots=True)
class _Packed:
    """A tensor [batch, sequence, heads * width] that is seen as [batch, heads, sequence, width], and a factor."""

    name: str
    factor: float


@dataclass(frozen=True, slots=True)
class _Attention:
    """What one MultiHeadAttention computes."""

    query: str
    key: str
    value: str
    bias: str | None
    heads: int
    scale: float
    result: str


@rule(
    "softmax(s Q Kᵀ + M) V, heads apart = attention",
    Kind.REASSOCIATES,
    declines="Attention that is guarded against rows without any finite score (IsNaN, Where) stays written out unless "
    "its mask is constant and has no such row: MultiHeadAttention has no such guard.",
    contrib=True,
)
def raise_attention(surgery: Surgery) -> int:
    """Write MultiHeadAttention of ONNX Runtime, which never makes the matrix of all scores."""
    if not surgery.accepts("MultiHeadAttention", DType.F32):
        return 0
    count = 0
    for place, node in list(surgery.nodes()):
        if node.op_type != "Softmax" or node.domain or not surgery.holds(place, node):
            continue
        found = _found(surgery, node)
        if found is not None:
            end = surgery.maker(found.result)
            assert end is not None
            surgery.replace(end, list(_written(surgery, found)))
            count += 1
    return count


def _found(surgery: Surgery, softmax: onnx.NodeProto) -> _Attention | None:
    scores = surgery.types.get(softmax.input[0])
    if scores is None or scores.rank != 4 or scores.dtype is not DType.F32 or not scores.elements:
        return None
    if not normalizes_rows(surgery, softmax):
        return None
    name, factor, bias = softmax.input[0], 1.0, None
    for _ in range(3):
        node = surgery.made_by(name, "Add", "Mul", "Div")
        step = None if node is None or surgery.only_reader(name) is None else scaled(surgery, node)
        if step is not None:
            name, factor = step[0], factor * step[1]
        elif node is not None and node.op_type == "Add" and bias is None and factor == 1 and _is_lone(surgery, name):
            name, bias = _addends(surgery, node)
            bias = None if _is_zero(surgery, bias) else bias
    product = surgery.made_by(name, "MatMul")
    if product is None or not _is_lone(surgery, name):
        return None
    return _with_operands(surgery, softmax, product, bias, factor)


def _is_lone(surgery: Surgery, name: str) -> bool:
    return surgery.only_reader(name) is not None


def _addends(surgery: Surgery, node: onnx.NodeProto) -> tuple[str, str]:
    """Return the scores and what is added to them."""
    left, right = node.input
    made = surgery.made_by(left, "MatMul", "Mul", "Div")
    swapped = made is None or surgery.is_constant(left) or not surgery.alike(left, node.output[0])
    return (right, left) if swapped else (left, right)


def _is_zero(surgery: Surgery, name: str) -> bool:
    """Whether a mask leaves everything as it is."""
    array = mask(surgery, name)
    return array is not None and not array.any()


def _with_operands(
    surgery: Surgery, softmax: onnx.NodeProto, product: onnx.NodeProto, bias: str | None, factor: float
) -> _Attention | None:
    batch, heads, queries, keys = surgery.types[softmax.output[0]].shape
    mixed_at = surgery.only_reader(softmax.output[0])
    mixed = None if mixed_at is None else surgery.node(mixed_at)
    if mixed is None or mixed.op_type != "MatMul" or mixed.domain or mixed.input[0] != softmax.output[0]:
        return None
    value_shape, query_shape = surgery.shape(mixed.input[1]), surgery.shape(product.input[0])
    if value_shape is None or query_shape is None or value_shape[:2] != (batch, heads) or len(query_shape) != 4:
        return None
    width, depth = query_shape[3], value_shape[3]
    if query_shape[:2] != (batch, heads) or not _fits(surgery, bias, (batch, heads, queries, keys)):
        return None
    if not width or not depth:  # ONNX Runtime divides by them
        return None
    query = _packed(surgery, product.input[0], (batch, heads, queries, width), (0, 1, 2, 3))
    key = _packed(surgery, product.input[1], (batch, heads, keys, width), (0, 1, 3, 2))
    value = _packed(surgery, mixed.input[1], (batch, heads, keys, depth), (0, 1, 2, 3))
    result = _joined(surgery, mixed.output[0])
    if query is None or key is None or value is None or value.factor != 1 or result is None:
        return None
    scale = factor * query.factor * key.factor
    if not _is_scale(scale):
        return None
    return _Attention(query.name, key.name, value.name, bias, heads, scale, result)


def _is_scale(scale: float) -> bool:
    """Whether MultiHeadAttention takes a number as it is: it has float32, where 0 stands for one over a square root."""
    limits = np.finfo(np.float32)
    return float(limits.tiny) <= abs(scale) <= float(limits.max)


def _fits(surgery: Surgery, bias: str | None, scores: tuple[int, ...]) -> bool:
    shape = None if bias is None else surgery.shape(bias)
    if bias is None:
        return True
    if shape is None or len(shape) > len(scores) or surgery.types[bias].dtype is not DType.F32:
        return False
    return all(a in (1, b) for a, b in zip(shape[::-1], scores[::-1], strict=False))


def _packed(surgery: Surgery, name: str, shape: tuple[int, ...], perm: tuple[int, ...]) -> _Packed | None:
    """Return the tensor [batch, sequence, heads * width] whose heads a tensor holds apart, in this order of axes."""
    batch, heads, length, width = shape
    packed = (batch, length, heads * width)
    expected = indices(packed).reshape(batch, length, heads, width).transpose(0, 2, 1, 3).transpose(perm)
    chain: list[onnx.NodeProto] = []
    factor = 1.0
    for _ in range(_MOST_STEPS):
        if surgery.shape(name) == packed and _seen_as(surgery, chain, packed, expected):
            return _Packed(name, factor)
        place = surgery.maker(name)
        node = None if place is None else surgery.node(place)
        step = None if node is None else scaled(surgery, node)
        if node is None:
            return None
        if step is not None:
            name, factor = step[0], factor * step[1]
            continue
        if as_view(surgery, node, indices(surgery.shape(node.input[0]) or ())) is None:
            return None
        chain.append(node)
        name = node.input[0]
    return None


def _seen_as(surgery: Surgery, chain: list[onnx.NodeProto], shape: tuple[int, ...], expected: Array) -> bool:
    array: Array | None = indices(shape)
    for node in reversed(chain):
        array = None if array is None else as_view(surgery, node, array)
    return array is not None and np.array_equal(array, expected)


def _joined(surgery: Surgery, name: str) -> str | None:
    """Return the tensor [batch, sequence, heads * width] that only views make of a tensor with the heads apart.

    Batch and sequence may be one axis of it.
    """
    shape = surgery.shape(name)
    if shape is None:
        return None
    batch, heads, length, width = shape
    array: Array | None = indices(shape)
    expected = indices(shape).transpose(0, 2, 1, 3).reshape(batch * length, heads * width)
    for _ in range(_MOST_STEPS):
        if array is not None and array.shape in ((batch, length, heads * width), expected.shape):
            return name if np.array_equal(array.reshape(expected.shape), expected) else None
        place = surgery.only_reader(name)
        if place is None or array is None:
            return None
        node = surgery.node(place)
        array, name = as_view(surgery, node, array), node.output[0]
    return None


def _written(surgery: Surgery, found: _Attention) -> Iterator[onnx.NodeProto]:
    inputs = [found.query, found.key, found.value]
    if found.bias is not None:
        name, expansion = _expanded(surgery, found)
        yield from expansion
        inputs += ["", "", name]
    typed, value = surgery.types[found.result], surgery.types[found.value]
    packed = TensorType(typed.dtype, (*surgery.types[found.query].shape[:2], value.shape[2]))
    name = found.result if typed == packed else surgery.fresh(f"{found.result}/packed", packed)
    yield onnx.helper.make_node(
        "MultiHeadAttention", inputs, [name], domain=CONTRIB, num_heads=found.heads, scale=found.scale
    )
    if name != found.result:
        shape = surgery.add_constant(f"{found.result}/shape", np.array(typed.shape, np.int64))
        yield onnx.helper.make_node("Reshape", [name, shape], [found.result])


def _expanded(surgery: Surgery, found: _Attention) -> tuple[str, list[onnx.NodeProto]]:
    """Return what is added to the scores with four axes, whose last two are as long as theirs."""
    assert found.bias is not None
    typed = surgery.types[found.bias]
    query, key = surgery.types[found.query].shape, surgery.types[found.key].shape
    outer = ((1,) * (4 - typed.rank) + typed.shape)[:2]
    target = (*outer, query[1], key[1])
    if typed.shape == target:
        return found.bias, []
    for place in surgery.readers(found.bias):
        node = surgery.node(place)
        if node.op_type == "Expand" and surgery.shape(node.output[0]) == target:
            return str(node.output[0]), []
    name = surgery.fresh(f"{found.bias}/expanded", TensorType(typed.dtype, target))
    shape = surgery.add_constant(f"{found.bias}/shape", np.array(target, np.int64))
    return name, [onnx.helper.make_node("Expand", [found.bias, shape], [name])]
