"""Forms that ONNX Runtime keeps in its blocked layout between convolutions."""

from __future__ import annotations

import numpy as np
import onnx

from korch_cli.algebra.affine import Affine, may_be_affine, read_affine
from korch_cli.algebra.matching import attribute
from korch_cli.algebra.rule import Kind, rule
from korch_cli.algebra.surgery import Place, Surgery
from korch_cli.core.types import DType, TensorType

_FIRST_NORMALIZATION = 9
_NEIGHBOURS = ("AveragePool", "Conv", "GlobalAveragePool", "MaxPool")
_ACTIVATIONS = ("Div", "HardSigmoid", "HardSwish", "LeakyRelu", "Mul", "Relu", "Sigmoid", "Tanh")
_STEPS = 4


@rule(
    "s x + t = normalized x with mean 0 and variance 1",
    Kind.REASSOCIATES,
    declines="An addition that is not between convolutions stays one.",
)
def normalize_affine_maps(surgery: Surgery) -> int:
    """Write what is left of affine maps between convolutions as BatchNormalization.

    ONNX Runtime has a blocked form of that, but none of adding a number, for which it would leave the layout.
    """
    count = 0
    for place, node in list(surgery.nodes()):
        if surgery.holds(place, node) and _is_between(surgery, node) and _normalize(surgery, place, node):
            count += 1
    return count


def _normalize(surgery: Surgery, place: Place, node: onnx.NodeProto) -> bool:
    typed = surgery.types[node.output[0]]
    channels = typed.shape[1]
    affine = _whole_map(surgery, node, channels, typed.rank)
    if affine is None:
        return False
    scale, shift = (np.broadcast_to(a, channels).astype(np.float32) for a in (affine.scale, affine.shift))
    if not (np.isfinite(scale).all() and np.isfinite(shift).all()):
        return False
    stem = node.output[0]
    values = {"scale": scale, "shift": shift, "mean": np.zeros_like(scale), "variance": np.ones_like(scale)}
    names = [surgery.add_constant(f"{stem}/{name}", array) for name, array in values.items()]
    new = onnx.helper.make_node("BatchNormalization", [affine.operand, *names], [stem], epsilon=0.0)
    surgery.replace(place, [new])
    return True


def _whole_map(surgery: Surgery, node: onnx.NodeProto, channels: int, rank: int) -> Affine | None:
    """Return a node as an affine map, together with those in front of it that nothing else reads.

    A multiplication left in front of a normalization would end the blocked layout all the same.
    """
    affine = read_affine(node, surgery.constant, channels, 1, rank)
    if affine is None or not surgery.alike(affine.operand, node.output[0]):
        return None
    while (place := surgery.maker(affine.operand)) is not None:
        before, name = surgery.node(place), affine.operand
        if not may_be_affine(before) or surgery.only_reader(name) is None or name in surgery.reserved:
            break
        first = read_affine(before, surgery.constant, channels, 1, rank)
        if first is None or not surgery.alike(first.operand, name):
            break
        affine = Affine(first.operand, affine.scale * first.scale, affine.scale * first.shift + affine.shift)
    return affine


def _is_between(surgery: Surgery, node: onnx.NodeProto) -> bool:
    """Whether a node adds something to what convolutions made and convolutions read."""
    if node.op_type not in ("Add", "Sub") or node.domain or surgery.opset < _FIRST_NORMALIZATION:
        return False
    typed = surgery.types.get(node.output[0])
    if typed is None or typed.rank != 4 or typed.dtype is not DType.F32 or not typed.elements:
        return False
    if sum(surgery.is_constant(name) for name in node.input) != 1:
        return False
    readers = [surgery.node(place) for place in surgery.readers(node.output[0])]
    operand = next(name for name in node.input if not surgery.is_constant(name))
    return any(reader.op_type in _NEIGHBOURS for reader in readers) and _comes_from_convolution(surgery, operand)


def _comes_from_convolution(surgery: Surgery, name: str) -> bool:
    for _ in range(_STEPS):
        node = surgery.made_by(name, *_NEIGHBOURS, *_ACTIVATIONS)
        if node is None:
            return False
        if node.op_type in _NEIGHBOURS:
            return True
        name = next((i for i in node.input if not surgery.is_constant(i)), "")
    return False


@rule("flatten(H, W) then C last = C last then flatten(H, W)", Kind.EXACT)
def transpose_images(surgery: Surgery) -> int:
    """Move channels behind the last convolution, or in front of the next one, while there are two spatial axes.

    ONNX Runtime joins such a transposition with the conversion from or to its blocked layout.
    """
    count = 0
    for place, node in list(surgery.nodes()):
        if not surgery.holds(place, node) or node.domain:
            continue
        if node.op_type == "Transpose" and _is_swap(surgery, node):
            count += _from_image(surgery, place, node)
        elif node.op_type == "Reshape":
            count += _to_image(surgery, place, node)
    return count


def _is_swap(surgery: Surgery, node: onnx.NodeProto) -> bool:
    shape = surgery.shape(node.output[0])
    return shape is not None and len(shape) == 3 and list(attribute(node, "perm", ())) == [0, 2, 1]


def _from_image(surgery: Surgery, place: Place, node: onnx.NodeProto) -> bool:
    """[N, C, H, W] → [N, C, HW] → [N, HW, C]."""
    flat = surgery.made_by(node.input[0], "Reshape", "Flatten")
    image = None if flat is None else surgery.types.get(flat.input[0])
    if flat is None or image is None or image.rank != 4 or surgery.made_by(flat.input[0], "Conv") is None:
        return False
    n, c, h, w = image.shape
    if surgery.shape(node.input[0]) != (n, c, h * w) or surgery.only_reader(node.input[0]) is None:
        return False
    last = surgery.fresh(f"{node.output[0]}/last", TensorType(image.dtype, (n, h, w, c)))
    shape = surgery.add_constant(f"{node.output[0]}/shape", np.array((n, h * w, c), np.int64))
    moved = onnx.helper.make_node("Transpose", [flat.input[0]], [last], perm=[0, 2, 3, 1])
    surgery.replace(place, [moved, onnx.helper.make_node("Reshape", [last, shape], [node.output[0]])])
    return True


def _to_image(surgery: Surgery, place: Place, node: onnx.NodeProto) -> bool:
    """[N, HW, C] → [N, C, HW] → [N, C, H, W]."""
    swap = surgery.made_by(node.input[0], "Transpose")
    image = surgery.types.get(node.output[0])
    if swap is None or image is None or image.rank != 4 or not _is_swap(surgery, swap):
        return False
    readers = [surgery.node(reader) for reader in surgery.readers(node.output[0])]
    n, c, h, w = image.shape
    if surgery.shape(swap.output[0]) != (n, c, h * w) or not any(reader.op_type == "Conv" for reader in readers):
        return False
    last = surgery.fresh(f"{node.output[0]}/last", TensorType(image.dtype, (n, h, w, c)))
    shape = surgery.add_constant(f"{node.output[0]}/shape", np.array((n, h, w, c), np.int64))
    apart = onnx.helper.make_node("Reshape", [swap.input[0], shape], [last])
    moved = onnx.helper.make_node("Transpose", [last], [node.output[0]], perm=[0, 3, 1, 2])
    surgery.replace(place, [apart, moved])
    return True
