"""Layout operators on random shapes, against numpy and ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_case import (  # type: ignore[import-not-found]
    Case,
    Fixed,
    case,
    fixed,
    interpreted,
    judged,
    split,
)

from korch_cli.core.types import Array

_QUICK = settings(max_examples=60, deadline=None, derandomize=True)
_SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


def _numbered(shape: tuple[int, ...]) -> Array:
    """Different elements everywhere, so that none is mistaken for another."""
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)


def _same(each: Case, expected: list[Array]) -> None:
    graph = split(each.proto(expected))
    assert not graph.refusals
    for got, wanted in zip(interpreted(graph, each.feeds()), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


@_QUICK
@given(shape=_SHAPES, data=st.data())
def test_transpose(shape: tuple[int, ...], data: Any) -> None:
    perm = data.draw(st.permutations(range(len(shape))))
    x = _numbered(shape)
    _same(replace(case("Transpose", x, perm=perm), version=13), [x.transpose(perm)])


@_QUICK
@given(shape=_SHAPES, data=st.data())
def test_slice(shape: tuple[int, ...], data: Any) -> None:
    x = _numbered(shape)
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    limits = np.iinfo(np.int64)
    steps = [data.draw(st.sampled_from([-3, -2, -1, 1, 2, 3])) for _ in axes]
    starts = [data.draw(st.one_of(st.integers(-7, 7), st.sampled_from([limits.min, limits.max]))) for _ in axes]
    ends = [data.draw(st.one_of(st.integers(-7, 7), st.just(limits.min if s < 0 else limits.max))) for s in steps]
    counted = [axis - len(shape) if data.draw(st.booleans()) else axis for axis in axes]
    each = replace(case("Slice", x, fixed(*starts), fixed(*ends), fixed(*counted), fixed(*steps)), version=13)
    _same(each, judged(each))


@_QUICK
@given(shape=_SHAPES, mode=st.sampled_from(["constant", "edge", "reflect", "wrap"]), data=st.data())
def test_pad(shape: tuple[int, ...], mode: str, data: Any) -> None:
    x = _numbered(shape)
    least = [-(extent // 2) if mode == "constant" else 0 for extent in shape]
    most = [extent - 1 if mode == "reflect" else 6 for extent in shape]
    before, after = ([data.draw(st.integers(low, high)) for low, high in zip(least, most, strict=True)] for _ in "ab")
    each = case("Pad", x, fixed(*before, *after), fixed(-1, dtype=np.float32), mode=mode)
    amounts = [(max(0, b), max(0, a)) for b, a in zip(before, after, strict=True)]
    cut = tuple(slice(max(0, -b), e - max(0, -a)) for b, a, e in zip(before, after, shape, strict=True))
    constants: dict[str, Any] = {"constant_values": -1} if mode == "constant" else {}
    expected = np.pad(x[cut], amounts, mode=mode, **constants)  # type: ignore[call-overload]
    _same(replace(each, version=19), [expected])


@_QUICK
@given(shape=_SHAPES, data=st.data())
def test_reshape(shape: tuple[int, ...], data: Any) -> None:
    x = _numbered(shape)
    wanted = list(data.draw(st.permutations(shape)))
    if data.draw(st.booleans()):
        wanted[data.draw(st.integers(0, len(shape) - 1))] = -1
    for axis, extent in enumerate(shape):
        if wanted[axis] == extent and data.draw(st.booleans()):
            wanted[axis] = 0
    each = replace(case("Reshape", x, fixed(*wanted)), version=14)
    _same(each, judged(each))


@_QUICK
@given(shape=_SHAPES, data=st.data())
def test_split(shape: tuple[int, ...], data: Any) -> None:
    x = _numbered(shape)
    axis = data.draw(st.integers(0, len(shape) - 1))
    cuts = sorted(data.draw(st.lists(st.integers(0, shape[axis]), min_size=1, max_size=3)))
    sizes = np.diff([0, *cuts, shape[axis]])
    each = case("Split", x, Fixed(sizes), outputs=len(sizes), axis=axis - data.draw(st.sampled_from([0, len(shape)])))
    _same(replace(each, version=18), np.split(x, cuts, axis))


@_QUICK
@given(shape=_SHAPES, data=st.data())
def test_reduce(shape: tuple[int, ...], data: Any) -> None:
    x = _numbered(shape)
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    keepdims = data.draw(st.booleans())
    each = case("ReduceMax", x, fixed(*axes), keepdims=int(keepdims))
    _same(replace(each, version=18), [np.asarray(x.max(tuple(axes), keepdims=keepdims))])


@_QUICK
@given(
    extent=st.integers(1, 9),
    window=st.integers(1, 4),
    stride=st.integers(1, 4),
    dilation=st.integers(1, 3),
    ceil_mode=st.integers(0, 1),
    op_type=st.sampled_from(["MaxPool", "AveragePool", "LpPool"]),
    padding=st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]),
    data=st.data(),
)
def test_pools(
    extent: int, window: int, stride: int, dilation: int, ceil_mode: int, op_type: str, padding: str, data: Any
) -> None:
    x = _numbered((1, 2, extent, 5))
    pads = [data.draw(st.integers(0, window - 1)) if padding == "NOTSET" else 0 for _ in range(2)]
    if extent + sum(pads) < dilation * (window - 1) + 1:
        return
    attributes: dict[str, Any] = {
        "kernel_shape": [window, 2],
        "strides": [stride, 1],
        "dilations": [dilation, 1],
        "auto_pad": padding,
        "ceil_mode": ceil_mode,
    }
    if padding == "NOTSET":
        attributes["pads"] = [pads[0], 0, pads[1], 0]
    if op_type == "AveragePool":
        attributes["count_include_pad"] = data.draw(st.integers(0, 1))
    each = replace(case(op_type, x, **attributes), version=22)
    expected = judged(each)
    graph = split(each.proto(expected))
    gaps = "SAME" in padding and (dilation > 1 or stride > window + 1)
    beside = dilation > extent or (dilation > 1 and (pads[0] or ceil_mode))
    if not (graph.refusals and (gaps or beside)):
        assert not graph.refusals
        np.testing.assert_allclose(interpreted(graph, each.feeds())[0], expected[0], rtol=1e-5)


@_QUICK
@given(
    extents=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    sizes=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    mode=st.sampled_from(["linear", "cubic"]),
    transformation=st.sampled_from(
        ["asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"]
    ),
    outside=st.integers(0, 1),
)
def test_interpolation(
    extents: tuple[int, int], sizes: tuple[int, int], mode: str, transformation: str, outside: int
) -> None:
    x = np.random.default_rng(sum(extents)).standard_normal((1, 2, *extents)).astype(np.float32)
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": transformation}
    if mode == "cubic":
        attributes["exclude_outside"] = outside
    each = replace(case("Resize", x, None, None, fixed(1, 2, *sizes), **attributes), version=19)
    expected = judged(each)
    graph = split(each.proto(expected))
    assert not graph.refusals
    np.testing.assert_allclose(interpreted(graph, each.feeds())[0], expected[0], rtol=1e-4, atol=1e-5)
