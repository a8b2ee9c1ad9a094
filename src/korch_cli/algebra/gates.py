"""Channels that are multiplied by a gate, as squeeze-and-excitation does."""

from __future__ import annotations

import numpy as np
import onnx

from korch_cli.algebra.rule import Kind, rule
from korch_cli.algebra.surgery import Surgery
from korch_cli.core.types import DType


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
