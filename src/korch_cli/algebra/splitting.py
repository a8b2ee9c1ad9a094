"""Convolutions whose result is split become one for each part."""

from __future__ import annotations

import numpy as np
import onnx

from korch_cli.algebra.matching import BLOCK, attribute, is_along_channels, number
from korch_cli.algebra.product import Product, read_product
from korch_cli.algebra.rule import Kind, rule
from korch_cli.algebra.surgery import Surgery
from korch_cli.core.types import DType, TensorType

_MOST_NODES = 6
_UNARY = ("Clip", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Relu", "Sigmoid", "Softplus", "Tanh")
_BINARY = ("Add", "Div", "Mul", "Sub")
_STAYING = ("Add", "AveragePool", "Concat", "Conv", "MaxPool")
"""Readers that work on blocked operands."""


@rule(
    "split(f(W x)) = f(V x), f(U x)",
    Kind.EXACT,
    declines="A convolution stays whole where its result has other readers, where a part is no multiple of "
    "16 channels, and in half or double precision, for which ONNX Runtime has no blocked layout.",
)
def split_convolutions(surgery: Surgery) -> int:
    """Split the weights of a convolution instead of its result, for ONNX Runtime has no blocked form of Split.

    Elementwise operators between the two are repeated for each part.
    """
    count = 0
    for place, node in list(surgery.nodes()):
        if node.op_type != "Split" or node.domain or not surgery.holds(place, node):
            continue
        region = _region(surgery, node) if _fits(surgery, node) else None
        product = None if region is None else read_product(region[0], surgery.constant, surgery.types)
        if region is None or product is None or attribute(region[0], "group", 1) != 1:
            continue
        surgery.replace(place, _parts(surgery, node, product, region[1:]))
        count += 1
    return count


def _fits(surgery: Surgery, split: onnx.NodeProto) -> bool:
    """Whether a node splits the channels of an image into blocks that go on to what keeps them."""
    typed = surgery.types.get(split.input[0])
    if typed is None or typed.rank != 4 or typed.dtype is not DType.F32 or not is_along_channels(split):
        return False
    for name in split.output:
        shape = surgery.shape(name)
        readers = [surgery.node(place) for place in surgery.readers(name)]
        if shape is None or shape[1] % BLOCK or not shape[1] or not readers:
            return False
        if any(reader.op_type not in _STAYING or reader.domain for reader in readers):
            return False
    return True


def _region(surgery: Surgery, split: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """Return a convolution and the elementwise operators between it and a split, in order, that nothing else reads."""
    found: dict[str, onnx.NodeProto] = {}
    waiting = [split.input[0]]
    typed = surgery.types[split.input[0]]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        node = surgery.made_by(name, "Conv", *_UNARY, *_BINARY)
        if node is None or surgery.types.get(name) != typed or name in surgery.reserved or len(found) == _MOST_NODES:
            return None
        found[name] = node
        if node.op_type != "Conv":
            operands = [operand for operand in node.input if not _is_number(surgery, operand)]
            if not operands:
                return None
            waiting += operands
    inside = [*found.values(), split]
    for name in found:
        readers = [surgery.node(place) for place in surgery.readers(name)]
        if not readers or any(all(reader is not node for node in inside) for reader in readers):
            return None
    order = [node for _, node in surgery.nodes() if any(node is other for other in found.values())]
    return order if [node.op_type == "Conv" for node in order] == [True] + [False] * (len(order) - 1) else None


def _is_number(surgery: Surgery, name: str) -> bool:
    return not name or number(surgery, name) is not None


def _parts(
    surgery: Surgery, split: onnx.NodeProto, product: Product, between: list[onnx.NodeProto]
) -> list[onnx.NodeProto]:
    nodes = []
    start = 0
    for result in split.output:
        typed = surgery.types[result]
        end = start + typed.shape[1]
        operands = [product.node.input[0], surgery.add_constant(product.node.input[1], product.weights[start:end])]
        if product.bias is not None:
            operands.append(surgery.add_constant(product.node.input[2], np.array(product.bias[start:end])))
        names: dict[str, str] = {}
        for node in (product.node, *between):
            inputs = operands if node is product.node else [names.get(name, name) for name in node.input]
            nodes.append(_copy(surgery, node, inputs, names, split.input[0], result, typed))
        start = end
    return nodes


def _copy(
    surgery: Surgery,
    node: onnx.NodeProto,
    inputs: list[str],
    names: dict[str, str],
    last: str,
    result: str,
    typed: TensorType,
) -> onnx.NodeProto:
    """Return a node for one part; its result is entered into `names`."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.name = ""
    names[node.output[0]] = result if node.output[0] == last else surgery.fresh(f"{result}/part", typed)
    del copy.input[:]
    copy.input.extend(inputs)
    copy.output[0] = names[node.output[0]]
    return copy
