"""Mish with one exponential."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx

from korch_cli.algebra.matching import polynomial
from korch_cli.algebra.rule import Kind, rule
from korch_cli.algebra.surgery import Place, Surgery
from korch_cli.core.types import DType

_FIRST_BROADCAST = 8
_LARGE = 20
"""The gate is 1, to the last bit of float64, for any operand above this."""


@rule(
    "x tanh(log(1 + eˣ)) = x n / (n + 2), n = eˣ (eˣ + 2)",
    Kind.REASSOCIATES,
    declines="Mish in half precision stays as it is: the longer chain would be rounded more often.",
)
def rewrite_mish(surgery: Surgery) -> int:
    """Replace Mish, and what it is written out as, by a chain that needs no logarithm and no tangent.

    No digits are lost, for all terms are positive; nothing overflows, for x is bounded first.
    """
    if surgery.opset < _FIRST_BROADCAST:
        return 0
    count = 0
    for place, node in list(surgery.nodes()):
        if not surgery.holds(place, node) or node.domain:
            continue
        for end, x in _found(surgery, place, node):
            result = surgery.node(end).output[0]
            if surgery.alike(x, result) and surgery.types[x].dtype in (DType.F32, DType.F64):
                surgery.replace(end, list(_chain(surgery, x, result)))
                count += 1
                break
    return count


def _found(surgery: Surgery, place: Place, node: onnx.NodeProto) -> Iterator[tuple[Place, str]]:
    """Places of the nodes that make a Mish, with its operand."""
    if node.op_type == "Mish":
        yield place, node.input[0]
    if node.op_type != "Tanh":
        return
    end = surgery.only_reader(node.output[0])
    x = _softplus_operand(surgery, node.input[0])
    if end is not None and x is not None:
        product = surgery.node(end)
        if product.op_type == "Mul" and not product.domain and sorted(product.input) == sorted((x, node.output[0])):
            yield end, x


def _softplus_operand(surgery: Surgery, name: str) -> str | None:
    """Return x of log(1 + exp x)."""
    soft = surgery.made_by(name, "Softplus")
    if soft is not None:
        return str(soft.input[0])
    logarithm = surgery.made_by(name, "Log")
    total = None if logarithm is None else surgery.made_by(logarithm.input[0], "Add")
    if total is None:
        return None
    for part in total.input:
        exponential = surgery.made_by(part, "Exp")
        grown = None if exponential is None else polynomial(surgery, total.output[0], part)
        if exponential is not None and grown is not None and list(grown.coef) == [1.0, 1.0]:
            return str(exponential.input[0])
    return None


def _chain(surgery: Surgery, x: str, result: str) -> Iterator[onnx.NodeProto]:
    typed = surgery.types[x]
    two, most = (surgery.add_constant(f"{result}/{v}", np.asarray(v, typed.dtype.numpy)) for v in (2, _LARGE))
    names = ("bounded", "e", "e+2", "n", "n+2", "gate")
    bounded, e, raised, n, below, gate = (surgery.fresh(f"{result}/{name}", typed) for name in names)
    make = onnx.helper.make_node
    yield make("Min", [x, most], [bounded])
    yield make("Exp", [bounded], [e])
    yield make("Add", [e, two], [raised])
    yield make("Mul", [e, raised], [n])
    yield make("Add", [n, two], [below])
    yield make("Div", [n, below], [gate])
    yield make("Mul", [x, gate], [result])
