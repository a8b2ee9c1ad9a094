"""Operators of ONNX Runtime's own domain, as its transformer optimisers write them."""

from __future__ import annotations

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.fission.activation import gelu_erf, gelu_tanh, swished
from korch_cli.fission.build import Builder
from korch_cli.fission.linear import product
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


@fission("FusedMatMul", since=1, domain=_DOMAIN)
def fused_matmul(op: OperatorView, build: Builder) -> Value:
    """Return alpha A B, with the last two axes of A and B exchanged as asked."""
    x, y, alpha = op.input(0), op.input(1), op.number("alpha", 1.0)
    if op.integer("transBatchA", 0) or op.integer("transBatchB", 0):
        raise Refusal("it moves a batch axis")
    x = _exchanged(build, x) if op.integer("transA", 0) else x
    y = _exchanged(build, y) if op.integer("transB", 0) else y
    result = product(build, x, y)
    return result if alpha == 1 else build.mul(result, alpha)


def _exchanged(build: Builder, x: Value) -> Value:
    if x.type.rank < 2:
        raise Refusal("a vector is transposed")
    perm = tuple(range(x.type.rank))
    return build.transpose(x, (*perm[:-2], perm[-1], perm[-2]))
