"""Operators that pick, join or repeat elements by constant indices."""

from __future__ import annotations

import math

import numpy as np

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.fission.build import FOLD_LIMIT_BYTES, Builder
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView, distinct_axes

_EXACT = 1 << 53
_INT_MAX = (1 << 31) - 1


@fission("Slice", since=1, until=9)
def slice_attributes(op: OperatorView, build: Builder) -> Value:
    """Cut out a box that attributes describe."""
    starts, ends = op.integers("starts"), op.integers("ends")
    return _sliced(build, op.input(0), starts, ends, op.integers("axes"), None)


@fission("Slice", since=10, also=(11, 13))
def slice_inputs(op: OperatorView, build: Builder) -> Value:
    """Cut out a box that constant inputs describe; steps may be negative."""
    starts, ends = op.constant_integers(1), op.constant_integers(2)
    return _sliced(build, op.input(0), starts, ends, op.constant_integers(3), op.constant_integers(4))


def _sliced(
    build: Builder,
    x: Value,
    starts: tuple[int, ...] | None,
    ends: tuple[int, ...] | None,
    axes: tuple[int, ...] | None,
    steps: tuple[int, ...] | None,
) -> Value:
    if starts is None or ends is None:
        raise Refusal("it has no starts or no ends")
    over = distinct_axes(tuple(range(len(starts))) if axes is None else axes, x.type.rank)
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(over) == len(steps) or 0 in steps:
        raise Refusal("its starts, ends, axes and steps do not fit together")
    ranges = [range(extent) for extent in x.type.shape]
    for axis, start, end, step in zip(over, starts, ends, steps, strict=True):
        ranges[axis] = _taken(x.type.shape[axis], start, end, step)
    shape = tuple(len(r) for r in ranges)
    first = tuple(r.start if r else 0 for r in ranges)
    return build.slice(x, first, tuple(r.step for r in ranges), shape)


def _taken(extent: int, start: int, end: int, step: int) -> range:
    """Return which elements of an axis a slice takes.

    Python's own slices differ in one point: stepping backwards from before the first element, they take nothing, while
    ONNX moves the start to the first element.
    """
    if step < 0 and end >= _INT_MAX:
        raise Refusal("its end is one that the definition and the runtime read differently")
    start, end = (bound + extent if bound < 0 else bound for bound in (start, end))
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    return range(min(max(start, 0), high), min(max(end, low), high), step) if extent else range(0)


@fission("Split", since=2, until=12, also=(11,))
def split_attribute(op: OperatorView, build: Builder) -> tuple[Value, ...]:
    """Cut into parts whose sizes an attribute gives, or into equal ones."""
    return _split(op, build, op.integers("split"), even=True)


@fission("Split", since=13, until=17)
def split_input(op: OperatorView, build: Builder) -> tuple[Value, ...]:
    """Cut into parts whose sizes a constant input gives, or into equal ones."""
    return _split(op, build, op.constant_integers(1), even=True)


@fission("Split", since=18)
def split(op: OperatorView, build: Builder) -> tuple[Value, ...]:
    """Cut into parts of given sizes, or into a given number of which the last may be smaller."""
    sizes, count = op.constant_integers(1), op.integer("num_outputs", 0)
    if sizes is None and count != len(op.operator.outputs):
        raise Refusal("it says neither the sizes nor the number of its parts")
    return _split(op, build, sizes, even=False)


def _split(op: OperatorView, build: Builder, sizes: tuple[int, ...] | None, *, even: bool) -> tuple[Value, ...]:
    x, count = op.input(0), len(op.operator.outputs)
    axis = op.axis("axis", 0, x.type.rank)
    extent = x.type.shape[axis]
    if sizes is None:
        size = -(-extent // count)
        sizes = (*([size] * (count - 1)), extent - size * (count - 1))
        if even and extent % count:
            raise Refusal(f"{extent} elements do not divide into {count} equal parts")
    if len(sizes) != count or sum(sizes) != extent or min(sizes) < 0:
        raise Refusal(f"{extent} elements do not divide into parts of {list(sizes)}")
    parts, start = [], 0
    for size in sizes:
        shape = (*x.type.shape[:axis], size, *x.type.shape[axis + 1 :])
        starts = tuple(start if i == axis and size else 0 for i in range(x.type.rank))
        parts.append(build.slice(x, starts, (1,) * x.type.rank, shape))
        start += size
    return tuple(parts)


@fission("Concat", since=4, also=(11, 13))
def concat(op: OperatorView, build: Builder) -> Value:
    """Put the operands one after the other."""
    parts = op.inputs()
    if not op.has_attribute("axis"):
        raise Refusal("it has no axis")
    return build.concat(op.axis("axis", 0, parts[0].type.rank, negative=op.version >= 11), parts)


@fission("Gather", since=1, also=(11, 13))
def gather(op: OperatorView, build: Builder) -> Value:
    """Pick along one axis by constant indices, whose own axes take that axis's place."""
    x, indices = op.input(0), op.constant(1)
    if indices is None:
        raise Refusal("it has no indices")
    axis = op.axis("axis", 0, x.type.rank)
    extent = x.type.shape[axis]
    flat = tuple(int(i) for i in indices.reshape(-1))
    if any(not -extent <= i < extent for i in flat):
        raise Refusal(f"an index leaves axis {axis} of {x.type}")
    picked = build.gather(x, axis, tuple(i % extent for i in flat))
    return build.reshape(picked, (*x.type.shape[:axis], *indices.shape, *x.type.shape[axis + 1 :]))


@fission("Tile", since=6, also=(13,))
def tile(op: OperatorView, build: Builder) -> Value:
    """Repeat each axis; where it has the extent 1 that is a broadcast."""
    x, repeats = op.input(0), op.constant_integers(1)
    if repeats is None or len(repeats) != x.type.rank or min(repeats, default=0) < 0:
        raise Refusal("its repeats do not fit the operand")
    for axis, count in enumerate(repeats):
        if x.type.shape[axis] != 1:
            x = build.gather(x, axis, tuple(range(x.type.shape[axis])) * count)
    shape = (count if extent == 1 else extent for extent, count in zip(x.type.shape, repeats, strict=True))
    return build.broadcast(x, tuple(shape))


@fission("Pad", since=2, until=10)
def pad_attributes(op: OperatorView, build: Builder) -> Value:
    """Pad by the amounts of an attribute."""
    return _padded(op, build, op.integers("pads"), op.number("value", 0.0), None)


@fission("Pad", since=11, until=17, also=(13,))
def pad_inputs(op: OperatorView, build: Builder) -> Value:
    """Pad by the amounts of a constant input."""
    return _padded(op, build, op.constant_integers(1), _padding_value(op), None)


@fission("Pad", since=18, also=(19, 21, 23, 24, 25))
def pad(op: OperatorView, build: Builder) -> Value:
    """Pad chosen axes; version 19 added the mode "wrap"."""
    return _padded(op, build, op.constant_integers(1), _padding_value(op), op.constant_integers(3))


def _padding_value(op: OperatorView) -> float:
    data = op.constant(2)
    if data is None or data.size == 0:
        return 0.0
    value = data.reshape(-1)[0].item()
    if abs(value) > _EXACT and isinstance(value, int):
        raise Refusal("it pads with an integer that no float holds exactly")
    return float(value)


def _padded(
    op: OperatorView, build: Builder, pads: tuple[int, ...] | None, value: float, axes: tuple[int, ...] | None
) -> Value:
    x, mode = op.input(0), op.text("mode", "constant")
    over = distinct_axes(tuple(range(x.type.rank)) if axes is None else axes, x.type.rank)
    if pads is None or len(pads) != 2 * len(over):
        raise Refusal("its pads do not fit the operand")
    before, after = [0] * x.type.rank, [0] * x.type.rank
    for axis, first, last in zip(over, pads[: len(over)], pads[len(over) :], strict=True):
        before[axis], after[axis] = first, last
    if mode == "constant":
        return _padded_with(build, x, before, after, value)
    for axis, (first, last) in enumerate(zip(before, after, strict=True)):
        if first or last:
            x = build.gather(x, axis, _mirrored(mode, x.type.shape[axis], first, last))
    return x


def _padded_with(build: Builder, x: Value, before: list[int], after: list[int], value: float) -> Value:
    """Cut where amounts are negative, then pad."""
    starts = tuple(max(0, -b) for b in before)
    shape = tuple(e + min(0, b) + min(0, a) for e, b, a in zip(x.type.shape, before, after, strict=True))
    if min(shape, default=0) < 0:
        raise Refusal("it cuts off more than there is")
    kept = build.slice(x, starts, (1,) * x.type.rank, shape)
    return build.pad(kept, tuple(max(0, b) for b in before), tuple(max(0, a) for a in after), value)


def _mirrored(mode: str, extent: int, before: int, after: int) -> tuple[int, ...]:
    """Return where each element of a padded axis comes from."""
    if min(before, after) < 0 or extent == 0:
        raise Refusal(f"the mode {mode!r} is understood for padding alone, of what is not empty")
    places = np.arange(-before, extent + after)
    if mode == "edge":
        places = places.clip(0, extent - 1)
    elif mode == "wrap":
        places %= extent
    elif mode == "reflect" and max(before, after) < extent:
        places = np.abs(places)
        places = np.where(places < extent, places, 2 * (extent - 1) - places)
    else:
        raise Refusal(f"the mode {mode!r} is not understood for {before} and {after} elements beside {extent}")
    return tuple(int(i) for i in places)


@fission("Trilu", since=14)
def trilu(op: OperatorView, build: Builder) -> Value:
    """Keep a triangle of each matrix, by a mask that is known beforehand where the diagonal is."""
    x, upper = op.input(0), op.integer("upper", 1)
    if x.type.rank < 2:
        raise Refusal(f"{x.type} is no stack of matrices")
    rows, columns = (np.arange(extent, dtype=np.int64) for extent in x.type.shape[-2:])
    if not op.has_input(1) or op.is_constant(1):
        k = op.constant_integers(1)
        if math.prod(x.type.shape[-2:]) > FOLD_LIMIT_BYTES:
            raise Refusal("its mask would be too large")
        # Beyond the matrix every diagonal is alike, and nothing overflows.
        offset = min(max(k[0] if k else 0, -rows.size - 1), columns.size + 1)
        distance = columns - rows[:, None]
        mask = build.constant(distance >= offset if upper else distance <= offset, "mask")
    else:
        diagonal = build.reshape(op.input(1), ())
        right, down = build.constant(columns, "columns"), build.constant(rows[:, None], "rows")
        function = "greater_equal" if upper else "less_equal"
        mask = build.elementwise(function, build.sub(right, down), diagonal)
    return build.where(mask, x, 0)
