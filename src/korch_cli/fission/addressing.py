"""Operators that address single elements or slices by constant indices: flattened axes and one table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.types import Array
from korch_cli.fission.build import TABLE_LIMIT, Builder
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView


@fission("GatherElements", since=11, also=(13,))
def gather_elements(op: OperatorView, build: Builder) -> Value:
    """Pick one element for each index; the other axes keep their place."""
    x, indices = op.input(0), _indices(op, 1)
    axis = op.axis("axis", 0, x.type.rank)
    places = _element_places(x, indices, axis)
    flat = build.reshape(x, (x.type.elements,))
    return build.reshape(build.gather(flat, 0, _table(places)), indices.shape)


@fission("GatherND", since=11, also=(12, 13))
def gather_nd(op: OperatorView, build: Builder) -> Value:
    """Pick a slice for each tuple of indices; since version 12 within each element of `batch_dims` leading axes."""
    x, indices, batch = op.input(0), _indices(op, 1), op.integer("batch_dims", 0)
    if not 0 <= batch < min(indices.ndim, x.type.rank) or indices.shape[:batch] != x.type.shape[:batch]:
        raise Refusal("its indices do not fit the batch axes")
    places, depth = _slice_places(x, indices, batch)
    rest = x.type.shape[depth:]
    rows = build.reshape(x, (math.prod(x.type.shape[:depth]), *rest))
    return build.reshape(build.gather(rows, 0, _table(places)), (*indices.shape[:-1], *rest))


@fission("Scatter", since=9, until=10)
@fission("ScatterElements", since=11, also=(13, 16, 18))
def scatter_elements(op: OperatorView, build: Builder) -> Value:
    """Replace one element for each index, or since version 16 combine it with the update."""
    x, indices, updates = op.input(0), _indices(op, 1), op.input(2)
    axis = op.axis("axis", 0, x.type.rank)
    places = _element_places(x, indices, axis)
    flat, given = (build.reshape(v, (v.type.elements,)) for v in (x, updates))
    if updates.type.shape != indices.shape:
        raise Refusal("there is no update for each index")
    return build.reshape(_scattered(op, build, flat, given, places), x.type.shape)


@fission("ScatterND", since=11, also=(13, 16, 18))
def scatter_nd(op: OperatorView, build: Builder) -> Value:
    """Replace a slice for each tuple of indices, or since version 16 combine it with the update."""
    x, indices, updates = op.input(0), _indices(op, 1), op.input(2)
    if indices.ndim < 1:
        raise Refusal("its indices are no tuples")
    places, depth = _slice_places(x, indices, 0)
    rest = x.type.shape[depth:]
    if updates.type.shape != (*indices.shape[:-1], *rest):
        raise Refusal("there is no update for each index")
    rows = build.reshape(x, (math.prod(x.type.shape[:depth]), *rest))
    given = build.reshape(updates, (places.size, *rest))
    return build.reshape(_scattered(op, build, rows, given, places), x.type.shape)


@fission("TensorScatter", since=24)
def tensor_scatter(op: OperatorView, build: Builder) -> Value:
    """Replace consecutive elements of one axis, from a place on that may differ between elements of the first axis."""
    x, update, firsts, mode = op.input(0), op.input(1), op.constant_integers(2), op.text("mode", "linear")
    axis = op.axis("axis", -2, x.type.rank)
    if axis == 0 or update.type.shape != (*x.type.shape[:axis], update.type.shape[axis], *x.type.shape[axis + 1 :]):
        raise Refusal("its update does not fit the axis")
    count, extent, length = x.type.shape[0], x.type.shape[axis], update.type.shape[axis]
    starts = (0,) * count if firsts is None else firsts
    if mode not in ("linear", "circular") or len(starts) != count or length > extent:
        raise Refusal("its update does not fit the axis")
    if min(starts, default=0) < 0 or (mode == "linear" and max(starts, default=0) + length > extent):
        raise Refusal("its update leaves the axis")
    table = np.arange(count * extent).reshape(count, extent)
    for row, start in enumerate(starts):
        table[row, (start + np.arange(length)) % extent] = count * extent + row * length + np.arange(length)
    perm = (0, axis, *(i for i in range(1, x.type.rank) if i != axis))
    rows = [build.transpose(v, perm) for v in (x, update)]
    rest = rows[0].type.shape[2:]
    joined = build.concat(0, tuple(build.reshape(v, (v.type.shape[0] * v.type.shape[1], *rest)) for v in rows))
    taken = build.reshape(build.gather(joined, 0, _table(table.reshape(-1))), rows[0].type.shape)
    return build.transpose(taken, tuple(perm.index(i) for i in range(x.type.rank)))


@fission("ReverseSequence", since=10, also=(28,))
def reverse_sequence(op: OperatorView, build: Builder) -> Value:
    """Reverse the first elements of the time axis, as many as a constant says for each element of the batch axis."""
    x, lengths = op.input(0), op.constant_integers(1)
    time = op.axis("time_axis", 0, x.type.rank, negative=False)
    batch = op.axis("batch_axis", 1, x.type.rank, negative=False)
    extents = (x.type.shape[batch], x.type.shape[time])
    if batch == time or lengths is None or len(lengths) != extents[0]:
        raise Refusal("its lengths do not fit the batch axis")
    if any(not 0 <= length <= extents[1] for length in lengths):
        raise Refusal("a sequence is longer than the time axis")
    rows = []
    for row, length in enumerate(lengths):
        start = row * extents[1]
        rows += [*range(start + length - 1, start - 1, -1), *range(start + length, start + extents[1])]
    perm = (batch, time, *(axis for axis in range(x.type.rank) if axis not in (batch, time)))
    moved = build.transpose(x, perm)
    flat = build.reshape(moved, (extents[0] * extents[1], *moved.type.shape[2:]))
    back = build.reshape(build.gather(flat, 0, tuple(rows)), moved.type.shape)
    return build.transpose(back, tuple(perm.index(axis) for axis in range(x.type.rank)))


def _indices(op: OperatorView, position: int) -> Array:
    indices = op.constant(position)
    if indices is None:
        raise Refusal("it has no indices")
    if indices.size > TABLE_LIMIT:
        raise Refusal(f"a table of {indices.size} indices is too long for a kernel")
    return indices


def _from_front(indices: Array, extent: int) -> Array:
    """Return indices of one axis counted from the front. Raises Refusal where one leaves it."""
    if np.any((indices < -extent) | (indices >= extent)):
        raise Refusal(f"an index leaves an axis of {extent}")
    return np.where(indices < 0, indices + extent, indices)


def _element_places(x: Value, indices: Array, axis: int) -> Array:
    """Return for each index, in row-major order, the place in the flattened operand."""
    shape = x.type.shape
    if indices.ndim != len(shape):
        raise Refusal("its indices have another rank than the operand")
    if any(i > e for a, (i, e) in enumerate(zip(indices.shape, shape, strict=True)) if a != axis):
        raise Refusal("its indices reach beyond the operand")
    coordinates: list[Array] = list(np.indices(indices.shape))
    coordinates[axis] = _from_front(indices, shape[axis])
    return _flattened(coordinates, shape)


def _slice_places(x: Value, indices: Array, batch: int) -> tuple[Array, int]:
    """Return for each tuple of indices the place along the addressed axes as one, and how many axes these are."""
    depth = batch + indices.shape[-1]
    shape = x.type.shape[:depth]
    if not batch < depth <= x.type.rank:
        raise Refusal("its tuples of indices do not fit the operand")
    coordinates: list[Array] = list(np.indices(indices.shape[:-1]))[:batch]
    coordinates += [_from_front(indices[..., i], shape[batch + i]) for i in range(depth - batch)]
    return _flattened(coordinates, shape), depth


def _flattened(coordinates: Sequence[Array], shape: tuple[int, ...]) -> Array:
    place = np.zeros(coordinates[0].shape, np.int64)
    for coordinate, extent in zip(coordinates, shape, strict=True):
        place = place * extent + coordinate
    return place.reshape(-1)


def _table(places: Array) -> tuple[int, ...]:
    return tuple(int(place) for place in places)


def _better(comparison: str) -> Callable[[Builder, Value, Value], Value]:
    """Keep the element if it compares as better than the update, as the runtime does: a NaN in it gives way."""
    return lambda build, x, update: build.where(build.elementwise(comparison, x, update), x, update)


_MOST_LAYERS = 8
"""An element that gets more updates than this makes an expression that is too long for a kernel."""
_REDUCTIONS: Mapping[str, Callable[[Builder, Value, Value], Value]] = {
    "add": lambda build, x, update: build.add(x, update),
    "max": _better("greater"),
    "min": _better("less"),
    "mul": lambda build, x, update: build.mul(x, update),
}


def _scattered(op: OperatorView, build: Builder, rows: Value, updates: Value, places: Array) -> Value:
    """Put `updates` at `places` of the first axis of `rows`, or combine what is there with them one after the other."""
    reduction = op.text("reduction", "none")
    if updates.type.dtype is not rows.type.dtype:
        raise Refusal("its updates have another element type")
    if reduction != "none" and (reduction not in _REDUCTIONS or rows.type.dtype.numpy == np.bool_):
        raise Refusal(f"the reduction {reduction!r} is not understood")
    layers = _layers(places)
    if len(layers) > (1 if reduction == "none" else _MOST_LAYERS):
        raise Refusal("an element gets several updates, whose order is not defined or which are too many")
    count = rows.type.shape[0]
    for layer in layers:
        if reduction == "none":
            table = np.arange(count)
            table[places[layer]] = count + layer
            return build.gather(build.concat(0, (rows, updates)), 0, _table(table))
        table, touched = np.zeros(count, np.int64), np.zeros(count, np.bool_)
        table[places[layer]], touched[places[layer]] = layer, True
        combined = _REDUCTIONS[reduction](build, rows, build.gather(updates, 0, _table(table)))
        mask = build.constant(touched.reshape(-1, *[1] * (rows.type.rank - 1)), "touched")
        rows = build.where(mask, combined, rows)
    return rows


def _layers(places: Array) -> list[Array]:
    """Divide updates, in their order, into layers of which each has no place twice."""
    seen: dict[int, int] = {}
    layers: list[list[int]] = []
    for update, place in enumerate(places.tolist()):
        depth = seen[place] = seen.get(place, -1) + 1
        if depth == len(layers):
            layers.append([])
        layers[depth].append(update)
    return [np.array(layer) for layer in layers]
