"""Images that are cut into phases become convolutions with larger steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from korch_cli.algebra.matching import attribute, is_along_channels
from korch_cli.algebra.product import Product, read_product
from korch_cli.algebra.rule import Kind, rule
from korch_cli.algebra.surgery import Surgery
from korch_cli.core.types import Array

_FIRST_SLICE_WITH_INPUTS = 10
_MOST_SLICES = 4


@dataclass(frozen=True, slots=True)
class _Phases:
    """An image of which every `step`-th row and column, from each first one on, are the channels of another.

    Attributes:
        source: the image, [N, C, H, W].
        step: in both directions.
        firsts: row and column of the first element of each group of C channels, each pair once.
    """

    source: str
    step: int
    firsts: tuple[tuple[int, int], ...]


@rule(
    "W * (x[0::2, 0::2], x[1::2, 0::2], ...) = V * x with step 2",
    Kind.REASSOCIATES,
    declines="Images of which not every phase is taken once, and ones that something else reads too, stay cut up.",
)
def convolve_with_steps(surgery: Surgery) -> int:
    """Spread the weights of a convolution over the image instead of moving the image into channels.

    The first layer of YOLO networks (Focus) is written so; what is moved is as much as the convolution reads.
    """
    count = 0
    for place, node in list(surgery.nodes()):
        if node.op_type != "Conv" or node.domain or not surgery.holds(place, node):
            continue
        phases = _phases(surgery, node.input[0])
        product = None if phases is None else read_product(node, surgery.constant, surgery.types)
        if phases is None or product is None or not _is_plain(product):
            continue
        pads = _padding(surgery, product, phases)
        if pads is not None:
            surgery.replace(place, [_spread(surgery, product, phases, pads)])
            count += 1
    return count


def _is_plain(product: Product) -> bool:
    node = product.node
    if attribute(node, "group", 1) != 1 or any(d != 1 for d in attribute(node, "dilations", ())):
        return False
    return product.weights.ndim == 4 and attribute(node, "auto_pad", b"NOTSET") == b"NOTSET"


def _phases(surgery: Surgery, name: str) -> _Phases | None:
    """Return how a tensor that has one reader was cut out of an image."""
    node = surgery.made_by(name, "Concat", "SpaceToDepth")
    if node is None or surgery.only_reader(name) is None or len(surgery.shape(node.input[0]) or ()) != 4:
        return None
    if node.op_type == "SpaceToDepth":
        step = attribute(node, "blocksize", 1)
        if step < 2:
            return None
        return _Phases(node.input[0], step, tuple((row, column) for row in range(step) for column in range(step)))
    if not is_along_channels(node):
        return None
    parts = [_part(surgery, part) for part in node.input]
    found = {(part[0], part[2]) for part in parts if part is not None}
    if None in parts or len(found) != 1:
        return None
    source, step = found.pop()
    firsts = tuple(part[1] for part in parts if part is not None)
    everything = [(row, column) for row in range(step) for column in range(step)]
    return _Phases(source, step, firsts) if sorted(firsts) == everything and step > 1 else None


def _part(surgery: Surgery, name: str) -> tuple[str, tuple[int, int], int] | None:
    """Return image, first row and column, and step of a tensor that slices alone cut out of an image."""
    slices: list[onnx.NodeProto] = []
    while (node := surgery.made_by(name, "Slice")) is not None and len(slices) < _MOST_SLICES:
        slices.append(node)
        name = node.input[0]
    shape = surgery.shape(name)
    if not slices or shape is None or len(shape) != 4 or surgery.opset < _FIRST_SLICE_WITH_INPUTS:
        return None
    taken = [range(extent) for extent in shape]
    for node in reversed(slices):
        if not _cut(surgery, node, taken):
            return None
    batch, channels, rows, columns = taken
    if (batch, channels) != (range(shape[0]), range(shape[1])) or rows.step != columns.step:
        return None
    if any(axis.step < 1 or axis.start >= axis.step for axis in (rows, columns)):
        return None
    # Behind the last row that is taken, the image must end: a convolution sees what follows, and there nothing did.
    if any(axis.start + axis.step * len(axis) < extent for axis, extent in ((rows, shape[2]), (columns, shape[3]))):
        return None
    return name, (rows.start, columns.start), rows.step


def _cut(surgery: Surgery, node: onnx.NodeProto, taken: list[range]) -> bool:
    """Take what a Slice leaves along each axis; return whether its bounds are constant."""
    bounds = [surgery.constant(name) for name in node.input[1:] if name]
    if len(bounds) < 2 or "" in node.input or any(array is None for array in bounds):
        return False
    starts, ends, axes, steps = ([*map(int, a)] for a in (*(b for b in bounds if b is not None), *_defaults(bounds)))
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 1:
            return False
        taken[axis] = taken[axis][start:end:step]
    return True


def _defaults(bounds: Sequence[Array | None]) -> tuple[Sequence[int], ...]:
    """Return axes and steps as far as a Slice does not give them."""
    count = 0 if bounds[0] is None else len(bounds[0])
    return (range(count), [1] * count)[len(bounds) - 2 :]


def _padding(surgery: Surgery, product: Product, phases: _Phases) -> list[int] | None:
    """Return the padding with which the larger convolution has as many results, None where shapes are not known."""
    image, result = surgery.shape(phases.source), surgery.shape(product.node.output[0])
    if image is None or result is None:
        return None
    pads = attribute(product.node, "pads", [0, 0, 0, 0])
    strides = attribute(product.node, "strides", [1, 1])
    before, after = [phases.step * pad for pad in pads[:2]], []
    for axis in (0, 1):
        reach = phases.step * (strides[axis] * (result[2 + axis] - 1) + product.weights.shape[2 + axis])
        # Where the image ends behind the last window, that is by less than a step, for else there would be another one.
        after.append(max(0, reach - image[2 + axis] - before[axis]))
    return [*before, *after]


def _spread(surgery: Surgery, product: Product, phases: _Phases, pads: Sequence[int]) -> onnx.NodeProto:
    node = product.node
    weights = _spread_weights(product.weights, phases)
    strides = [phases.step * stride for stride in attribute(node, "strides", [1, 1])]
    inputs = [phases.source, surgery.add_constant(node.input[1], weights), *node.input[2:]]
    extents = list(weights.shape[2:])
    return onnx.helper.make_node("Conv", inputs, list(node.output), kernel_shape=extents, pads=pads, strides=strides)


def _spread_weights(weights: Array, phases: _Phases) -> Array:
    outputs, inputs, height, width = weights.shape
    channels = inputs // len(phases.firsts)
    step = phases.step
    spread = np.zeros((outputs, channels, step * height, step * width), weights.dtype)
    for i, (row, column) in enumerate(phases.firsts):
        spread[:, :, row::step, column::step] = weights[:, i * channels : (i + 1) * channels]
    return spread
