"""Channels that are multiplied by a gate, as squeeze-and-excitation does."""

from __future__ import annotations

import numpy as np
import onnx

from korch_cli.algebra.layout import BLOCK, comes_from_convolution, reads_blocked
from korch_cli.algebra.rule import Kind, rule
from korch_cli.algebra.surgery import Surgery
from korch_cli.core.types import DType, TensorType

_FIRST_MODES = 11
"""Since this version Resize says how it rounds."""


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
    "x g = x enlarged(g)",
    Kind.EXACT,
    declines="A gate stays small where its product does not lie between convolutions, where its channels are no "
    "multiple of 16, and in half or double precision, for which ONNX Runtime has no blocked layout.",
)
def enlarge_gates(surgery: Surgery) -> int:
    """Repeat the gate of an image for every position, for ONNX Runtime multiplies equal shapes alone when blocked."""
    count = 0
    for place, node in list(surgery.nodes()):
        if node.op_type != "Mul" or node.domain or surgery.opset < _FIRST_MODES or not surgery.holds(place, node):
            continue
        for x, gate in (tuple(node.input), tuple(node.input)[::-1]):
            if _is_gate(surgery, x, gate) and _is_between(surgery, x, gate, node.output[0]):
                surgery.replace(place, _enlarged(surgery, x, gate, node.output[0]))
                count += 1
                break
    return count


def _is_gate(surgery: Surgery, x: str, gate: str) -> bool:
    whole, typed = surgery.types.get(x), surgery.types.get(gate)
    if whole is None or typed is None or whole.rank != 4 or whole.dtype is not DType.F32 or not whole.elements:
        return False
    channels = whole.shape[1]
    return channels % BLOCK == 0 and typed.shape == (*whole.shape[:2], 1, 1) and typed.shape != whole.shape


def _is_between(surgery: Surgery, x: str, gate: str, result: str) -> bool:
    if not all(comes_from_convolution(surgery, name) for name in (x, gate)):
        return False
    return any(reads_blocked(surgery.node(place)) for place in surgery.readers(result))


def _enlarged(surgery: Surgery, x: str, gate: str, result: str) -> list[onnx.NodeProto]:
    shape = surgery.types[x].shape
    nowhere = surgery.add_constant(f"{gate}/roi", np.zeros(0, np.float32))
    scales = surgery.add_constant(f"{gate}/scales", np.array((1, 1, *shape[2:]), np.float32))
    large = surgery.fresh(f"{gate}/enlarged", TensorType(DType.F32, shape))
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return [
        onnx.helper.make_node("Resize", [gate, nowhere, scales], [large], **how),
        onnx.helper.make_node("Mul", [x, large], [result]),
    ]
