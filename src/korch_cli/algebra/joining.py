"""Convolutions of the same tensor become one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from korch_cli.algebra.matching import BLOCK, attribute
from korch_cli.algebra.product import Product, read_product
from korch_cli.algebra.rule import Kind, rule
from korch_cli.algebra.surgery import Place, Surgery
from korch_cli.core.types import DType, TensorType

_FIRST_SPLIT = 2
"""ONNX Runtime has none of version 1."""
_FIRST_SPLIT_WITH_SIZES = 13
_ACTIVATIONS = ("Clip", "HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Tanh")
_BLOCKED = ("Add", "AveragePool", "Concat", "Conv", "GlobalAveragePool", "MaxPool", "Mul")


@rule(
    "W x, V x = split((W, V) x)",
    Kind.EXACT,
    declines="Convolutions whose results fill whole blocks of 16 channels stay apart: joining them saves nothing, and "
    "ONNX Runtime has no blocked form of Split. So do products of matrices, which take as long together.",
)
def join_convolutions(surgery: Surgery) -> int:
    """Join convolutions with few results, of which ONNX Runtime computes as many as fill a block.

    The heads of detectors have one for four coordinates and one for a score.
    """
    if surgery.opset < _FIRST_SPLIT:
        return 0
    groups: dict[tuple[object, ...], list[tuple[Place, Product]]] = {}
    for place, node in list(surgery.nodes()):
        product = _fitting(surgery, node)
        if product is not None:
            attributes = tuple(sorted(a.SerializeToString() for a in node.attribute))
            key = (node.input[0], product.weights.shape[1:], attributes)
            groups.setdefault(key, []).append((place, product))
    chosen = [group for group in groups.values() if _saves(group)]
    for group in chosen:
        _join(surgery, group)
    return len(chosen)


def _fitting(surgery: Surgery, node: onnx.NodeProto) -> Product | None:
    """Return a convolution whose result leaves the blocked layout, and does not fill the last block."""
    typed = surgery.types.get(node.output[0]) if node.op_type == "Conv" and not node.domain else None
    if typed is None or typed.rank != 4 or typed.dtype is not DType.F32 or not typed.shape[1] % BLOCK:
        return None
    if attribute(node, "group", 1) != 1 or not _leaves(surgery, node.output[0]):
        return None
    return read_product(node, surgery.constant, surgery.types)


def _leaves(surgery: Surgery, name: str) -> bool:
    """Whether nothing that reads a tensor, or what an activation makes of it, works on blocks."""
    for place in surgery.readers(name):
        node = surgery.node(place)
        if node.op_type in _ACTIVATIONS and any(_stays(surgery, after) for after in surgery.readers(node.output[0])):
            return False
        if _stays(surgery, place):
            return False
    return True


def _stays(surgery: Surgery, place: Place) -> bool:
    """Whether a node works on blocks. Concatenation does if each of its operands fills its blocks."""
    node = surgery.node(place)
    if node.op_type == "Concat":
        return all((surgery.shape(name) or (0, 1))[1] % BLOCK == 0 for name in node.input)
    return node.op_type in _BLOCKED


def _saves(group: Sequence[tuple[Place, Product]]) -> bool:
    """Whether there are fewer blocks together than apart."""
    outputs = [product.outputs for _, product in group]
    return -(-sum(outputs) // BLOCK) < sum(-(-count // BLOCK) for count in outputs)


def _join(surgery: Surgery, group: Sequence[tuple[Place, Product]]) -> None:
    products = [product for _, product in group]
    first = products[0].node
    typed = surgery.types[first.output[0]]
    outputs = [product.outputs for product in products]
    shape = (typed.shape[0], sum(outputs), *typed.shape[2:])
    joined = surgery.fresh(f"{first.output[0]}/joined", TensorType(typed.dtype, shape))
    weights = surgery.add_constant(first.input[1], np.concatenate([product.weights for product in products]))
    inputs = [first.input[0], weights]
    if any(product.bias is not None for product in products):
        added = [np.zeros(p.outputs, p.weights.dtype) if p.bias is None else p.bias for p in products]
        inputs.append(surgery.add_constant(f"{joined}/bias", np.concatenate(added)))
    convolution = onnx.NodeProto()
    convolution.CopyFrom(first)
    convolution.name = ""
    del convolution.input[:]
    convolution.input.extend(inputs)
    convolution.output[0] = joined
    results = [product.node.output[0] for product in products]
    for place, _ in group[1:]:
        surgery.replace(place, [])
    surgery.replace(group[0][0], [convolution, _split(surgery, joined, results, outputs)])


def _split(surgery: Surgery, joined: str, results: Sequence[str], sizes: Sequence[int]) -> onnx.NodeProto:
    if surgery.opset < _FIRST_SPLIT_WITH_SIZES:
        return onnx.helper.make_node("Split", [joined], results, axis=1, split=sizes)
    counts = surgery.add_constant(f"{joined}/sizes", np.array(sizes, np.int64))
    return onnx.helper.make_node("Split", [joined, counts], results, axis=1)
