"""Maxima over large windows from maxima over smaller ones."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from korch_cli.algebra.matching import attribute
from korch_cli.algebra.rule import Kind, rule
from korch_cli.algebra.surgery import Surgery


@dataclass(frozen=True, slots=True)
class _Window:
    """How far the window of a maximum reaches to both sides of a position, along each axis."""

    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def size(self) -> int:
        """Along all axes together."""
        return sum(self.before) + sum(self.after)

    def without(self, other: _Window) -> _Window | None:
        """Return the window that reaches as far as this one from wherever the other one reaches, None without one."""
        before = tuple(a - b for a, b in zip(self.before, other.before, strict=True))
        after = tuple(a - b for a, b in zip(self.after, other.after, strict=True))
        return _Window(before, after) if min(*before, *after) >= 0 else None


@rule(
    "max over 9 × 9 = max over 5 × 5 of max over 5 × 5",
    Kind.EXACT,
    declines="Pooling that moves by more than one position, leaves positions out, or changes the size stays as it is.",
)
def pool_in_steps(surgery: Surgery) -> int:
    """Take the maximum over a window from the one over a smaller window of the same tensor, where that is there.

    Pyramids of pooling have windows of 5, 9 and 13; the kernels of ONNX Runtime visit every element of a window.
    """
    count = 0
    found: dict[str, list[tuple[_Window, str]]] = {}
    for place, node in list(surgery.nodes()):
        window = _window(surgery, node)
        if window is None:
            continue
        earlier = found.setdefault(node.input[0], [])
        steps = [(window.without(other), name) for other, name in earlier if 0 < other.size < window.size]
        rest, name = min(
            ((step, name) for step, name in steps if step is not None),
            key=lambda pair: pair[0].size,
            default=(None, ""),
        )
        if rest is not None:
            surgery.replace(place, [_pool(node, name, rest)])
            count += 1
        earlier.append((window, node.output[0]))
    return count


def _window(surgery: Surgery, node: onnx.NodeProto) -> _Window | None:
    """Return the window of a node that takes a maximum around each position."""
    if node.op_type != "MaxPool" or node.domain or len(node.output) != 1:
        return None
    if not surgery.alike(node.input[0], node.output[0]):
        return None
    extents = attribute(node, "kernel_shape", [])
    moves = [*attribute(node, "strides", ()), *attribute(node, "dilations", ())]
    pads = attribute(node, "pads", [0] * 2 * len(extents))
    if any(step != 1 for step in moves) or attribute(node, "auto_pad", b"NOTSET") != b"NOTSET":
        return None
    before, after = tuple(pads[: len(extents)]), tuple(pads[len(extents) :])
    if any(a + b + 1 != extent for a, b, extent in zip(before, after, extents, strict=True)):
        return None
    return _Window(before, after)


def _pool(node: onnx.NodeProto, operand: str, window: _Window) -> onnx.NodeProto:
    extents = [a + b + 1 for a, b in zip(window.before, window.after, strict=True)]
    pads = [*window.before, *window.after]
    return onnx.helper.make_node("MaxPool", [operand], list(node.output), kernel_shape=extents, pads=pads)
