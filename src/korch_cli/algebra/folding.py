"""Affine maps with constant coefficients go into the weights of the products beside them."""

from __future__ import annotations

import numpy as np
import onnx

from korch_cli.algebra.affine import Affine, may_be_affine, read_affine
from korch_cli.algebra.product import Product, read_product
from korch_cli.algebra.rule import Kind, rule
from korch_cli.algebra.surgery import Surgery
from korch_cli.core.types import Array


@rule(
    "s (W x) + t = (s W) x + t, W (s x + t) = (W s) x + W t",
    Kind.REASSOCIATES,
    declines="An addition in front of a padded convolution stays, for the padding is not shifted; half-precision "
    "weights stay, for they would be rounded twice.",
)
def fold_affine_maps(surgery: Surgery) -> int:
    """Fold maps until none is left that fits; return how many there were.

    An affine map behind a product goes into its weights if nothing else reads the product, and one in front of products
    goes into theirs if all of its readers are such. Weights that others read are copied.
    """
    with np.errstate(all="ignore"):  # What is not finite is not folded.
        return _fold(surgery)


def _fold(surgery: Surgery) -> int:
    """Fold maps until none is left that fits; return how many there were."""
    total, count = 0, 1
    while count:
        count = 0
        for place, node in list(surgery.nodes()):
            while surgery.holds(place, node) and (_behind(surgery, node) or _in_front(surgery, node)):
                count += 1
        total += count
    return total


def _behind(surgery: Surgery, node: onnx.NodeProto) -> bool:
    """Fold the map behind a product into it."""
    place = surgery.only_reader(node.output[0]) if node.output else None
    if place is None or not may_be_affine(surgery.node(place)) or _is_reserved(surgery, surgery.node(place)):
        return False
    product = read_product(node, surgery.constant, surgery.types)
    if product is None:
        return False
    reader = surgery.node(place)
    affine = read_affine(reader, surgery.constant, product.outputs, product.axis, product.rank)
    if affine is None or affine.operand != node.output[0] or not surgery.alike(node.output[0], reader.output[0]):
        return False
    found = product.after(affine)
    if found is None:
        return False
    _rewrite(surgery, product, *found)
    surgery.take_over(node, place)
    return True


def _in_front(surgery: Surgery, node: onnx.NodeProto) -> bool:
    """Fold a map into all products that read it."""
    readers = surgery.readers(node.output[0]) if may_be_affine(node) and not _is_reserved(surgery, node) else []
    products = [read_product(surgery.node(reader), surgery.constant, surgery.types) for reader in readers]
    first = products[0] if products else None
    if first is None:
        return False
    affine = read_affine(node, surgery.constant, first.inputs, first.axis, first.rank)
    if affine is None or not surgery.alike(affine.operand, node.output[0]):
        return False
    changes = [_taken_in(product, affine, node.output[0], first) for product in products]
    if any(change is None for change in changes):
        return False
    for product, change in zip(products, changes, strict=True):
        assert product is not None
        assert change is not None
        _rewrite(surgery, product, *change)
        product.node.input[0] = affine.operand
    surgery.changed()
    surgery.drop_dead(node.output[0])
    return True


def _taken_in(product: Product | None, affine: Affine, name: str, first: Product) -> tuple[Array, Array | None] | None:
    if product is None or (product.inputs, product.axis, product.rank) != (first.inputs, first.axis, first.rank):
        return None
    if product.node.input[0] != name or name in product.node.input[1:]:
        return None
    return product.before(affine)


def _rewrite(surgery: Surgery, product: Product, weights: Array, bias: Array | None) -> None:
    node = product.node
    stem = node.input[1]
    node.input[1] = surgery.replace_constant(stem, weights)
    if bias is None:
        return
    if len(node.input) > 2 and node.input[2]:
        node.input[2] = surgery.replace_constant(node.input[2], bias)
    else:
        del node.input[2:]
        node.input.append(surgery.replace_constant(f"{stem}/bias", bias))


def _is_reserved(surgery: Surgery, node: onnx.NodeProto) -> bool:
    return node.output[0] in surgery.reserved
