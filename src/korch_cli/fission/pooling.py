"""Pooling over windows."""

from __future__ import annotations

from dataclasses import astuple

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.primitive import WindowReduce
from korch_cli.fission.build import Builder
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView
from korch_cli.fission.window import Window, read_window


@fission("MaxPool", since=1, also=(8, 10, 11, 12, 22))
def max_pool(op: OperatorView, build: Builder) -> Value:
    """Return the maximum under each window; refuses the output of indices and a storage order for them."""
    if op.integer("storage_order", 0):
        raise Refusal("it has a storage order for its indices")
    return _pool(op, build, "max", count_padding=False)


@fission("AveragePool", since=7, also=(10, 11, 19, 22))
def average_pool(op: OperatorView, build: Builder) -> Value:
    """Return the mean under each window, of the operand's elements or with `count_include_pad` of the padding too."""
    return _pool(op, build, "mean", count_padding=op.integer("count_include_pad", 0) != 0)


@fission("LpPool", since=2, also=(11, 18, 22))
def lp_pool(op: OperatorView, build: Builder) -> Value:
    """Return the p-norm of what lies under each window; since version 18 with ceil_mode and dilations."""
    p = op.integer("p", 2)
    x = build.wide(op.input(0))
    w = _window(op, x)
    reduction = WindowReduce("sum", w.extents, w.strides, w.dilations, w.before, w.after)
    total = build.window_reduce(reduction, _power(build, x, p), w.positions)
    return build.cast(_root(build, total, p), op.input(0).type.dtype)


@fission("GlobalLpPool", since=2, until=21)
def global_lp_pool(op: OperatorView, build: Builder) -> Value:
    """Return the p-norm over every axis behind the channels; no runtime has version 22, nor the reference."""
    p = op.integer("p", 2)
    x = build.wide(op.input(0))
    total = build.reduce("sum", _power(build, x, p), range(2, x.type.rank))
    return build.cast(_root(build, total, p), op.input(0).type.dtype)


@fission("AveragePool", since=1, until=6)
def average_pool_counting(op: OperatorView, build: Builder) -> Value:
    """Return the mean under each window; before version 7 the padding always counted."""
    return _pool(op, build, "mean", count_padding=True)


def _pool(op: OperatorView, build: Builder, function: str, *, count_padding: bool) -> Value:
    x = op.input(0)
    w = _window(op, x)
    if not count_padding and any(map(_holds_nothing, x.type.shape[2:], *astuple(w))):
        raise Refusal("a window holds none of the operand, and runtimes disagree on what that gives")
    # Without padding, both ways of counting are one.
    count_padding = count_padding and any(w.before + w.after)
    reduction = WindowReduce(function, w.extents, w.strides, w.dilations, w.before, w.after, count_padding)
    return build.window_reduce(reduction, x, w.positions)


def _window(op: OperatorView, x: Value) -> Window:
    extents = op.integers("kernel_shape")
    if extents is None:
        raise Refusal("it has no kernel_shape")
    return read_window(op, x.type.shape[2:], extents, rounds=True)


def _holds_nothing(extent: int, window: int, stride: int, dilation: int, before: int, _: int, count: int) -> bool:
    """Whether some window lies beside the elements of its axis, or reaches over them."""
    starts = range(-before, -before + count * stride, stride)
    return any(all(not 0 <= start + i * dilation < extent for i in range(window)) for start in starts)


def _power(build: Builder, x: Value, p: int) -> Value:
    """Return the p-th power of the absolute values."""
    if p < 1:
        raise Refusal(f"there is no norm of order {p}")
    if p == 2:
        return build.mul(x, x)
    absolute = build.elementwise("abs", x)
    return absolute if p == 1 else build.elementwise("pow", absolute, p)


def _root(build: Builder, total: Value, p: int) -> Value:
    if p == 2:
        return build.elementwise("sqrt", total)
    return total if p == 1 else build.elementwise("pow", total, 1 / p)
