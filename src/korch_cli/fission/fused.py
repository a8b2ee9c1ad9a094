"""Products and convolutions that ONNX Runtime's optimisers have fused with what follows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.fission.activation import (
    exponential_below,
    hard_sigmoid_of,
    hard_swish_of,
    leaky,
    softsign_of,
)
from korch_cli.fission.build import Builder
from korch_cli.fission.linear import convolution, product, scaled_product
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView

_DOMAIN = "com.microsoft"
_Parameters = tuple[float, ...]

_ACTIVATIONS: Mapping[str, tuple[int, Callable[[Builder, Value, _Parameters], Value]]] = {
    "Clip": (2, lambda build, x, p: build.min(build.max(x, p[0]), p[1])),
    "Elu": (1, lambda build, x, p: exponential_below(build, x, p[0])),
    "HardSigmoid": (2, lambda build, x, p: hard_sigmoid_of(build, x, p[0], p[1])),
    "HardSwish": (0, lambda build, x, _: hard_swish_of(build, x)),
    "LeakyRelu": (1, lambda build, x, p: leaky(build, x, p[0])),
    "Relu": (0, lambda build, x, _: build.max(x, 0)),
    "Sigmoid": (0, lambda build, x, _: build.elementwise("sigmoid", x)),
    "Softplus": (0, lambda build, x, _: build.elementwise("softplus", x)),
    "Softsign": (0, lambda build, x, _: softsign_of(build, x)),
    "Tanh": (0, lambda build, x, _: build.elementwise("tanh", x)),
    "ThresholdedRelu": (1, lambda build, x, p: build.where(build.elementwise("greater", x, p[0]), x, 0)),
}
"""For each activation, the number of its parameters and what it computes."""


@fission("FusedConv", since=1, domain=_DOMAIN)
def fused_conv(op: OperatorView, build: Builder) -> Value:
    """Convolve, add a residual operand if there is one, and apply an activation."""
    residual = op.optional(3)
    result = convolution(op, build)
    result = result if residual is None else build.add(result, residual)
    return _activated(build, op.text("activation", ""), result, op.numbers("activation_params") or ())


@fission("FusedGemm", since=1, domain=_DOMAIN)
def fused_gemm(op: OperatorView, build: Builder) -> Value:
    """Apply an activation to a Gemm."""
    names = [f"activation_{name}" for name in ("alpha", "beta", "gamma")]
    given = tuple(op.number(name, 0) for name in names if op.has_attribute(name))
    return _activated(build, op.text("activation", ""), scaled_product(op, build), given)


def _activated(build: Builder, name: str, x: Value, parameters: _Parameters) -> Value:
    if not name:
        return x
    if name not in _ACTIVATIONS or _ACTIVATIONS[name][0] != len(parameters):
        raise Refusal(f"the activation {name!r} with {len(parameters)} parameters is not known")
    return _ACTIVATIONS[name][1](build, x, parameters)


@fission("FusedMatMul", since=1, domain=_DOMAIN)
@fission("TransposeMatMul", since=1, domain=_DOMAIN)
def fused_matmul(op: OperatorView, build: Builder) -> Value:
    """Return alpha A B, with axes of A and B exchanged as asked."""
    x, y, alpha = op.input(0), op.input(1), op.number("alpha", 1.0)
    x = _exchanged(build, x, last=op.integer("transA", 0) != 0, first=op.integer("transBatchA", 0) != 0)
    y = _exchanged(build, y, last=op.integer("transB", 0) != 0, first=op.integer("transBatchB", 0) != 0)
    result = product(build, x, y)
    return result if alpha == 1 else build.mul(result, alpha)


def _exchanged(build: Builder, x: Value, *, last: bool, first: bool) -> Value:
    """Exchange the last two axes; with `first`, the first axis has been moved to the place before the last."""
    rank = x.type.rank
    if rank < 2:
        # ONNX Runtime transposes no vector.
        return x
    perm = tuple(range(rank))
    perm = (*perm[1:-1], 0, perm[-1]) if first else perm
    return build.transpose(x, (*perm[:-2], perm[-1], perm[-2]) if last else perm)
