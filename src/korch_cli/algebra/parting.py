"""Convolutions of a concatenation become sums of convolutions of its parts."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from korch_cli.algebra.matching import BLOCK, is_along_channels
from korch_cli.algebra.product import Product, is_pointwise, read_product
from korch_cli.algebra.rule import Kind, rule
from korch_cli.algebra.surgery import Surgery
from korch_cli.core.types import DType

_PARTS = 2
"""Each further part makes another pass over the result, which costs what the concatenation did."""


@rule(
    "W concat(x, y) = U x + V y",
    Kind.REASSOCIATES,
    declines="Concatenations of more than two parts, of parts that are no multiple of 16 channels, and ones that "
    "something else reads too, or a part of which, stay whole; so do convolutions of a width other than 1, and in half "
    "or double precision.",
)
def convolve_parts(surgery: Surgery) -> int:
    """Convolve both parts of a concatenation and add the results; the addition takes place in the second convolution.

    What a concatenation copies is read once more by the convolution. ONNX Runtime's convolutions add to a tensor. Parts
    with other readers, as NudeNet has them, tend to be in the plain layout, and each convolution would convert its own.
    """
    count = 0
    for place, node in list(surgery.nodes()):
        if node.op_type != "Conv" or node.domain or not surgery.holds(place, node):
            continue
        parts = _parts(surgery, node)
        product = None if parts is None else read_product(node, surgery.constant, surgery.types)
        if parts is not None and product is not None:
            surgery.replace(place, list(_sum(surgery, product, parts)))
            count += 1
    return count


def _parts(surgery: Surgery, node: onnx.NodeProto) -> list[tuple[str, int]] | None:
    """Return what a convolution of width 1 works on the concatenation of, and the channels of each."""
    joined = node.input[0]
    concat = surgery.made_by(joined, "Concat")
    if concat is None or surgery.only_reader(joined) is None or not is_pointwise(node):
        return None
    typed = surgery.types.get(joined)
    if typed is None or typed.rank != 4 or typed.dtype is not DType.F32 or not is_along_channels(concat):
        return None
    if any(surgery.only_reader(part) is None for part in concat.input):
        return None
    shapes = [surgery.shape(part) for part in concat.input]
    channels = [0 if shape is None else shape[1] for shape in shapes]
    if len(set(concat.input)) != _PARTS or len(channels) != _PARTS or any(c == 0 or c % BLOCK for c in channels):
        return None
    return list(zip(concat.input, channels, strict=True))


def _sum(surgery: Surgery, product: Product, parts: list[tuple[str, int]]) -> Iterator[onnx.NodeProto]:
    node, result = product.node, product.node.output[0]
    start, addends = 0, []
    for operand, channels in parts:
        weights = surgery.add_constant(node.input[1], product.weights[:, start : start + channels])
        bias = list(node.input[2:]) if start == 0 else []
        addends.append(surgery.fresh(f"{result}/part", surgery.types[result]))
        yield onnx.helper.make_node("Conv", [operand, weights, *bias], addends[-1:], kernel_shape=[1, 1])
        start += channels
    yield onnx.helper.make_node("Add", addends, [result])
