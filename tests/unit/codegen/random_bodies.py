"""Random bodies: whatever fission could produce."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from korch_cli.core.check import check
from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.primitive import (
    Broadcast,
    Concat,
    Constant,
    Elementwise,
    Gather,
    Input,
    Op,
    Pad,
    Reduce,
    Reshape,
    Slice,
    Transpose,
)
from korch_cli.core.types import DType, TensorType

UNARY = ("neg", "abs", "tanh", "sigmoid", "floor")
BINARY = ("add", "sub", "mul", "max", "min")
SHAPES = ((3, 4, 20), (2, 6, 9), (4, 33), (1, 5, 16), (50,), (2, 3, 4, 8), (18, 35), (2, 16, 16))


KINDS = ("unary", "binary", "binary", "literal", "reduce", "layout", "concat")
MOVES = ("layout", "layout", "concat", "concat", "binary")
"""What makes indices of indices."""


@st.composite
def bodies(draw: st.DrawFn, kinds: Sequence[str] = KINDS) -> PrimitiveGraph:
    shape = draw(st.sampled_from(SHAPES))
    dtype = draw(st.sampled_from([DType.F32, DType.F32, DType.F32, DType.F64, DType.F16, DType.I32, DType.U8]))
    unary = UNARY if dtype.is_float else ("neg", "abs")
    reductions = ["sum", "mean", "max", "min"] if dtype.is_float else ["sum", "max", "min"]
    values = [Value(i, f"x{i}", TensorType(dtype, shape), Input()) for i in range(draw(st.integers(1, 2)))]

    def add(op: Op, args: tuple[int, ...], result: tuple[int, ...]) -> None:
        source = isinstance(op, Input | Constant)
        values.append(Value(len(values), f"v{len(values)}", TensorType(dtype, result), op, args, -1 if source else 0))

    narrow = draw(st.booleans())
    if narrow:
        add(Input(), (), tuple(e if draw(st.booleans()) else 1 for e in shape))
    numbers = [0.5, 2.0, -1.5] if dtype.is_float else [1, 2, 5]
    add(Constant(np.array(draw(st.sampled_from(numbers)), dtype.numpy)), (), ())
    literal = len(values) - 1
    for _ in range(draw(st.integers(1, 7))):
        computed = [v for v in values if v.id != literal]
        arg = draw(st.sampled_from(computed[-4:]))
        kind = draw(st.sampled_from(kinds))
        of = arg.type.shape
        if kind == "unary":
            add(Elementwise(draw(st.sampled_from(unary))), (arg.id,), of)
        elif kind == "literal":
            add(Elementwise(draw(st.sampled_from(BINARY))), (arg.id, literal), of)
        elif kind == "binary":
            partners = [v for v in computed if _fits(v.type.shape, of)]
            other = draw(st.sampled_from(partners))
            pair = (arg.id, other.id) if draw(st.booleans()) else (other.id, arg.id)
            add(Elementwise(draw(st.sampled_from(BINARY))), pair, of)
        elif kind == "reduce":
            axes = tuple(sorted(draw(st.sets(st.integers(0, len(of) - 1), min_size=1))))
            reduced = tuple(1 if axis in axes else e for axis, e in enumerate(of))
            add(Reduce(draw(st.sampled_from(reductions)), axes), (arg.id,), reduced)
        elif kind == "concat":
            axis = draw(st.integers(0, len(of) - 1))
            joined = (*of[:axis], 2 * of[axis], *of[axis + 1 :])
            if np.prod(joined) <= 4000:
                add(Concat(axis), (arg.id, arg.id), joined)
        else:
            op, result = draw(layouts(of))
            add(op, (arg.id,), result)
    primitives = [v.id for v in values if not v.is_source]
    used = {a for v in values for a in v.args}
    outputs = [v for v in primitives if v not in used]
    outputs += draw(st.lists(st.sampled_from(primitives), max_size=2)) if primitives else []
    graph = PrimitiveGraph(tuple(values), tuple(dict.fromkeys(outputs)))
    check(graph)
    return graph


@st.composite
def layouts(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Op, tuple[int, ...]]:
    kind = draw(st.sampled_from(["transpose", "reshape", "slice", "pad", "gather", "broadcast"]))
    axis = draw(st.integers(0, len(shape) - 1))
    rank = len(shape)
    if kind == "transpose":
        perm = tuple(draw(st.permutations(range(rank))))
        return Transpose(perm), tuple(shape[a] for a in perm)
    if kind == "reshape":
        elements = int(np.prod(shape))
        extents = [e for e in (1, 2, 3, 4, 5, 6, 8) if elements % e == 0]
        first = draw(st.sampled_from(extents))
        return Reshape(), (first, elements // first)
    if kind == "slice":
        step = draw(st.sampled_from([1, 2, -1]))
        length = max(1, shape[axis] // 2)
        starts = tuple(min(length, shape[axis] - 1) if a == axis and step < 0 else 0 for a in range(rank))
        steps = tuple(step if a == axis else 1 for a in range(rank))
        length = length if step != 2 else max(1, (shape[axis] + 1) // 2)
        return Slice(starts, steps), tuple(length if a == axis else e for a, e in enumerate(shape))
    if kind == "pad":
        before = tuple(draw(st.integers(0, 2)) for _ in shape)
        return Pad(before, 1.0), tuple(e + b + 1 for e, b in zip(shape, before, strict=True))
    if kind == "gather":
        indices = tuple(draw(st.lists(st.integers(0, shape[axis] - 1), min_size=1, max_size=12)))
        return Gather(axis, indices), (*shape[:axis], len(indices), *shape[axis + 1 :])
    return Broadcast(), (2, *shape) if rank < 4 else shape


def _fits(own: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    if len(own) > len(shape):
        return False
    return all(o in (1, s) for o, s in zip(own, shape[len(shape) - len(own) :], strict=True))
