"""What rules ask of nodes: attributes, scalar constants, polynomials, and chains of views."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from numpy.polynomial import Polynomial

from korch_cli.algebra.surgery import Surgery
from korch_cli.core.types import Array

BLOCK = 16
"""Channels in a block of ONNX Runtime's layout where blocks are largest; it computes whole ones."""
_LAST_FLATTENING = 12
"""Up to this version Softmax normalises over all axes from the given one on."""
_DEPTH = 8
_HIGHEST_DEGREE = 4
_MOST_ELEMENTS = 1 << 24
"""Views of larger tensors are not followed element by element."""
VIEWS = ("Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """Return an attribute's value."""
    return next((onnx.helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def number(surgery: Surgery, name: str) -> float | None:
    """Return the value of a constant of one floating-point element, None for anything else."""
    typed = surgery.types.get(name)
    if typed is None or typed.elements != 1 or not typed.dtype.is_float or not surgery.is_constant(name):
        return None
    array = surgery.constant(name)
    return None if array is None else float(array.reshape(()))


def mask(surgery: Surgery, name: str) -> Array | None:
    """Return the elements of a constant, or of what Where makes of constants, None for any other tensor.

    Loading leaves a Where of constants in place if its result is larger than they are.
    """
    node = surgery.made_by(name, "Where")
    if node is None:
        return surgery.constant(name)
    operands = [surgery.constant(operand) for operand in node.input]
    if any(operand is None for operand in operands):
        return None
    return np.where(*(operand for operand in operands if operand is not None))


def normalizes_rows(surgery: Surgery, softmax: onnx.NodeProto) -> bool:
    """Whether a Softmax goes over the last axis alone."""
    rank = len(surgery.shape(softmax.input[0]) or ())
    default = 1 if surgery.opset <= _LAST_FLATTENING else -1
    return rank > 0 and attribute(softmax, "axis", default) in (-1, rank - 1)


def is_along_channels(node: onnx.NodeProto) -> bool:
    """Whether a Concat or Split of images, [N, C, H, W], is one of their channels."""
    return attribute(node, "axis", 0) in (1, -3)


def scaled(surgery: Surgery, node: onnx.NodeProto) -> tuple[str, float] | None:
    """Return operand and factor of a node that multiplies by a number or divides by one, if it adds no axes."""
    if node.domain or node.op_type not in ("Mul", "Div") or len(node.input) != 2:
        return None
    pairs = [(node.input[0], node.input[1]), (node.input[1], node.input[0])]
    for operand, other in pairs if node.op_type == "Mul" else pairs[:1]:
        value = number(surgery, other)
        if value is None or not surgery.alike(operand, node.output[0]):
            continue
        if node.op_type == "Div":
            value = 1 / value if value else math.inf
        return (operand, value) if math.isfinite(value) else None
    return None


def polynomial(surgery: Surgery, name: str, x: str, depth: int = _DEPTH) -> Polynomial | None:
    """Return a tensor as a polynomial of another one, None where it is none of a low degree."""
    if name == x:
        return Polynomial([0.0, 1.0])
    value = number(surgery, name)
    if value is not None:
        return Polynomial([value]) if math.isfinite(value) else None
    node = surgery.made_by(name, "Add", "Sub", "Mul", "Div", "Pow")
    if node is None or depth == 0 or not surgery.alike(x, name) or len(node.input) != 2:
        return None
    left = polynomial(surgery, node.input[0], x, depth - 1)
    right = polynomial(surgery, node.input[1], x, depth - 1) if left is not None else None
    if left is None or right is None:
        return None
    return _combined(node.op_type, left, right)


def _combined(op_type: str, left: Polynomial, right: Polynomial) -> Polynomial | None:
    constant = float(right.coef[0]) if right.degree() == 0 else None
    match op_type:
        case "Add":
            return left + right
        case "Sub":
            return left - right
        case "Mul":
            return left * right if left.degree() + right.degree() <= _HIGHEST_DEGREE else None
        case "Div":
            return left / constant if constant else None
    if constant is None or constant not in (1, 2, 3) or left.degree() * constant > _HIGHEST_DEGREE:
        return None
    return left ** int(constant)


def is_near(found: Polynomial, coefficients: tuple[float, ...]) -> bool:
    """Whether a polynomial has these coefficients, up to what rounding to float32 changes."""
    trimmed = found.trim()
    if len(trimmed.coef) != len(coefficients):
        return False
    return bool(np.allclose(trimmed.coef, coefficients, rtol=1e-5, atol=1e-7))


def products_of(surgery: Surgery, name: str, most: int = 3) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """The products that a tensor alone goes into: each result, and what it is multiplied with and divided by."""
    factors: tuple[str, ...] = ()
    divisors: tuple[str, ...] = ()
    for _ in range(most):
        place = surgery.only_reader(name)
        if place is None:
            return
        node = surgery.node(place)
        if node.domain or node.op_type not in ("Mul", "Div") or len(node.input) != 2:
            return
        if node.op_type == "Div":
            if node.input[0] != name:
                return
            divisors += (node.input[1],)
        else:
            factors += (node.input[1] if node.input[0] == name else node.input[0],)
        name = node.output[0]
        yield name, factors, divisors


def as_view(surgery: Surgery, node: onnx.NodeProto, array: Array) -> Array | None:
    """Return what a view makes of an array of indices, None if the node is no view or its shape is not known."""
    if node.domain or node.op_type not in VIEWS:
        return None
    shape = surgery.shape(node.output[0])
    if shape is None or array.size > _MOST_ELEMENTS:
        return None
    if node.op_type == "Transpose":
        return array.transpose(attribute(node, "perm", tuple(range(array.ndim))[::-1]))
    return array.reshape(shape)


def indices(shape: tuple[int, ...]) -> Array:
    """Return a number for each element of a tensor, in order."""
    return np.arange(math.prod(shape), dtype=np.int32).reshape(shape)


def views_behind(surgery: Surgery, name: str) -> list[onnx.NodeProto]:
    """Return the views that a tensor was made by, the last one first."""
    chain: list[onnx.NodeProto] = []
    while (node := surgery.made_by(name, *VIEWS)) is not None and len(chain) < _DEPTH:
        chain.append(node)
        name = node.input[0]
    return chain


def viewed(surgery: Surgery, chain: list[onnx.NodeProto]) -> Array | None:
    """Return where the elements of the last view's result were in the operand of the first; `chain` begins with it."""
    shape = surgery.shape(chain[-1].input[0])
    if shape is None or math.prod(shape) > _MOST_ELEMENTS:
        return None
    array: Array | None = indices(shape)
    for node in reversed(chain):
        array = as_view(surgery, node, array) if array is not None else None
    return array
