"""Operators that carry a state from call to call, over as few steps as can be written one after the other."""

from __future__ import annotations

import math
from dataclasses import dataclass

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.primitive import Linear
from korch_cli.fission.activation import swished
from korch_cli.fission.attention import split_heads
from korch_cli.fission.build import Builder
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView

_MICROSOFT = "com.microsoft"
"""Where both were first, with more attributes; what an operator has of those is refused."""
_MOST_STEPS = 8
"""A longer sequence would become a graph of hundreds of primitives."""
_MOST_TAPS = 8
"""A longer window is left to a convolution."""


@fission("CausalConvWithState", since=27)
@fission("CausalConvWithState", since=1, domain=_MICROSOFT)
def causal_conv_with_state(op: OperatorView, build: Builder) -> tuple[Value, Value]:
    """Convolve each channel over what came before; the state is the end of what was read."""
    x, w, bias, past = op.input(0), op.input(1), op.optional(2), op.optional(3)
    if x.type.rank != 3 or w.type.rank != 3 or w.type.shape[:2] != (x.type.shape[1], 1) or not w.type.shape[2]:
        raise Refusal(f"{x.type} cannot be convolved with {w.type}")
    batch, channels, length = x.type.shape
    taps = w.type.shape[2]
    if past is not None and past.type.shape != (batch, channels, taps - 1):
        raise Refusal(f"the state {past.type} is not for {taps} taps")
    padded = build.pad(x, (0, 0, taps - 1), (0, 0, 0), 0) if past is None else build.concat(2, (past, x))
    wide, weight = build.wide(padded), build.wide(w)
    result = _convolved(build, wide, weight, length)
    if bias is not None:
        result = build.add(result, build.reshape(build.wide(bias), (channels, 1)))
    activation = op.text("activation", "none")
    if activation not in ("none", "silu", "swish"):
        raise Refusal(f"the activation {activation!r} is not known")
    result = result if activation == "none" else swished(build, result, 1.0)
    state = build.slice(padded, (0, 0, length), (1, 1, 1), (batch, channels, taps - 1))
    return build.cast(result, x.type.dtype), state


def _convolved(build: Builder, x: Value, w: Value, length: int) -> Value:
    batch, channels, _ = x.type.shape
    taps = w.type.shape[2]
    if taps > _MOST_TAPS:
        amounts = (("after", (0,)), ("before", (0,)), ("dilations", (1,)), ("group", channels), ("strides", (1,)))
        return build.conv(Linear("conv", amounts), x, w, (length,))
    total: Value | None = None
    for tap in range(taps):
        factor = build.reshape(build.slice(w, (0, 0, tap), (1, 1, 1), (channels, 1, 1)), (channels, 1))
        part = build.mul(build.slice(x, (0, 0, tap), (1, 1, 1), (batch, channels, length)), factor)
        total = part if total is None else build.add(total, part)
    assert total is not None
    return total


@dataclass(frozen=True, slots=True)
class _Step:
    """What one step of a linear attention reads, [batch, heads, ...] each, and None for what the rule has not."""

    query: Value
    key: Value
    value: Value
    decay: Value | None
    beta: Value | None


@fission("LinearAttention", since=27)
@fission("LinearAttention", since=1, domain=_MICROSOFT)
def linear_attention(op: OperatorView, build: Builder) -> tuple[Value, Value]:
    """Update the state S by each key and value, S = exp(g) S + k (β (v - exp(g) Sᵀ k))ᵀ, and read it by the query.

    Refuses sequences of more than a few steps.
    """
    q, k, v, past = op.input(0), op.input(1), op.input(2), op.optional(3)
    heads, groups = op.integer("q_num_heads", 0), op.integer("kv_num_heads", 0)
    rule = op.text("update_rule", "gated_delta")
    op.ignore("chunk_size")
    if rule not in ("linear", "gated", "delta", "gated_delta") or groups < 1 or heads % groups:
        raise Refusal(f"the rule {rule!r} for {heads} heads in {groups} groups is not known")
    if q.type.rank != 3 or q.type.shape[1] > _MOST_STEPS:
        raise Refusal(f"{q.type} has too many steps to write them one after the other")
    if (op.has_input(4), op.has_input(5)) != ("gated" in rule, "delta" in rule):
        raise Refusal(f"the rule {rule!r} has other operands")
    batch, length, _ = q.type.shape
    queries, keys, values = (split_heads(build, build.wide(x), n) for x, n in ((q, heads), (k, groups), (v, groups)))
    size = keys.type.shape[3]
    decay, beta = (None if x is None else build.wide(x) for x in (op.optional(4), op.optional(5)))
    decay = None if decay is None else build.elementwise("exp", _spread(build, decay, groups))
    beta = None if beta is None else _spread(build, beta, beta.type.shape[-1])
    scale = op.number("scale", 0.0) or 1 / math.sqrt(max(size, 1))
    state = None if past is None else build.wide(past)
    results = []
    for t in range(length):
        gate, rate = (None if x is None else _at(build, x, t) for x in (decay, beta))
        step = _Step(_at(build, queries, t), _at(build, keys, t), _at(build, values, t), gate, rate)
        state, read = _stepped(build, state, step)
        results.append(build.reshape(build.mul(read, scale), (batch, 1, heads * values.type.shape[3])))
    if state is None:
        raise Refusal("it has no steps")
    result = build.concat(1, tuple(build.cast(x, q.type.dtype) for x in results))
    return result, build.cast(state, op.output(1).dtype)


def _spread(build: Builder, x: Value, heads: int) -> Value:
    """Return [batch, heads, length, size] of something that is given for each head or for each of its elements."""
    if heads not in (1, x.type.shape[-1]) and x.type.shape[-1] % heads:
        raise Refusal(f"{x.type} does not divide into {heads} heads")
    return split_heads(build, x, heads)


def _at(build: Builder, x: Value, step: int) -> Value:
    """Return [batch, heads, size, 1] of one step."""
    batch, heads, _, size = x.type.shape
    part = build.slice(x, (0, 0, step, 0), (1, 1, 1, 1), (batch, heads, 1, size))
    return build.reshape(part, (batch, heads, size, 1))


def _stepped(build: Builder, state: Value | None, step: _Step) -> tuple[Value, Value]:
    """Return the next state [batch, heads, keys, values], and what the queries read, for each head of queries."""
    batch, groups, size, _ = step.key.type.shape
    value = build.transpose(step.value, (0, 1, 3, 2))
    kept = state
    if kept is not None and step.decay is not None:
        kept = build.mul(kept, step.decay)
    if step.beta is not None:
        known = None if kept is None else build.reduce("sum", build.mul(kept, step.key), (2,))
        value = build.mul(value if known is None else build.sub(value, known), step.beta)
    added = build.mul(step.key, value)
    following = added if kept is None else build.add(kept, added)
    heads = step.query.type.shape[1]
    queries = build.reshape(step.query, (batch, groups, heads // groups, size, 1))
    states = build.reshape(following, (batch, groups, 1, size, following.type.shape[3]))
    return following, build.reduce("sum", build.mul(queries, states), (3,))
