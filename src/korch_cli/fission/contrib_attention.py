"""Attention as ONNX Runtime's own domain has it."""

from __future__ import annotations

import math

import numpy as np

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.fission.attention import Bias, attend, join_heads, split_heads
from korch_cli.fission.build import Builder
from korch_cli.fission.linear import product
from korch_cli.fission.registry import Result, fission
from korch_cli.fission.view import OperatorView

_DOMAIN = "com.microsoft"


@fission("MultiHeadAttention", since=1, domain=_DOMAIN)
def multi_head_attention(op: OperatorView, build: Builder) -> Result:
    """Attend with heads packed into the last axis; keys and values may have them as an axis of their own.

    Refuses packed operands, lengths as a mask, and caches that are shared.
    """
    heads = op.integer("num_heads", 0)
    q, k, v, bias = op.input(0), op.input(1), op.input(2), op.optional(3)
    if q.type.rank != 3 or not k.type.rank == v.type.rank or k.type.rank not in (3, 4):
        raise Refusal("its operands are packed")
    if bias is not None:
        widths = tuple(x.type.shape[-1] for x in (q, k, v))
        if k.type.rank != 3:
            raise Refusal("its keys have heads and a bias")
        q, k, v = (build.add(x, part) for x, part in zip((q, k, v), _parts(build, bias, widths), strict=True))
    q = split_heads(build, q, heads)
    k, v = (x if x.type.rank == 4 else split_heads(build, x, heads) for x in (k, v))
    past_key, past_value = op.optional(6), op.optional(7)
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.type.shape[2] if past_key.type.rank == 4 else 0
        k, v = build.concat(2, (past_key, k)), build.concat(2, (past_value, v))
    result = _attended(op, build, (q, k, v), op.optional(4), op.optional(5), past)
    return result, k if op.wants(1) else None, v if op.wants(2) else None


@fission("Attention", since=1, domain=_DOMAIN)
def attention(op: OperatorView, build: Builder) -> Value:
    """Project to queries, keys and values, and attend. Refuses caches, and lengths as a mask."""
    heads = op.integer("num_heads", 0)
    x, weight, bias = op.input(0), op.input(1), op.optional(2)
    if x.type.rank != 3 or weight.type.rank != 2:
        raise Refusal(f"{x.type} cannot be projected by {weight.type}")
    projected = product(build, x, weight)
    projected = projected if bias is None else build.add(projected, bias)
    widths = op.integers("qkv_hidden_sizes") or (weight.type.shape[1] // 3,) * 3
    if len(widths) != 3 or sum(widths) != weight.type.shape[1]:
        raise Refusal(f"{weight.type} does not divide into {list(widths)}")
    three = tuple(split_heads(build, part, heads) for part in _parts(build, projected, widths))
    return _attended(op, build, three, op.optional(3), op.optional(5), 0)


def _attended(
    op: OperatorView,
    build: Builder,
    three: tuple[Value, ...],
    mask: Value | None,
    added: Value | None,
    past: int,
) -> Value:
    q, k, v = three
    scale = op.number("scale", 0.0) or 1 / math.sqrt(max(q.type.shape[3], 1))
    filter_value = op.number("mask_filter_value", -10000.0)
    if mask is not None:
        if mask.type.shape != (q.type.shape[0], k.type.shape[2]) or not mask.type.dtype.is_integer:
            raise Refusal(f"the mask {mask.type} says lengths")
        seen = build.elementwise("greater", build.reshape(mask, (q.type.shape[0], 1, 1, k.type.shape[2])), 0)
        barred = build.where(seen, build.literal(0, q.type.dtype), build.literal(filter_value, q.type.dtype))
        added = barred if added is None else build.add(barred, added)
    allowed = _causal(build, q, k, past) if op.integer("unidirectional", 0) else None
    return join_heads(build, attend(build, q, k, v, Bias(allowed, added), scale=scale).result)


def _causal(build: Builder, q: Value, k: Value, past: int) -> Value:
    queries = build.constant(np.arange(past, past + q.type.shape[2]).reshape(-1, 1), "query")
    return build.elementwise("less_equal", build.constant(np.arange(k.type.shape[2]).reshape(1, -1), "key"), queries)


def _parts(build: Builder, x: Value, widths: tuple[int, ...]) -> list[Value]:
    """Return consecutive parts of the last axis."""
    outer, rank = x.type.shape[:-1], x.type.rank
    if sum(widths) != x.type.shape[-1]:
        raise Refusal(f"{x.type} does not divide into {list(widths)}")
    starts = [sum(widths[:i]) for i in range(len(widths))]
    return [
        build.slice(x, (0,) * (rank - 1) + (start,), (1,) * rank, (*outer, width))
        for start, width in zip(starts, widths, strict=True)
    ]
