"""The Gaussian error linear unit in the forms that exporters write."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import onnx
from numpy.polynomial import Polynomial

from korch_cli.algebra.matching import is_near, polynomial, products_of
from korch_cli.algebra.rule import Kind, rule
from korch_cli.algebra.surgery import CONTRIB, Surgery
from korch_cli.core.types import DType

_FIRST_GELU = 20
_ARGUMENT = (0.0, math.sqrt(0.5))
"""Of erf, as a polynomial of x."""


@rule(
    "x/2 (1 + erf(x/√2)) = gelu x",
    Kind.REASSOCIATES,
    declines="Gelu in half or double precision stays written out: ONNX Runtime has no kernel for it.",
)
def raise_gelu(surgery: Surgery) -> int:
    """Write Gelu, of ONNX or of ONNX Runtime; where neither can be had, keep what ONNX Runtime recognises whole."""
    count = 0
    for place, node in list(surgery.nodes()):
        if node.op_type != "Erf" or node.domain or not surgery.holds(place, node):
            continue
        found = _found(surgery, node)
        if found is None:
            continue
        x, result = found
        raised = _gelu(surgery, x, result)
        if raised is None:
            surgery.reserved.update(_inside(surgery, result, x))
            continue
        end = surgery.maker(result)
        assert end is not None
        surgery.replace(end, [raised])
        count += 1
    return count


def _found(surgery: Surgery, node: onnx.NodeProto) -> tuple[str, str] | None:
    """Return operand and result of the unit that a node is the inner part of."""
    grown = _grown(surgery, node.output[0])
    if grown is None:
        return None
    for result, factors, divisors in products_of(surgery, grown):
        for x in _candidates(surgery, factors):
            inner = polynomial(surgery, node.input[0], x)
            if inner is None or not is_near(inner, _ARGUMENT) or not surgery.alike(x, result):
                continue
            outer = _product(surgery, factors, divisors, x)
            if outer is not None and is_near(outer, (0.0, 0.5)):
                return x, result
    return None


def _grown(surgery: Surgery, name: str) -> str | None:
    """Return 1 + a tensor."""
    place = surgery.only_reader(name)
    node = None if place is None else surgery.node(place)
    if node is None or node.op_type != "Add" or node.domain:
        return None
    found = polynomial(surgery, node.output[0], name)
    return node.output[0] if found is not None and is_near(found, (1.0, 1.0)) else None


def _candidates(surgery: Surgery, factors: Sequence[str]) -> Iterator[str]:
    """The tensors that may be x: the factors, and what they are multiples of."""
    for name in factors:
        if not surgery.is_constant(name):
            yield name
            node = surgery.made_by(name, "Mul", "Div")
            yield from () if node is None else (i for i in node.input if not surgery.is_constant(i))


def _product(surgery: Surgery, factors: Sequence[str], divisors: Sequence[str], x: str) -> Polynomial | None:
    total = Polynomial([1.0])
    for names, divides in ((factors, False), (divisors, True)):
        for name in names:
            part = polynomial(surgery, name, x)
            if part is None or (divides and (part.degree() or not part.coef[0])):
                return None
            total = total / float(part.coef[0]) if divides else total * part
    return total


def _gelu(surgery: Surgery, x: str, result: str) -> onnx.NodeProto | None:
    if surgery.types[x].dtype is not DType.F32:
        return None
    if surgery.opset >= _FIRST_GELU:
        return onnx.helper.make_node("Gelu", [x], [result])
    if not surgery.accepts("Gelu", DType.F32):
        return None
    return onnx.helper.make_node("Gelu", [x], [result], domain=CONTRIB)


def _inside(surgery: Surgery, name: str, x: str) -> set[str]:
    """The tensors between a result and x, the result among them."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        name = waiting.pop()
        node = surgery.made_by(name, "Add", "Sub", "Mul", "Div", "Pow", "Erf")
        if name == x or name in found or node is None:
            continue
        found.add(name)
        waiting.extend(node.input)
    return found
