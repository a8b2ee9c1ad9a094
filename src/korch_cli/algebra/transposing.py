"""Whole regions computed on transposed matrices, where that leaves fewer transpositions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from korch_cli.algebra.matching import attribute
from korch_cli.algebra.rule import Kind, rule
from korch_cli.algebra.surgery import Place, Surgery
from korch_cli.core.types import TensorType

_MOST_NODES = 64
_FIRST_AXES_INPUT = 13
_SLICES = 10
_PADS = 11
_LAST_PADS = 17
_UNARY = (
    "Abs", "Cast", "Clip", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Neg",
    "Reciprocal", "Relu", "Sigmoid", "Softplus", "Sqrt", "Tanh",
)  # fmt: skip
_BINARY = ("Add", "Div", "Max", "Min", "Mul", "Sub")
_BLOCK = 1 << 14
_COLUMNS = (16, 128)


@dataclass(slots=True)
class _Region:
    """Nodes that can work on transposed operands.

    Attributes:
        nodes: in order.
        made: what they make.
        entries: what transpositions in front of them make.
        spared: those of them that nothing else reads.
        exits: transpositions behind them.
        opened: other operands, which would have to be transposed.
        closed: results that others read, which would have to be transposed back.
    """

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    made: set[str] = field(default_factory=set)
    entries: set[str] = field(default_factory=set)
    spared: set[str] = field(default_factory=set)
    exits: list[onnx.NodeProto] = field(default_factory=list)
    opened: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)


@rule(
    "(A B)ᵀ = Bᵀ Aᵀ, f(A)ᵀ = f(Aᵀ)",
    Kind.REASSOCIATES,
    declines="Softmax and normalizations are not computed along another axis: ONNX Runtime is slow there.",
)
def transpose_regions(surgery: Surgery) -> int:
    """Move transpositions of the last two axes through products and elementwise operators, where some cancel."""
    count = 0
    for place, node in list(surgery.nodes()):
        if surgery.holds(place, node) and _swaps(surgery, node):
            region = _grow(surgery, node)
            if region is not None and _pays(surgery, region):
                _apply(surgery, region)
                count += 1
    return count


def _swaps(surgery: Surgery, node: onnx.NodeProto) -> bool:
    """Whether a node exchanges the last two axes of more than one matrix."""
    shape = surgery.shape(node.output[0]) if node.output else None
    if node.op_type != "Transpose" or node.domain or shape is None or len(shape) < 3 or 1 in shape[-2:]:
        return False
    rank = len(shape)
    return list(attribute(node, "perm", ())) == [*range(rank - 2), rank - 1, rank - 2]


def _grow(surgery: Surgery, start: onnx.NodeProto) -> _Region | None:
    region = _Region()
    members: dict[Place, None] = {}
    waiting = [start.output[0]]
    while waiting:
        for place in surgery.readers(waiting.pop()):
            node = surgery.node(place)
            if place not in members and (_commutes(surgery, node) or _feeds_product(surgery, node)):
                members[place] = None
                waiting.extend(node.output)
        if len(members) > _MOST_NODES:
            return None
    order = {place: i for i, (place, _) in enumerate(surgery.nodes()) if place in members}
    region.nodes = [surgery.node(place) for place in sorted(order, key=lambda p: order[p])]
    region.made = {name for node in region.nodes for name in node.output}
    if not any(node.op_type == "MatMul" for node in region.nodes):
        return None
    _look_in_front(surgery, region, set(members))
    _look_behind(surgery, region, set(members))
    return region


def _look_in_front(surgery: Surgery, region: _Region, members: set[Place]) -> None:
    for name in {name for node in region.nodes for name in _operands(node)} - region.made:
        if surgery.is_constant(name) or _is_single(surgery, name):
            continue
        made = surgery.made_by(name, "Transpose")
        if made is None or not _swaps(surgery, made):
            region.opened.add(name)
            continue
        region.entries.add(name)
        if not surgery.is_seen(name) and members.issuperset(surgery.readers(name)):
            region.spared.add(name)


def _look_behind(surgery: Surgery, region: _Region, members: set[Place]) -> None:
    for name in region.made:
        outside = [surgery.node(place) for place in surgery.readers(name) if place not in members]
        turned = [node for node in outside if _swaps(surgery, node)]
        region.exits += turned
        if surgery.is_seen(name) or len(turned) < len(outside):
            region.closed.add(name)


def _pays(surgery: Surgery, region: _Region) -> bool:
    size = {name: surgery.types[name].elements for name in (*region.entries, *region.opened, *region.made)}
    saved = sum(size[name] for name in region.spared) + sum(size[node.input[0]] for node in region.exits)
    cost = sum(size[name] for name in (*region.opened, *region.closed))
    return saved > cost and bool(region.exits)


def _apply(surgery: Surgery, region: _Region) -> None:
    """Compute the region transposed beside the old one, which goes as soon as nothing reads it."""
    names: dict[str, str] = {}
    for name in region.entries:
        made = surgery.made_by(name, "Transpose")
        assert made is not None
        names[name] = made.input[0]
    for node in region.nodes:
        before = [_opened(surgery, name, names) for name in node.input if name in region.opened and name not in names]
        for name in node.output:
            names[name] = surgery.fresh(f"{name}/turned", _turned(surgery.types[name]))
        if _adds_longer_runs(surgery, node):
            new = _turn_result(surgery, node, names)
        else:
            new = [_FLIPS[_kind(node)](surgery, node, names)]
        place = surgery.maker(node.output[0])
        assert place is not None
        surgery.replace(place, [*before, *new, node])
    for node in region.exits:
        _leave(surgery, node.output[0], names[node.input[0]])
    for name in region.closed:
        place = surgery.maker(name)
        assert place is not None
        _replace_output(surgery, place, name, _transpose(surgery, names[name], name))
    for name in names.values():
        surgery.drop_dead(name)


def _leave(surgery: Surgery, result: str, turned: str) -> None:
    """Let what a transposition made be what it now is without one."""
    place = surgery.maker(result)
    assert place is not None
    if surgery.is_seen(result):
        surgery.replace(place, [onnx.helper.make_node("Identity", [turned], [result])])
    else:
        surgery.read_instead(result, turned)


def _replace_output(surgery: Surgery, place: Place, name: str, back: onnx.NodeProto) -> None:
    """Make a tensor by another node; the first maker keeps its other outputs."""
    node = surgery.node(place)
    kept = onnx.NodeProto()
    kept.CopyFrom(node)
    for i, output in enumerate(kept.output):
        if output == name:
            kept.output[i] = surgery.fresh(f"{name}/unread", surgery.types[name])
    surgery.replace(place, [kept, back])
    for output in kept.output:
        surgery.drop_dead(output)


def _opened(surgery: Surgery, name: str, names: dict[str, str]) -> onnx.NodeProto:
    typed = surgery.types[name]
    names[name] = surgery.fresh(f"{name}/turned", _turned(typed))
    return _transpose(surgery, name, names[name])


def _transpose(surgery: Surgery, name: str, result: str) -> onnx.NodeProto:
    rank = surgery.types[name].rank
    return onnx.helper.make_node("Transpose", [name], [result], perm=[*range(rank - 2), rank - 1, rank - 2])


def _turned(typed: TensorType) -> TensorType:
    return TensorType(typed.dtype, (*typed.shape[:-2], typed.shape[-1], typed.shape[-2]))


def _is_single(surgery: Surgery, name: str) -> bool:
    typed = surgery.types.get(name)
    return typed is not None and typed.elements == 1 and typed.rank < 2


def _kind(node: onnx.NodeProto) -> str:
    return "elementwise" if node.op_type in (*_UNARY, *_BINARY) else node.op_type


def _operands(node: onnx.NodeProto) -> Sequence[str]:
    """The operands that are transposed: constants that say axes or bounds are not."""
    return list(node.input) if node.op_type in (*_BINARY, "Concat", "MatMul") else list(node.input[:1])


def _commutes(surgery: Surgery, node: onnx.NodeProto) -> bool:
    """Whether a node can work on transposed operands."""
    shapes = [surgery.shape(name) for name in (*_operands(node), *node.output)]
    if node.domain or node.op_type == "Transpose" or _kind(node) not in _FLIPS:
        return False
    if any(shape is None for shape in shapes):
        return False
    rank = len(shapes[-1] or ())
    if rank < 3:
        return False
    for name, shape in zip(_operands(node), shapes, strict=False):
        if len(shape or ()) != rank and not (_is_single(surgery, name) and node.op_type != "MatMul"):
            return False
    if node.op_type == "Slice":
        return surgery.opset >= _SLICES and len(node.input) > 3 and all(map(surgery.is_constant, node.input[1:]))
    if node.op_type == "Pad":
        fits = _PADS <= surgery.opset <= _LAST_PADS or len(node.input) < 4
        return surgery.opset >= _PADS and fits and surgery.is_constant(node.input[1])
    return True


def _feeds_product(surgery: Surgery, node: onnx.NodeProto) -> bool:
    """Whether a node only exchanges axes for products; ONNX Runtime does both at once, so that it may stay."""
    if not _swaps(surgery, node) or surgery.is_seen(node.output[0]):
        return False
    return all(_commutes(surgery, surgery.node(p)) for p in surgery.readers(node.output[0])) and all(
        surgery.node(p).op_type == "MatMul" for p in surgery.readers(node.output[0])
    )


def _flip_elementwise(surgery: Surgery, node: onnx.NodeProto, names: dict[str, str]) -> onnx.NodeProto:
    new = _copy(node, names)
    for i, name in enumerate(_operands(node)):
        new.input[i] = _turned_operand(surgery, name, names)
    return new


def _turned_operand(surgery: Surgery, name: str, names: dict[str, str]) -> str:
    if name in names:
        return names[name]
    array = surgery.constant(name) if surgery.types[name].rank >= 2 else None
    return name if array is None else surgery.add_constant(name, np.swapaxes(array, -1, -2))


def _flip_matmul(surgery: Surgery, node: onnx.NodeProto, names: dict[str, str]) -> onnx.NodeProto:
    left, right = (_turned_operand(surgery, name, names) for name in node.input)
    new = _copy(node, names)
    new.input[0], new.input[1] = right, left
    return new


def _adds_longer_runs(surgery: Surgery, node: onnx.NodeProto) -> bool:
    """Whether a product has larger rounding errors when it is computed transposed.

    ONNX Runtime multiplies blocks of 16,384 numbers of the second operand, so that the sums over a block are the longer
    the fewer columns there are. Errors grow with the length of sums.
    """
    shapes = [surgery.shape(name) for name in node.input]
    if node.op_type != "MatMul" or any(shape is None or len(shape) < 2 for shape in shapes):
        return False
    (*_, rows, terms), (*_, columns) = shapes[0] or (), shapes[1] or ()
    return min(terms, _run(rows)) > min(terms, _run(columns))


def _run(columns: int) -> int:
    """How many products are added up one after the other."""
    least, most = _COLUMNS
    return int(_BLOCK // 2 ** math.ceil(math.log2(min(max(columns, least), most))))


def _turn_result(surgery: Surgery, node: onnx.NodeProto, names: dict[str, str]) -> list[onnx.NodeProto]:
    """Compute a product as it is, from what is there transposed, and transpose what comes out."""
    nodes = []
    operands = []
    for name in node.input:
        turned = _turned_operand(surgery, name, names)
        made = surgery.made_by(turned, "Transpose")
        if surgery.is_constant(name):
            operands.append(name)
        elif made is not None and _swaps(surgery, made):
            operands.append(made.input[0])
        else:
            operands.append(surgery.fresh(f"{turned}/back", surgery.types[name]))
            nodes.append(_transpose(surgery, turned, operands[-1]))
    (result,) = node.output
    product = surgery.fresh(f"{result}/product", surgery.types[result])
    nodes.append(onnx.helper.make_node("MatMul", operands, [product]))
    return [*nodes, _transpose(surgery, product, names[result])]


def _flip_axis(surgery: Surgery, node: onnx.NodeProto, names: dict[str, str]) -> onnx.NodeProto:
    """Split and Concat."""
    new = _flip_elementwise(surgery, node, names)
    rank = surgery.types[node.output[0]].rank
    axis = _other(attribute(node, "axis", 0), rank)
    for i in reversed(range(len(new.attribute))):
        if new.attribute[i].name == "axis":
            del new.attribute[i]
    new.attribute.append(onnx.helper.make_attribute("axis", axis))
    return new


def _flip_slice(surgery: Surgery, node: onnx.NodeProto, names: dict[str, str]) -> onnx.NodeProto:
    new = _flip_elementwise(surgery, node, names)
    axes = surgery.constant(node.input[3])
    assert axes is not None
    rank = surgery.types[node.output[0]].rank
    turned = np.array([_other(int(axis), rank) for axis in axes], axes.dtype)
    new.input[3] = surgery.add_constant(node.input[3], turned)
    return new


def _flip_pad(surgery: Surgery, node: onnx.NodeProto, names: dict[str, str]) -> onnx.NodeProto:
    new = _flip_elementwise(surgery, node, names)
    pads = surgery.constant(node.input[1])
    assert pads is not None
    both = pads.reshape(2, -1).copy()
    both[:, [-1, -2]] = both[:, [-2, -1]]
    new.input[1] = surgery.add_constant(node.input[1], both.reshape(-1))
    return new


def _other(axis: int, rank: int) -> int:
    axis %= rank
    return {rank - 1: rank - 2, rank - 2: rank - 1}.get(axis, axis)


def _copy(node: onnx.NodeProto, names: dict[str, str]) -> onnx.NodeProto:
    new = onnx.NodeProto()
    new.CopyFrom(node)
    new.name = ""
    for i, name in enumerate(node.output):
        new.output[i] = names[name] if name else ""
    return new


_FLIPS: dict[str, Callable[[Surgery, onnx.NodeProto, dict[str, str]], onnx.NodeProto]] = {
    "Concat": _flip_axis,
    "MatMul": _flip_matmul,
    "Pad": _flip_pad,
    "Slice": _flip_slice,
    "Split": _flip_axis,
    "Transpose": _flip_elementwise,
    "elementwise": _flip_elementwise,
}
