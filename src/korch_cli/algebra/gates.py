"""Channels that are multiplied by a gate, as squeeze-and-excitation does."""

from __future__ import annotations

import numpy as np
import onnx

from korch_cli.algebra.product import is_pointwise
from korch_cli.algebra.rule import Kind, rule
from korch_cli.algebra.surgery import Place, Surgery
from korch_cli.core.types import DType, TensorType


@rule(
    "x + x g = x (g + 1)",
    Kind.REASSOCIATES,
    declines="A gate that is as large as what it is applied to stays where it is.",
)
def add_to_gate(surgery: Surgery) -> int:
    """Add 1 to the gate, which is small, instead of x to the product."""
    count = 0
    for place, node in list(surgery.nodes()):
        if node.op_type != "Add" or node.domain or len(node.input) != 2 or not surgery.holds(place, node):
            continue
        for x, product in (tuple(node.input), tuple(node.input)[::-1]):
            gate = _gate(surgery, x, product)
            if gate is not None and surgery.alike(x, node.output[0]):
                surgery.replace(place, _grown(surgery, x, gate, node.output[0]))
                count += 1
                break
    return count


def _gate(surgery: Surgery, x: str, product: str) -> str | None:
    """Return g of a product x g that nothing else reads, if g is much smaller than x."""
    node = surgery.made_by(product, "Mul")
    if node is None or surgery.only_reader(product) is None or x not in node.input or len(set(node.input)) != 2:
        return None
    gate = node.input[1] if node.input[0] == x else node.input[0]
    typed, whole = surgery.types.get(gate), surgery.types.get(x)
    if typed is None or whole is None or typed.dtype not in (DType.F32, DType.F64) or surgery.is_constant(gate):
        return None
    return str(gate) if typed.elements * 4 <= whole.elements else None


def _grown(surgery: Surgery, x: str, gate: str, result: str) -> list[onnx.NodeProto]:
    typed = surgery.types[gate]
    one = surgery.add_constant(f"{gate}/one", np.ones((), typed.dtype.numpy))
    grown = surgery.fresh(f"{gate}/grown", typed)
    return [
        onnx.helper.make_node("Add", [gate, one], [grown]),
        onnx.helper.make_node("Mul", [x, grown], [result]),
    ]


@rule(
    "W * (g x) = (W g) x, x as a matrix of channels and positions",
    Kind.REASSOCIATES,
    declines="Gates in front of wide or grouped convolutions stay.",
)
def gate_weights(surgery: Surgery) -> int:
    """Multiply the weights of a convolution of width 1 by the gate of its operand, where they are the smaller ones."""
    count = 0
    for place, node in list(surgery.nodes()):
        if node.op_type == "Conv" and not node.domain and surgery.holds(place, node) and _gates(surgery, place, node):
            count += 1
    return count


def _gates(surgery: Surgery, place: Place, node: onnx.NodeProto) -> bool:
    product = surgery.made_by(node.input[0], "Mul")
    weights = surgery.constant(node.input[1]) if is_pointwise(node) else None
    if product is None or weights is None or surgery.only_reader(node.input[0]) is None or weights.ndim != 4:
        return False
    outputs, channels = weights.shape[:2]
    for x, gate in (tuple(product.input), tuple(product.input)[::-1]):
        whole, typed = surgery.types.get(x), surgery.types.get(gate)
        if whole is None or typed is None or whole.dtype is not DType.F32 or whole.rank != 4 or whole.shape[0] != 1:
            continue
        if typed.shape == (1, channels, 1, 1) and whole.elements > 2 * outputs * channels:
            surgery.replace(place, _weighted(surgery, node, x, gate, whole))
            return True
    return False


def _weighted(surgery: Surgery, node: onnx.NodeProto, x: str, gate: str, whole: TensorType) -> list[onnx.NodeProto]:
    weights = surgery.constant(node.input[1])
    assert weights is not None
    outputs, channels = weights.shape[:2]
    stem, area, dtype = node.output[0], whole.shape[2] * whole.shape[3], whole.dtype
    matrix = surgery.add_constant(f"{stem}/matrix", weights.reshape(outputs, channels))
    shapes = {"row": (1, channels), "flat": (channels, area), "image": (1, outputs, *whole.shape[2:])}
    targets = {name: surgery.add_constant(f"{stem}/{name}", np.array(s, np.int64)) for name, s in shapes.items()}
    row, gated, flat, mixed, image = (
        surgery.fresh(f"{stem}/{name}", TensorType(dtype, shape))
        for name, shape in (
            ("gate", shapes["row"]),
            ("gated", (outputs, channels)),
            ("flat", shapes["flat"]),
            ("mixed", (outputs, area)),
            ("image", shapes["image"]),
        )
    )
    make = onnx.helper.make_node
    has_bias = len(node.input) > 2 and bool(node.input[2])
    nodes = [
        make("Reshape", [gate, targets["row"]], [row]),
        make("Mul", [matrix, row], [gated]),
        make("Reshape", [x, targets["flat"]], [flat]),
        make("MatMul", [gated, flat], [mixed]),
        make("Reshape", [mixed, targets["image"]], [image if has_bias else stem]),
    ]
    if has_bias:
        bias = surgery.constant(node.input[2])
        assert bias is not None
        column = surgery.add_constant(f"{stem}/bias", bias.reshape(1, -1, 1, 1))
        nodes.append(make("Add", [image, column], [stem]))
    return nodes
