"""Softmax and its logarithm. The maximum is subtracted first, so that nothing overflows; a row of -inf gives NaN."""

from __future__ import annotations

from korch_cli.core.graph import Value
from korch_cli.fission.build import Builder
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView


@fission("Softmax", since=13)
def softmax(op: OperatorView, build: Builder) -> Value:
    """Normalise along one axis."""
    x = op.input(0)
    return _softmax(build, x, (op.axis("axis", -1, x.type.rank),))


@fission("Softmax", since=1, until=12, also=(11,))
def softmax_flattened(op: OperatorView, build: Builder) -> Value:
    """Normalise over the axes from `axis` on together, as if they were one."""
    x = op.input(0)
    return _softmax(build, x, _trailing_axes(op, x))


@fission("LogSoftmax", since=13)
def log_softmax(op: OperatorView, build: Builder) -> Value:
    """Normalise along one axis, in logarithms."""
    x = op.input(0)
    return _log_softmax(build, x, (op.axis("axis", -1, x.type.rank),))


@fission("LogSoftmax", since=1, until=12, also=(11,))
def log_softmax_flattened(op: OperatorView, build: Builder) -> Value:
    """Normalise over the axes from `axis` on together, in logarithms."""
    x = op.input(0)
    return _log_softmax(build, x, _trailing_axes(op, x))


def _trailing_axes(op: OperatorView, x: Value) -> tuple[int, ...]:
    return tuple(range(op.axis("axis", 1, x.type.rank, negative=op.version >= 11), x.type.rank))


def _shifted(build: Builder, x: Value, axes: tuple[int, ...]) -> Value:
    wide = build.wide(x)
    return build.sub(wide, build.reduce("max", wide, axes))


def _softmax(build: Builder, x: Value, axes: tuple[int, ...]) -> Value:
    exponential = build.elementwise("exp", _shifted(build, x, axes))
    return build.cast(build.div(exponential, build.reduce("sum", exponential, axes)), x.type.dtype)


def _log_softmax(build: Builder, x: Value, axes: tuple[int, ...]) -> Value:
    shifted = _shifted(build, x, axes)
    total = build.reduce("sum", build.elementwise("exp", shifted), axes)
    return build.cast(build.sub(shifted, build.elementwise("log", total)), x.type.dtype)
