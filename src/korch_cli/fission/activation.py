"""Activation functions."""

from __future__ import annotations

import math

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.fission.build import Builder
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView


@fission("Relu", since=6, also=(13, 14))
def relu(op: OperatorView, build: Builder) -> Value:
    """Return max(x, 0)."""
    return build.max(op.input(0), 0)


@fission("LeakyRelu", since=6, also=(16,))
def leaky_relu(op: OperatorView, build: Builder) -> Value:
    """Slope 1 above zero and alpha below."""
    return leaky(build, op.input(0), op.number("alpha", 0.01))


def leaky(build: Builder, x: Value, alpha: float) -> Value:
    """Return x above zero and alpha x below."""
    scaled = build.mul(x, alpha)
    # At alpha = 0 the product of infinity would be NaN on the side that is not taken.
    if 0 < alpha <= 1:
        return build.max(x, scaled)
    return build.where(build.elementwise("less", x, 0), scaled, x)


@fission("PRelu", since=7, also=(9, 16))
def prelu(op: OperatorView, build: Builder) -> Value:
    """Slope 1 above zero and a learned one below."""
    x, slope = op.input(0), op.input(1)
    return build.where(build.elementwise("less", x, 0), build.mul(x, slope), x)


@fission("Elu", since=6, also=(22,))
def elu(op: OperatorView, build: Builder) -> Value:
    """Grow exponentially below zero."""
    return exponential_below(build, op.input(0), op.number("alpha", 1.0))


def exponential_below(build: Builder, x: Value, alpha: float) -> Value:
    """Return x above zero and alpha (exp x - 1) below."""
    below = _scaled(build, _exponential(build, x), alpha)
    return build.where(build.elementwise("less", x, 0), build.cast(below, x.type.dtype), x)


@fission("Selu", since=6, also=(22,))
def selu(op: OperatorView, build: Builder) -> Value:
    """Apply gamma to an Elu."""
    x = op.input(0)
    alpha, gamma = op.number("alpha", 1.67326319217681884765625), op.number("gamma", 1.05070102214813232421875)
    wide = build.wide(x)
    below = build.mul(_exponential(build, x), alpha)
    return build.cast(build.mul(build.where(build.elementwise("greater", x, 0), wide, below), gamma), x.type.dtype)


@fission("Celu", since=12, also=(28,))
def celu(op: OperatorView, build: Builder) -> Value:
    """Return max(x, 0) + min(alpha (exp(x / alpha) - 1), 0)."""
    x, alpha = op.input(0), op.number("alpha", 1.0)
    if alpha == 0:
        raise Refusal("alpha is zero")
    wide = build.wide(x)
    below = _scaled(build, _exponential(build, wide if alpha == 1 else build.div(wide, alpha)), alpha)
    return build.cast(build.add(build.max(wide, 0), build.min(below, 0)), x.type.dtype)


@fission("ThresholdedRelu", since=10, also=(22,))
def thresholded_relu(op: OperatorView, build: Builder) -> Value:
    """Return x above alpha, else zero."""
    x = op.input(0)
    return build.where(build.elementwise("greater", x, op.number("alpha", 1.0)), x, 0)


@fission("Shrink", since=9)
def shrink(op: OperatorView, build: Builder) -> Value:
    """Move towards zero by bias outside of lambd, zero inside."""
    x, bias, limit = op.input(0), op.number("bias", 0.0), op.number("lambd", 0.5)
    if not x.type.dtype.is_float:
        raise Refusal("integers would be compared with a fractional bound")
    above = build.where(build.elementwise("greater", x, limit), build.sub(x, bias), 0)
    return build.where(build.elementwise("less", x, -limit), build.add(x, bias), above)


@fission("Softsign", since=1, also=(22,))
def softsign(op: OperatorView, build: Builder) -> Value:
    """Return x / (1 + |x|)."""
    return softsign_of(build, op.input(0))


def softsign_of(build: Builder, x: Value) -> Value:
    """Return x / (1 + |x|)."""
    wide = build.wide(x)
    return build.cast(build.div(wide, build.add(build.elementwise("abs", wide), 1)), x.type.dtype)


@fission("HardSigmoid", since=6, also=(22,))
def hard_sigmoid(op: OperatorView, build: Builder) -> Value:
    """Return min(max(alpha x + beta, 0), 1)."""
    return hard_sigmoid_of(build, op.input(0), op.number("alpha", 0.2), op.number("beta", 0.5))


def hard_sigmoid_of(build: Builder, x: Value, alpha: float, beta: float) -> Value:
    """Return min(max(alpha x + beta, 0), 1)."""
    return build.cast(_hard_sigmoid(build, build.wide(x), alpha, beta), x.type.dtype)


@fission("HardSwish", since=14, also=(22,))
def hard_swish(op: OperatorView, build: Builder) -> Value:
    """Return x times the hard sigmoid with slope 1/6."""
    return hard_swish_of(build, op.input(0))


def hard_swish_of(build: Builder, x: Value) -> Value:
    """Return x times the hard sigmoid with slope 1/6."""
    wide = build.wide(x)
    return build.cast(build.mul(wide, _hard_sigmoid(build, wide, 1 / 6, 0.5)), x.type.dtype)


@fission("Mish", since=18, also=(22,))
def mish(op: OperatorView, build: Builder) -> Value:
    """Return x tanh(softplus x)."""
    x = op.input(0)
    wide = build.wide(x)
    return build.cast(build.mul(wide, build.elementwise("tanh", build.elementwise("softplus", wide))), x.type.dtype)


@fission("Swish", since=24)
def swish(op: OperatorView, build: Builder) -> Value:
    """Return x sigmoid(alpha x)."""
    x = op.input(0)
    return swished(build, x, op.number("alpha", 1.0))


def swished(build: Builder, x: Value, alpha: float) -> Value:
    """Return x sigmoid(alpha x)."""
    wide = build.wide(x)
    return build.cast(build.mul(wide, build.elementwise("sigmoid", _scaled(build, wide, alpha))), x.type.dtype)


@fission("SwiGLU", since=28)
def swiglu(op: OperatorView, build: Builder) -> Value:
    """Return a sigmoid(alpha a) b of two operands of one shape."""
    a, b = op.input(0), op.input(1)
    wide = build.wide(a)
    gate = build.mul(wide, build.elementwise("sigmoid", _scaled(build, wide, op.number("alpha", 1.0))))
    return build.cast(build.mul(gate, build.wide(b)), a.type.dtype)


@fission("Gelu", since=20)
def gelu(op: OperatorView, build: Builder) -> Value:
    """Return x Φ(x), by erf or approximated by tanh."""
    approximate = op.text("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise Refusal(f"the approximation {approximate!r} is not known")
    return gelu_erf(build, op.input(0)) if approximate == "none" else gelu_tanh(build, op.input(0))


def gelu_erf(build: Builder, x: Value) -> Value:
    """Return 0.5 x (1 + erf(x / √2))."""
    wide = build.wide(x)
    grown = build.add(build.elementwise("erf", build.mul(wide, math.sqrt(0.5))), 1)
    return build.cast(build.mul(build.mul(wide, 0.5), grown), x.type.dtype)


def gelu_tanh(build: Builder, x: Value) -> Value:
    """Return 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    wide = build.wide(x)
    factor = build.add(build.mul(build.mul(wide, wide), math.sqrt(2 / math.pi) * 0.044715), math.sqrt(2 / math.pi))
    grown = build.add(build.elementwise("tanh", build.mul(wide, factor)), 1)
    return build.cast(build.mul(build.mul(wide, 0.5), grown), x.type.dtype)


def _exponential(build: Builder, x: Value) -> Value:
    """Return exp x - 1, in a type in which the difference keeps its digits."""
    return build.sub(build.elementwise("exp", build.wide(x)), 1)


def _scaled(build: Builder, x: Value, factor: float) -> Value:
    return x if factor == 1 else build.mul(x, factor)


def _hard_sigmoid(build: Builder, x: Value, alpha: float, beta: float) -> Value:
    return build.min(build.max(build.add(build.mul(x, alpha), beta), 0), 1)
