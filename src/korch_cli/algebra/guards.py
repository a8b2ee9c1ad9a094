"""Guards against values that cannot occur."""

from __future__ import annotations

import numpy as np
import onnx

from korch_cli.algebra.matching import mask, normalizes_rows, scaled
from korch_cli.algebra.rule import Kind, rule
from korch_cli.algebra.surgery import Surgery

_MOST_FACTORS = 4
_DTYPES = (np.float16, np.float32, np.float64)


@rule(
    "where(isnan(softmax x), 0, softmax x) = softmax x, x finite in every row",
    Kind.REASSOCIATES,
    declines="The guard stays where an added mask is no constant, or has a row of -inf and numbers near it alone. "
    "Without the guard, scores that overflow give NaN instead of 0.",
)
def drop_softmax_guards(surgery: Surgery) -> int:
    """Leave out the guard that PyTorch's exporter writes behind the softmax of attention.

    Over the reals softmax has a value wherever one element of its row is finite. Products are, and so are their sums
    with a constant mask if that is finite somewhere in each row.
    """
    count = 0
    for place, node in list(surgery.nodes()):
        if node.op_type != "Where" or node.domain or not surgery.holds(place, node):
            continue
        softmax = _guarded(surgery, node)
        if softmax is not None and _has_values(surgery, softmax):
            copy = onnx.NodeProto()
            copy.CopyFrom(softmax)
            copy.output[0] = node.output[0]
            surgery.replace(place, [copy])
            count += 1
    return count


def _guarded(surgery: Surgery, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """Return the softmax that a node replaces by something else where it is not a number."""
    condition, _, name = node.input
    test = surgery.made_by(condition, "IsNaN")
    softmax = surgery.made_by(name, "Softmax")
    if test is None or softmax is None or test.input[0] != name or surgery.only_reader(condition) is None:
        return None
    readers = [surgery.node(place) for place in surgery.readers(name)]
    if len(readers) != 2 or not surgery.alike(name, node.output[0]):
        return None
    return softmax


def _has_values(surgery: Surgery, softmax: onnx.NodeProto) -> bool:
    """Whether each row of the last axis that a softmax goes over has a finite element."""
    if not normalizes_rows(surgery, softmax):
        return False
    name = softmax.input[0]
    node = surgery.made_by(name, "Add")
    if node is None:
        return _is_product(surgery, name)
    pairs = (tuple(node.input), tuple(node.input)[::-1])
    return any(_is_product(surgery, scores) and _is_finite_somewhere(surgery, added) for scores, added in pairs)


def _is_product(surgery: Surgery, name: str) -> bool:
    """Whether a tensor is a product of matrices, or that times numbers."""
    for _ in range(_MOST_FACTORS):
        node = surgery.made_by(name, "MatMul", "Mul", "Div")
        if node is None or node.op_type == "MatMul":
            return node is not None
        step = scaled(surgery, node)
        if step is None:
            return False
        name = step[0]
    return False


def _is_finite_somewhere(surgery: Surgery, name: str) -> bool:
    """Whether a mask is constant, has an element in each row that sums stay finite with, and no NaN and no inf."""
    array = mask(surgery, name)
    if array is None or not array.ndim or not array.size or array.dtype not in _DTYPES:
        return False
    worthless = np.isnan(array).any() or np.isposinf(array).any()
    # PyTorch masks with the smallest number too: what is added to it may well be below the smallest of float16.
    moderate = np.abs(array) <= np.finfo(array.dtype).max / 2
    return not worthless and bool(moderate.any(axis=-1).all())
