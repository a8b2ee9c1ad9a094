"""Convolutions of width 1 in front of interpolation instead of behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from korch_cli.algebra.matching import attribute, is_along_channels
from korch_cli.algebra.product import Product, is_pointwise, read_product
from korch_cli.algebra.rule import Kind, rule
from korch_cli.algebra.surgery import Place, Surgery
from korch_cli.core.types import Array, TensorType

_LEAST_GAIN = 2.0
"""At least half of the products have to be saved; sums and smaller convolutions cost something too."""
_KEEPING_SUMS = ("nearest", "linear", "cubic")


@dataclass(frozen=True, slots=True)
class _Part:
    """One operand of a concatenation: what is convolved in its place, and what becomes of that."""

    source: str
    resize: onnx.NodeProto | None
    channels: int


@rule(
    "W * concat(resize(x), z) = resize(V * x) + U * z",
    Kind.REASSOCIATES,
    declines="A convolution behind an interpolation that takes values from outside (tf_crop_and_resize), "
    "or whose other readers need the larger tensor, stays where it is.",
)
def convolve_before_resize(surgery: Surgery) -> int:
    """Split convolutions of width 1 over concatenations with enlarged operands; convolve those while they are small.

    Interpolation works on each channel alone, with weights whose sum is 1, so that a bias passes through it.
    """
    count = 0
    for place, node in list(surgery.nodes()):
        if node.op_type != "Conv" or not surgery.holds(place, node):
            continue
        product = read_product(node, surgery.constant, surgery.types)
        if product is None or not is_pointwise(node):
            continue
        parts = _parts(surgery, node.input[0], product.inputs)
        if parts is not None and _gain(surgery, node, parts) >= _LEAST_GAIN:
            surgery.replace(place, _split(surgery, product, parts))
            count += 1
    return count


def _parts(surgery: Surgery, name: str, channels: int) -> list[_Part] | None:
    """Return what a tensor is joined of, None if none of it was enlarged or something else needs it."""
    concat = surgery.made_by(name, "Concat")
    if concat is not None and (not is_along_channels(concat) or len(surgery.shape(name) or ()) != 4):
        return None
    parts = []
    for part in [name] if concat is None else concat.input:
        shape = surgery.shape(part)
        if shape is None or len(shape) != 4:
            return None
        resize = surgery.made_by(part, "Resize", "Upsample")
        moved = resize is not None and _moves(surgery, resize)
        parts.append(
            _Part(resize.input[0] if moved and resize is not None else part, resize if moved else None, shape[1])
        )
    if not any(part.resize for part in parts) or sum(part.channels for part in parts) != channels:
        return None
    return parts


def _moves(surgery: Surgery, node: onnx.NodeProto) -> bool:
    """Whether a node enlarges the two last axes, each channel for itself, by means of values of its operand."""
    before, after = surgery.shape(node.input[0]), surgery.shape(node.output[0])
    if before is None or after is None or len(before) != 4 or before[:2] != after[:2]:
        return False
    if node.op_type == "Upsample":
        return attribute(node, "mode", b"nearest") in (b"nearest", b"linear")
    return (
        attribute(node, "mode", b"nearest").decode() in _KEEPING_SUMS
        and attribute(node, "coordinate_transformation_mode", b"half_pixel") != b"tf_crop_and_resize"
        and not attribute(node, "exclude_outside", 0)
        and not attribute(node, "antialias", 0)
        and not attribute(node, "axes", ())
        and attribute(node, "keep_aspect_ratio_policy", b"stretch") == b"stretch"
    )


def _gain(surgery: Surgery, node: onnx.NodeProto, parts: Sequence[_Part]) -> float:
    """Return how many times as many products the convolution takes now."""
    result = surgery.shape(node.output[0])
    typed = surgery.types.get(node.output[0])
    if result is None or typed is None or not typed.elements:
        return 0.0
    readers = surgery.readers(node.input[0])
    concat = surgery.made_by(node.input[0], "Concat")
    if not readers or not all(_may_move(surgery, reader) for reader in readers):
        return 0.0
    if concat is not None and any(p.resize and surgery.is_seen(p.resize.output[0]) for p in parts):
        return 0.0
    area = math.prod(result[2:])
    before = sum(part.channels for part in parts) * area
    after = 0
    for part in parts:
        shape = surgery.shape(part.source)
        assert shape is not None
        after += part.channels * math.prod(shape[2:])
    return before / max(after, 1)


def _may_move(surgery: Surgery, place: Place) -> bool:
    node = surgery.node(place)
    return node.op_type == "Conv" and not node.domain and is_pointwise(node) and surgery.is_constant(node.input[1])


def _split(surgery: Surgery, product: Product, parts: Sequence[_Part]) -> list[onnx.NodeProto]:
    node = product.node
    result = surgery.types[node.output[0]]
    smallest = min(range(len(parts)), key=lambda i: math.prod(surgery.types[parts[i].source].shape))
    nodes, terms, start = [], [], 0
    for i, part in enumerate(parts):
        weights = product.weights[:, start : start + part.channels]
        start += part.channels
        bias = product.bias if i == smallest else None
        made, term = _term(surgery, node, part, weights, bias, result)
        nodes += made
        terms.append(term)
    if len(terms) == 1:
        nodes[-1].output[0] = node.output[0]
        return nodes
    # Enlarged terms last: what is added first may be added by the convolution itself.
    total = terms[0]
    for i, term in enumerate(terms[1:], 1):
        last = i == len(terms) - 1
        name = node.output[0] if last else surgery.fresh(f"{node.output[0]}/sum", result)
        nodes.append(onnx.helper.make_node("Add", [total, term], [name]))
        total = name
    return nodes


def _term(
    surgery: Surgery, node: onnx.NodeProto, part: _Part, weights: Array, bias: Array | None, result: TensorType
) -> tuple[list[onnx.NodeProto], str]:
    shape = surgery.types[part.source].shape
    small = TensorType(result.dtype, (*result.shape[:2], *shape[2:]))
    name = surgery.fresh(f"{node.output[0]}/part", small)
    operands = [part.source, surgery.add_constant(node.input[1], np.ascontiguousarray(weights))]
    operands += [] if bias is None else [node.input[2]]
    convolution = onnx.helper.make_node("Conv", operands, [name], kernel_shape=[1, 1])
    if part.resize is None:
        return [convolution], name
    larger = surgery.fresh(f"{node.output[0]}/resized", result)
    resize = onnx.NodeProto()
    resize.CopyFrom(part.resize)
    resize.name = ""
    resize.input[0], resize.output[0] = name, larger
    if len(resize.input) > 3 and resize.input[3]:
        resize.input[3] = surgery.add_constant(f"{node.output[0]}/sizes", np.array(result.shape, np.int64))
    return [convolution, resize], larger
