"""Operators of ONNX Runtime's own domain, as its transformer optimisers write them."""

from __future__ import annotations

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.fission.activation import gelu_erf, gelu_tanh, swished
from korch_cli.fission.build import Builder
from korch_cli.fission.normalization import normalized_over
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView

_DOMAIN = "com.microsoft"


@fission("Gelu", since=1, domain=_DOMAIN)
def gelu(op: OperatorView, build: Builder) -> Value:
    """Return x Φ(x)."""
    return gelu_erf(build, op.input(0))


@fission("BiasGelu", since=1, domain=_DOMAIN)
def bias_gelu(op: OperatorView, build: Builder) -> Value:
    """Add a bias, then x Φ(x)."""
    return gelu_erf(build, build.add(op.input(0), op.input(1)))


@fission("FastGelu", since=1, domain=_DOMAIN)
def fast_gelu(op: OperatorView, build: Builder) -> Value:
    """Add a bias if there is one, then the tanh approximation of x Φ(x)."""
    x, bias = op.input(0), op.optional(1)
    return gelu_tanh(build, x if bias is None else build.add(x, bias))


@fission("QuickGelu", since=1, domain=_DOMAIN)
def quick_gelu(op: OperatorView, build: Builder) -> Value:
    """Return x sigmoid(alpha x)."""
    return swished(build, op.input(0), op.number("alpha", 1.702))


@fission("SkipLayerNormalization", since=1, domain=_DOMAIN)
def skip_layer_normalization(op: OperatorView, build: Builder) -> tuple[Value | None, ...]:
    """Normalise x + skip + bias over the last axis; the sum is output 3."""
    x, skip, bias = op.input(0), op.input(1), op.optional(4)
    total = build.add(x, skip)
    total = total if bias is None else build.add(total, bias)
    scale, shift = op.input(2), op.optional(3)
    axes = (x.type.rank - 1,)
    outputs = normalized_over(op, build, total, axes, op.number("epsilon", 1e-12), scale, shift)
    return (*outputs, total if op.wants(3) else None)


@fission("SkipSimplifiedLayerNormalization", since=1, domain=_DOMAIN)
def skip_simplified_layer_normalization(op: OperatorView, build: Builder) -> tuple[Value | None, ...]:
    """Divide x + skip + bias by its root mean square over the last axis; the sum is output 3."""
    x, skip, bias = op.input(0), op.input(1), op.optional(3)
    total = build.add(x, skip)
    total = total if bias is None else build.add(total, bias)
    result, _ = scaled_by_root(build, total, (x.type.rank - 1,), op.number("epsilon", 1e-12), op.input(2))
    return result, None, None, total if op.wants(3) else None


@fission("SimplifiedLayerNormalization", since=1)
def simplified_layer_normalization(op: OperatorView, build: Builder) -> tuple[Value | None, ...]:
    """Divide by the root mean square over the trailing axes; ONNX Runtime's own, though in ONNX's domain."""
    if op.integer("stash_type", 1) != 1:
        raise Refusal("its statistics are not computed in float32")
    x = op.input(0)
    axes = tuple(range(op.axis("axis", -1, x.type.rank), x.type.rank))
    result, root = scaled_by_root(build, x, axes, op.number("epsilon", 1e-5), op.input(1))
    return result, build.elementwise("reciprocal", root) if op.wants(1) else None


def scaled_by_root(
    build: Builder, x: Value, axes: tuple[int, ...], epsilon: float, scale: Value
) -> tuple[Value, Value]:
    """Return x divided by the root of its mean square and multiplied by `scale`, and that root."""
    wide = build.wide(x)
    root = build.elementwise("sqrt", build.add(build.reduce("mean", build.mul(wide, wide), axes), epsilon))
    return build.cast(build.mul(build.div(wide, root), build.wide(scale)), scale.type.dtype), root
