"""Written-out activations become the operators that ONNX Runtime knows how to run inside of a blocked chain."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx

from korch_cli.algebra.affine import Lookup
from korch_cli.algebra.rule import Kind, rule
from korch_cli.algebra.surgery import Surgery
from korch_cli.core.types import DType

_NEAR = 1e-6
"""Constants may be off by as much as rounding them to float32 changes."""


@rule("clip(x + 3, 0, 6) / 6 = hard sigmoid x", Kind.REASSOCIATES)
def raise_hard_sigmoids(surgery: Surgery) -> int:
    """Replace clip(x + 3, 0, 6) / 6, in front of a product with x or behind it, by HardSigmoid; return how often.

    Exporters write hard swish and hard sigmoid like this for opsets that lack them.
    """
    count = 0
    for place, node in list(surgery.nodes()):
        operand = None if not surgery.holds(place, node) else _shifted_operand(node, surgery.constant)
        if operand is None or not _is_plain(surgery, operand):
            continue
        clip_at = surgery.only_reader(node.output[0])
        if clip_at is None or not _is_clip(surgery.node(clip_at), surgery.constant):
            continue
        clipped = surgery.node(clip_at)
        reader = surgery.only_reader(clipped.output[0])
        if reader is None:
            continue
        if _is_sixth(surgery.node(reader), clipped.output[0], surgery.constant):
            result = surgery.node(reader).output[0]
            if surgery.alike(operand, result):
                surgery.replace(reader, [_hard_sigmoid(operand, result)])
                count += 1
            continue
        product = surgery.node(reader)
        if product.op_type != "Mul" or sorted(product.input) != sorted((operand, clipped.output[0])):
            continue
        last = surgery.only_reader(product.output[0])
        if last is None or not _is_sixth(surgery.node(last), product.output[0], surgery.constant):
            continue
        result = surgery.node(last).output[0]
        if not surgery.alike(operand, result):
            continue
        gate = surgery.fresh(clipped.output[0], surgery.types[result])
        pair = [_hard_sigmoid(operand, gate), onnx.helper.make_node("Mul", [operand, gate], [result])]
        surgery.replace(last, pair)
        count += 1
    return count


def _hard_sigmoid(operand: str, result: str) -> onnx.NodeProto:
    return onnx.helper.make_node("HardSigmoid", [operand], [result], alpha=1 / 6, beta=0.5)


def _is_plain(surgery: Surgery, operand: str) -> bool:
    """Whether ONNX Runtime has a HardSigmoid for a tensor's element type."""
    typed = surgery.types.get(operand)
    return typed is not None and typed.dtype is DType.F32


def _shifted_operand(node: onnx.NodeProto, constant: Lookup) -> str | None:
    """Return x of x + 3."""
    if node.op_type != "Add" or node.domain or len(node.input) != 2:
        return None
    for name, other in (tuple(node.input), tuple(node.input)[::-1]):
        if constant(name) is None and _number(other, constant) == 3.0:
            return str(name)
    return None


def _is_clip(node: onnx.NodeProto, constant: Lookup) -> bool:
    if node.op_type != "Clip" or node.domain:
        return False
    bounds = list(_bounds(node, constant))
    return bounds == [0.0, 6.0]


def _bounds(node: onnx.NodeProto, constant: Lookup) -> Iterator[float | None]:
    attributes = {a.name: a.f for a in node.attribute}
    for i, name in ((1, "min"), (2, "max")):
        yield _number(node.input[i], constant) if len(node.input) > i and node.input[i] else attributes.get(name)


def _is_sixth(node: onnx.NodeProto, operand: str, constant: Lookup) -> bool:
    """Whether a node divides `operand` by six."""
    if node.domain or len(node.input) != 2:
        return False
    if node.op_type == "Div" and node.input[0] == operand:
        return _number(node.input[1], constant) == 6.0
    if node.op_type == "Mul" and operand in node.input:
        number = _number(next((name for name in node.input if name != operand), ""), constant)
        return number is not None and abs(number - 1 / 6) < _NEAR
    return False


def _number(name: str, constant: Lookup) -> float | None:
    array = constant(name)
    if array is None or array.size != 1 or array.dtype not in (np.float32, np.float64):
        return None
    return float(array.reshape(()))
