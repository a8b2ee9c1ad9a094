"""Reductions over axes, and the global pools, which are reductions too."""

from __future__ import annotations

from collections.abc import Callable

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.fission.build import Builder
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView, distinct_axes

_Reduction = Callable[[Builder, Value, tuple[int, ...]], Value]


@fission("ReduceL1", since=1, until=17, also=(11, 13))
@fission("ReduceL2", since=1, until=17, also=(11, 13))
@fission("ReduceLogSum", since=1, until=17, also=(11, 13))
@fission("ReduceLogSumExp", since=1, until=17, also=(11, 13))
@fission("ReduceMax", since=1, until=17, also=(11, 12, 13))
@fission("ReduceMean", since=1, until=17, also=(11, 13))
@fission("ReduceMin", since=1, until=17, also=(11, 12, 13))
@fission("ReduceProd", since=1, until=17, also=(11, 13))
@fission("ReduceSum", since=1, until=12, also=(11,))
@fission("ReduceSumSquare", since=1, until=17, also=(11, 13))
def reduce_attribute(op: OperatorView, build: Builder) -> Value:
    """Reduce over the axes of an attribute, or over all."""
    axes = op.integers("axes")
    if axes and min(axes) < 0 and op.version < 11:
        raise Refusal(f"negative axes have no meaning at opset {op.version}")
    return _reduced(op, build, axes)


@fission("ReduceL1", since=18)
@fission("ReduceL2", since=18)
@fission("ReduceLogSum", since=18, also=(28,))
@fission("ReduceLogSumExp", since=18, also=(28,))
@fission("ReduceMax", since=18, also=(20,))
@fission("ReduceMean", since=18)
@fission("ReduceMin", since=18, also=(20,))
@fission("ReduceProd", since=18)
@fission("ReduceSum", since=13)
@fission("ReduceSumSquare", since=18)
def reduce_input(op: OperatorView, build: Builder) -> Value:
    """Reduce over the axes of a constant input; over all or none where it is empty."""
    axes = op.constant_integers(1)
    unchanged = op.integer("noop_with_empty_axes", 0)
    if unchanged and not axes:
        if op.op_type not in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"):
            raise Refusal("what remains of it without axes depends on the version of the runtime")
        op.ignore("keepdims")
        return op.input(0)
    return _reduced(op, build, axes)


@fission("GlobalAveragePool", since=1, also=(22,))
@fission("GlobalMaxPool", since=1, also=(22,))
def global_pool(op: OperatorView, build: Builder) -> Value:
    """Reduce over every axis behind the channels."""
    x = op.input(0)
    function = "mean" if op.op_type == "GlobalAveragePool" else "max"
    return build.reduce(function, x, range(2, x.type.rank))


def _reduced(op: OperatorView, build: Builder, axes: tuple[int, ...] | None) -> Value:
    x = op.input(0)
    over = distinct_axes(axes, x.type.rank) if axes else tuple(range(x.type.rank))
    if op.op_type in _FLOAT_ONLY and not x.type.dtype.is_float:
        raise Refusal("what it gives for integers is not specified")
    result = _REDUCTIONS[op.op_type](build, x, over)
    if op.integer("keepdims", 1):
        return result
    return build.reshape(result, tuple(e for axis, e in enumerate(x.type.shape) if axis not in over))


def _plain(function: str) -> _Reduction:
    return lambda build, x, axes: build.reduce(function, x, axes)


def _l1(build: Builder, x: Value, axes: tuple[int, ...]) -> Value:
    return build.reduce("sum", build.elementwise("abs", x), axes)


def _sum_square(build: Builder, x: Value, axes: tuple[int, ...]) -> Value:
    wide = build.wide(x)
    return build.cast(build.reduce("sum", build.mul(wide, wide), axes), x.type.dtype)


def _l2(build: Builder, x: Value, axes: tuple[int, ...]) -> Value:
    return build.cast(build.elementwise("sqrt", _sum_square(build, build.wide(x), axes)), x.type.dtype)


def _log_sum(build: Builder, x: Value, axes: tuple[int, ...]) -> Value:
    return build.cast(build.elementwise("log", build.reduce("sum", build.wide(x), axes)), x.type.dtype)


def _log_sum_exp(build: Builder, x: Value, axes: tuple[int, ...]) -> Value:
    """Shift by the maximum where that is finite, so that nothing overflows and infinite rows stay infinite."""
    wide = build.wide(x)
    maximum = build.reduce("max", wide, axes)
    infinite = build.elementwise("equal", build.elementwise("abs", maximum), float("inf"))
    shift = build.where(infinite, 0, maximum)
    total = build.reduce("sum", build.elementwise("exp", build.sub(wide, shift)), axes)
    return build.cast(build.add(build.elementwise("log", total), shift), x.type.dtype)


_FLOAT_ONLY = frozenset({"ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean"})
_REDUCTIONS: dict[str, _Reduction] = {
    "ReduceL1": _l1,
    "ReduceL2": _l2,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _plain("max"),
    "ReduceMean": _plain("mean"),
    "ReduceMin": _plain("min"),
    "ReduceProd": _plain("prod"),
    "ReduceSum": _plain("sum"),
    "ReduceSumSquare": _sum_square,
}
