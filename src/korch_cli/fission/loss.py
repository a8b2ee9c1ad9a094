"""Losses of classifiers. The class of a label is found by comparing it with every class, as a reduction does."""

from __future__ import annotations

import numpy as np

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.fission.build import Builder
from korch_cli.fission.registry import Result, fission
from korch_cli.fission.view import OperatorView

_CLASSES = 1
"""The axis of the classes in [batch, classes, spatial...]; labels are [batch, spatial...]."""


@fission("NegativeLogLikelihoodLoss", since=12, also=(13, 22))
def negative_log_likelihood_loss(op: OperatorView, build: Builder) -> Value:
    """Take the weighted log-probability of each label, negated, and reduce it as asked."""
    x = op.input(0)
    return build.cast(_loss(op, build, build.wide(x)), x.type.dtype)


@fission("SoftmaxCrossEntropyLoss", since=12, also=(13,))
def softmax_cross_entropy_loss(op: OperatorView, build: Builder) -> Result:
    """Do the same with the logarithm of the softmax of the scores, which is the second output."""
    x = op.input(0)
    if x.type.rank < 2:
        raise Refusal(f"{x.type} has no classes")
    wide = build.wide(x)
    shifted = build.sub(wide, build.reduce("max", wide, (_CLASSES,)))
    total = build.reduce("sum", build.elementwise("exp", shifted), (_CLASSES,))
    logarithms = build.sub(shifted, build.elementwise("log", total))
    loss = build.cast(_loss(op, build, logarithms), x.type.dtype)
    return loss, build.cast(logarithms, x.type.dtype) if op.wants(1) else None


def _loss(op: OperatorView, build: Builder, x: Value) -> Value:
    labels, weights = op.input(1), op.optional(2)
    shape = x.type.shape
    if len(shape) < 2 or labels.type.shape != (shape[0], *shape[2:]):
        raise Refusal(f"{labels.type} are no labels of {x.type}")
    labels = build.reshape(labels, (shape[0], 1, *shape[2:]))
    rest = (1,) * (len(shape) - 2)
    classes = build.constant(np.arange(shape[_CLASSES], dtype=labels.type.dtype.numpy).reshape(1, -1, *rest), "classes")
    chosen = build.elementwise("equal", labels, classes)
    ignored = None
    if op.has_attribute("ignore_index"):
        ignored = build.elementwise("equal", labels, op.integer("ignore_index", 0))
    loss = _unless(build, ignored, build.elementwise("neg", _picked(build, chosen, x)))
    counted = None
    if weights is not None:
        each = build.reshape(build.wide(weights), (1, shape[_CLASSES], *rest))
        counted = _unless(build, ignored, _picked(build, chosen, each))
        loss = build.mul(loss, counted)
    elif ignored is not None:
        ones = build.literal(1, x.type.dtype)
        counted = _unless(build, ignored, ones)
    return _reduced(op, build, loss, counted, (shape[0], *shape[2:]))


def _picked(build: Builder, chosen: Value, x: Value) -> Value:
    return build.reduce("sum", build.where(chosen, x, 0), (_CLASSES,))


def _unless(build: Builder, ignored: Value | None, x: Value) -> Value:
    return x if ignored is None else build.where(ignored, 0, x)


def _reduced(op: OperatorView, build: Builder, loss: Value, counted: Value | None, shape: tuple[int, ...]) -> Value:
    """Return the losses, their sum, or the sum divided by that of what was counted, the weights."""
    reduction = op.text("reduction", "mean")
    axes = range(loss.type.rank)
    if reduction == "none":
        return build.reshape(loss, shape)
    if reduction == "sum":
        return build.reshape(build.reduce("sum", loss, axes), ())
    if reduction != "mean":
        raise Refusal(f"the reduction {reduction!r} is not known")
    if not loss.type.elements:
        raise Refusal("there is nothing to average")
    if counted is None:
        return build.reshape(build.reduce("mean", loss, axes), ())
    total, count = build.reduce("sum", loss, axes), build.reduce("sum", counted, axes)
    return build.reshape(build.div(total, count), ())
