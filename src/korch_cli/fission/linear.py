"""Matrix products and convolutions."""

from __future__ import annotations

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.primitive import Linear
from korch_cli.fission.build import Builder
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView
from korch_cli.fission.window import read_spread, read_window


@fission("MatMul", since=1, also=(9, 13))
def matmul(op: OperatorView, build: Builder) -> Value:
    """Multiply stacks of matrices; a vector is a matrix of one row or column, which the result has not."""
    return product(build, op.input(0), op.input(1))


def product(build: Builder, x: Value, y: Value) -> Value:
    """Return numpy's matmul of x and y."""
    if not x.type.rank or not y.type.rank:
        raise Refusal("a scalar cannot be multiplied as a matrix")
    left = build.reshape(x, (1, *x.type.shape)) if x.type.rank == 1 else x
    right = build.reshape(y, (*y.type.shape, 1)) if y.type.rank == 1 else y
    result = build.matmul(left, right)
    shape = list(result.type.shape)
    if y.type.rank == 1:
        del shape[-1]
    if x.type.rank == 1:
        del shape[-1 if y.type.rank == 1 else -2]
    return build.reshape(result, tuple(shape))


@fission("Gemm", since=7, also=(9, 11, 13))
def gemm(op: OperatorView, build: Builder) -> Value:
    """Return alpha A B + beta C, with A and B transposed as asked."""
    return scaled_product(op, build)


def scaled_product(op: OperatorView, build: Builder) -> Value:
    """Return what the operands and attributes of a Gemm say."""
    x, y, bias = op.input(0), op.input(1), op.optional(2)
    alpha, beta = op.number("alpha", 1.0), op.number("beta", 1.0)
    if x.type.rank != 2 or y.type.rank != 2:
        raise Refusal("its operands are no matrices")
    if not x.type.dtype.is_float and (alpha, beta) != (1, 1):
        raise Refusal("integers would be scaled by fractions")
    x = build.transpose(x, (1, 0)) if op.integer("transA", 0) else x
    y = build.transpose(y, (1, 0)) if op.integer("transB", 0) else y
    result = build.matmul(x, y)
    result = result if alpha == 1 else build.mul(result, alpha)
    if bias is None or beta == 0:
        return result
    return build.add(result, bias if beta == 1 else build.mul(bias, beta))


@fission("Conv", since=1, also=(11, 22))
def conv(op: OperatorView, build: Builder) -> Value:
    """Convolve; a bias is added to each channel."""
    return convolution(op, build)


def convolution(op: OperatorView, build: Builder) -> Value:
    """Return what the operands and attributes of a Conv say."""
    x, w, bias = op.input(0), op.input(1), op.optional(2)
    group, window = op.integer("group", 1), w.type.shape[2:]
    if x.type.rank != w.type.rank or x.type.rank < 3:
        raise Refusal(f"{x.type} cannot be convolved with {w.type}")
    if op.integers("kernel_shape") not in (None, window):
        raise Refusal("its kernel_shape is not that of its weight")
    if group < 1 or w.type.shape[1] * group != x.type.shape[1] or w.type.shape[0] % group:
        raise Refusal(f"its channels do not divide into {group} groups")
    g = read_window(op, x.type.shape[2:], window)
    attributes = (
        ("after", g.after),
        ("before", g.before),
        ("dilations", g.dilations),
        ("group", group),
        ("strides", g.strides),
    )
    result = build.conv(Linear("conv", attributes), x, w, g.positions)
    if bias is None:
        return result
    return build.add(result, build.reshape(bias, (w.type.shape[0], *([1] * len(window)))))


@fission("ConvTranspose", since=1, also=(11, 22))
def conv_transpose(op: OperatorView, build: Builder) -> Value:
    """Spread every element over a window, and add what overlaps; a bias is added to each channel."""
    x, w, bias = op.input(0), op.input(1), op.optional(2)
    group, window = op.integer("group", 1), w.type.shape[2:]
    if x.type.rank != w.type.rank or x.type.rank < 3:
        raise Refusal(f"{x.type} cannot be convolved with {w.type}")
    if op.integers("kernel_shape") not in (None, window):
        raise Refusal("its kernel_shape is not that of its weight")
    if group < 1 or w.type.shape[0] != x.type.shape[1] or w.type.shape[0] % group:
        raise Refusal(f"its channels do not divide into {group} groups")
    g = read_spread(op, x.type.shape[2:], window)
    attributes = (
        ("after", g.after),
        ("before", g.before),
        ("dilations", g.dilations),
        ("group", group),
        ("output_padding", g.extra),
        ("strides", g.strides),
    )
    result = build.conv_transpose(Linear("conv_transpose", attributes), x, w, g.extents)
    if bias is None:
        return result
    return build.add(result, build.reshape(bias, (result.type.shape[1], *([1] * len(window)))))
