"""Normalizations. Variances take two passes over the data, and 16-bit floats are computed in float32 throughout."""

from __future__ import annotations

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.primitive import WindowReduce
from korch_cli.fission.build import Builder
from korch_cli.fission.registry import Result, fission
from korch_cli.fission.view import OperatorView, distinct_axes


@fission("BatchNormalization", since=14, also=(15,))
def batch_normalization(op: OperatorView, build: Builder) -> Value:
    """Scale and shift each channel by running statistics; refuses training."""
    if op.integer("training_mode", 0):
        raise Refusal("it is in training mode")
    return _batch_normalization(op, build, per_channel=True)


@fission("BatchNormalization", since=9, until=13)
def batch_normalization_inference(op: OperatorView, build: Builder) -> Value:
    """Scale and shift each channel; further outputs would mean training, and are refused by the driver."""
    return _batch_normalization(op, build, per_channel=True)


@fission("BatchNormalization", since=7, until=8)
def batch_normalization_spatial(op: OperatorView, build: Builder) -> Value:
    """Scale and shift each channel, or each activation where `spatial` is 0."""
    return _batch_normalization(op, build, per_channel=op.integer("spatial", 1) != 0)


def _batch_normalization(op: OperatorView, build: Builder, *, per_channel: bool) -> Value:
    op.ignore("momentum")
    x = op.input(0)
    if len([name for name in op.operator.outputs if name]) > 1:
        raise Refusal("it has outputs of training")
    if x.type.rank < 2:
        raise Refusal("it has no channels")
    scale, bias, mean, variance = (build.wide(op.input(i)) for i in range(1, 5))
    deviation = build.elementwise("sqrt", build.add(variance, op.number("epsilon", 1e-5)))
    factor = build.div(scale, deviation)
    shift = build.sub(bias, build.mul(mean, factor))
    if per_channel:
        factor, shift = _by_channel(build, factor, x.type.rank), _by_channel(build, shift, x.type.rank)
    return build.cast(build.add(build.mul(build.wide(x), factor), shift), x.type.dtype)


@fission("InstanceNormalization", since=6, also=(22,))
def instance_normalization(op: OperatorView, build: Builder) -> Value:
    """Normalise every channel of every sample by its own statistics."""
    x = op.input(0)
    scale, bias = (_by_channel(build, build.wide(op.input(i)), x.type.rank) for i in (1, 2))
    normal = _standardized(build, build.wide(x), tuple(range(2, x.type.rank)), op.number("epsilon", 1e-5))
    return build.cast(build.add(build.mul(normal, scale), bias), x.type.dtype)


@fission("GroupNormalization", since=18, until=20)
def group_normalization_per_group(op: OperatorView, build: Builder) -> Value:
    """Normalise groups of channels; scale and bias are one number for each group."""
    return _group_normalization(op, build, per_channel=False)


@fission("GroupNormalization", since=21)
def group_normalization(op: OperatorView, build: Builder) -> Value:
    """Normalise groups of channels; scale and bias are one number for each channel."""
    _check_stash(op)
    return _group_normalization(op, build, per_channel=True)


def _group_normalization(op: OperatorView, build: Builder, *, per_channel: bool) -> Value:
    x, groups = op.input(0), op.integer("num_groups", 0)
    if x.type.rank < 3 or groups < 1 or x.type.shape[1] % groups:
        raise Refusal(f"{x.type} cannot be divided into {groups} groups of channels")
    batch, channels, *spatial = x.type.shape
    grouped = build.reshape(build.wide(x), (batch, groups, channels // groups, *spatial))
    normal = _standardized(build, grouped, tuple(range(2, grouped.type.rank)), op.number("epsilon", 1e-5))
    each = (groups, channels // groups if per_channel else 1, *([1] * len(spatial)))
    scale, bias = (build.reshape(build.wide(op.input(i)), each) for i in (1, 2))
    return build.cast(build.reshape(build.add(build.mul(normal, scale), bias), x.type.shape), x.type.dtype)


@fission("LayerNormalization", since=17)
def layer_normalization(op: OperatorView, build: Builder) -> Result:
    """Normalise over the trailing axes; mean and inverse deviation are outputs where something reads them."""
    _check_stash(op)
    x = op.input(0)
    axes = tuple(range(op.axis("axis", -1, x.type.rank), x.type.rank))
    return normalized_over(op, build, x, axes, op.number("epsilon", 1e-5), op.input(1), op.optional(2))


def normalized_over(
    op: OperatorView,
    build: Builder,
    x: Value,
    axes: tuple[int, ...],
    epsilon: float,
    scale: Value,
    bias: Value | None,
) -> tuple[Value | None, ...]:
    """Return x normalised, and its mean and inverse deviation where outputs 1 and 2 are read."""
    wide = build.wide(x)
    mean = build.reduce("mean", wide, axes)
    centred = build.sub(wide, mean)
    deviation = _deviation(build, centred, axes, epsilon)
    inverse = build.elementwise("reciprocal", deviation) if op.wants(2) else None
    normal = build.div(centred, deviation) if inverse is None else build.mul(centred, inverse)
    result = build.mul(normal, build.wide(scale))
    result = result if bias is None else build.add(result, build.wide(bias))
    return build.cast(result, x.type.dtype), mean if op.wants(1) else None, inverse


@fission("RMSNormalization", since=23)
def rms_normalization(op: OperatorView, build: Builder) -> Value:
    """Divide by the root of the mean square over the trailing axes."""
    _check_stash(op)
    x = op.input(0)
    axes = tuple(range(op.axis("axis", -1, x.type.rank), x.type.rank))
    wide = build.wide(x)
    normal = build.div(wide, _deviation(build, wide, axes, op.number("epsilon", 1e-5)))
    return build.cast(build.mul(normal, build.wide(op.input(1))), x.type.dtype)


@fission("LpNormalization", since=1, also=(22,))
def lp_normalization(op: OperatorView, build: Builder) -> Value:
    """Divide by a norm; where that is zero, so is the result."""
    x, p = op.input(0), op.integer("p", 2)
    if p not in (1, 2):
        raise Refusal(f"the norm {p} is not defined")
    axes = (op.axis("axis", -1, x.type.rank),)
    wide = build.wide(x)
    norm = build.reduce("sum", build.mul(wide, wide) if p == 2 else build.elementwise("abs", wide), axes)
    norm = build.elementwise("sqrt", norm) if p == 2 else norm
    # The square of a tiny number is zero, so that the quotient must be made zero, too.
    divisor = build.where(build.elementwise("equal", norm, 0), float("inf"), norm)
    return build.cast(build.div(wide, divisor), x.type.dtype)


@fission("MeanVarianceNormalization", since=9, also=(13,))
def mean_variance_normalization(op: OperatorView, build: Builder) -> Value:
    """Subtract the mean and divide by the deviation, to which the definition adds 1e-9."""
    x = op.input(0)
    axes = op.integers("axes")
    over = distinct_axes((0, 2, 3) if axes is None else axes, x.type.rank)
    wide = build.wide(x)
    centred = build.sub(wide, build.reduce("mean", wide, over))
    variance = build.reduce("mean", build.mul(centred, centred), over)
    deviation = build.add(build.elementwise("sqrt", variance), 1e-9)
    return build.cast(build.div(centred, deviation), x.type.dtype)


@fission("LRN", since=1, also=(13,))
def local_response_normalization(op: OperatorView, build: Builder) -> Value:
    """Divide by a power of the sum of squares in a window over the channels."""
    x, size = op.input(0), op.integer("size", 0)
    alpha, beta, bias = op.number("alpha", 1e-4), op.number("beta", 0.75), op.number("bias", 1.0)
    if x.type.rank < 2 or size < 1:
        raise Refusal("it has no window over the channels")
    wide = build.wide(x)
    rank = x.type.rank - 1
    rest = (0,) * (rank - 1)
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    ones = (1,) * rank
    window = WindowReduce("sum", (size, *ones[1:]), ones, ones, (before, *rest), (after, *rest))
    total = build.window_reduce(window, build.mul(wide, wide), x.type.shape[1:])
    power = build.elementwise("pow", build.add(build.mul(total, alpha / max(size, 1)), bias), beta)
    return build.cast(build.div(wide, power), x.type.dtype)


def _by_channel(build: Builder, x: Value, rank: int) -> Value:
    """Return a vector of channels in the shape in which it broadcasts to [batch, channels, spatial...]."""
    if x.type.rank != 1:
        raise Refusal(f"{x.type} is no vector of channels")
    return build.reshape(x, (x.type.elements, *([1] * (rank - 2))))


def _standardized(build: Builder, x: Value, axes: tuple[int, ...], epsilon: float) -> Value:
    centred = build.sub(x, build.reduce("mean", x, axes))
    return build.div(centred, _deviation(build, centred, axes, epsilon))


def _deviation(build: Builder, centred: Value, axes: tuple[int, ...], epsilon: float) -> Value:
    variance = build.reduce("mean", build.mul(centred, centred), axes)
    return build.elementwise("sqrt", build.add(variance, epsilon))


def _check_stash(op: OperatorView) -> None:
    if op.integer("stash_type", 1) != 1:
        raise Refusal("its statistics are not computed in float32")
