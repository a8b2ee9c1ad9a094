"""Attention: two products with a softmax between them, and what decides which keys a query sees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.types import DType
from korch_cli.fission.build import Builder
from korch_cli.fission.registry import Result, fission
from korch_cli.fission.view import OperatorView

_INF = float("inf")
_CAUSAL_END = 0
_RAW, _CAPPED, _BIASED, _PROBABLE = range(4)


@dataclass(frozen=True, slots=True)
class Bias:
    """What is added to the scores.

    Attributes:
        allowed: which keys a query sees, broadcasting to [batch, heads, queries, keys]; None for all.
        added: numbers to add, of the same shape; None for none.
        may_be_empty: whether a query may see no key at all. Its result is then zero.
    """

    allowed: Value | None = None
    added: Value | None = None
    may_be_empty: bool = False


@dataclass(frozen=True, slots=True)
class Scores:
    """The stages of attention, [batch, heads, queries, keys] each but the result [batch, heads, queries, size]."""

    raw: Value
    capped: Value
    biased: Value
    probable: Value
    result: Value


@fission("Attention", since=23, also=(24, 25))
def attention(op: OperatorView, build: Builder) -> Result:
    """Attend, with heads as an axis of their own or packed into the last one; returns caches and scores if read."""
    q, k, v = op.input(0), op.input(1), op.input(2)
    packed = q.type.rank == 3
    if not q.type.rank == k.type.rank == v.type.rank or q.type.rank not in (3, 4):
        raise Refusal(f"{q.type}, {k.type} and {v.type} are no queries, keys and values")
    heads, key_heads = op.integer("q_num_heads", 0), op.integer("kv_num_heads", 0)
    if packed:
        q, k, v = split_heads(build, q, heads), split_heads(build, k, key_heads), split_heads(build, v, key_heads)
    past_key, past_value = op.optional(4), op.optional(5)
    if past_key is not None and past_value is not None:
        k, v = build.concat(2, (past_key, k)), build.concat(2, (past_value, v))
    past = past_key.type.shape[2] if past_key is not None and past_key.type.rank == 4 else 0
    bias = _read_bias(op, build, q, k, past)
    precision = _precision(op)
    scale = op.number("scale", float(np.float32(1) / np.sqrt(np.float32(max(q.type.shape[3], 1)))))
    if q.type.dtype is DType.F64:
        # ONNX scales both operands by a root that is rounded to float32.
        scale = float(np.sqrt(np.float32(scale))) ** 2
    scores = attend(build, q, k, v, bias, scale=scale, softcap=op.number("softcap", 0.0), precision=precision)
    result = join_heads(build, scores.result) if packed else scores.result
    return result, k, v, _exposed(op, scores, bias)


def split_heads(build: Builder, x: Value, heads: int) -> Value:
    """Return [batch, heads, length, size] from [batch, length, heads * size]."""
    if x.type.rank != 3 or heads < 1 or x.type.shape[2] % heads:
        raise Refusal(f"{x.type} does not divide into {heads} heads")
    batch, length, width = x.type.shape
    return build.transpose(build.reshape(x, (batch, length, heads, width // heads)), (0, 2, 1, 3))


def join_heads(build: Builder, x: Value) -> Value:
    """Return [batch, length, heads * size] from [batch, heads, length, size]."""
    batch, heads, length, size = x.type.shape
    return build.reshape(build.transpose(x, (0, 2, 1, 3)), (batch, length, heads * size))


def attend(
    build: Builder,
    q: Value,
    k: Value,
    v: Value,
    bias: Bias,
    *,
    scale: float,
    softcap: float = 0.0,
    precision: DType | None = None,
) -> Scores:
    """Return softmax(scale q kᵀ + bias) v, where heads of k and v may serve several neighbouring heads of q each.

    Raises:
        Refusal: the shapes do not fit together.
    """
    batch, heads, length, _ = q.type.shape
    groups, keys = k.type.shape[1:3]
    if v.type.shape[1:3] != (groups, keys) or not groups or heads % groups:
        raise Refusal(f"{heads} heads of queries do not divide among {k.type} and {v.type}")
    dtype = q.type.dtype
    # A 16-bit product could overflow before it is scaled.
    early = dtype is DType.F16
    if scale < 0 or softcap < 0:
        raise Refusal("what runtimes make of a negative scale or cap differs")
    root = math.sqrt(scale)
    left = build.mul(q, root) if early else q
    right = build.transpose(build.mul(k, root) if early else k, (0, 1, 3, 2))
    # Heads that share keys are rows of one product.
    rows = (heads // groups) * length
    product = build.matmul(build.reshape(left, (batch, groups, rows, q.type.shape[3])), right)
    product = build.reshape(product, (batch, heads, length, keys))
    raw = build.wide(product if early or scale == 1 else build.mul(product, scale))
    capped = build.mul(build.elementwise("tanh", build.div(raw, softcap)), softcap) if softcap > 0 else raw
    added = _summed(build, bias, capped.type.dtype)
    biased = capped if added is None else build.add(capped, added)
    probable = _softmax(build, biased, precision)
    if bias.may_be_empty and added is not None:
        empty = build.elementwise("equal", build.reduce("max", added, (added.type.rank - 1,)), -_INF)
        probable = build.where(empty, 0, probable)
    probable = build.cast(probable, dtype)
    result = build.matmul(build.reshape(probable, (batch, groups, rows, keys)), v)
    result = build.reshape(result, (batch, heads, length, v.type.shape[3]))
    raw, capped, biased = (build.cast(stage, dtype) for stage in (raw, capped, biased))
    return Scores(raw, capped, biased, probable, result)


def _summed(build: Builder, bias: Bias, dtype: DType) -> Value | None:
    added = None if bias.added is None else build.cast(bias.added, dtype)
    if bias.allowed is None:
        return added
    barred = build.where(bias.allowed, build.literal(0, dtype), build.literal(-_INF, dtype))
    return barred if added is None else build.add(barred, added)


def _softmax(build: Builder, x: Value, precision: DType | None) -> Value:
    wide = build.wide(x if precision is None else build.cast(x, precision))
    axes = (x.type.rank - 1,)
    exponential = build.elementwise("exp", build.sub(wide, build.reduce("max", wide, axes)))
    result = build.div(exponential, build.reduce("sum", exponential, axes))
    return result if precision is None else build.cast(result, precision)


def _precision(op: OperatorView) -> DType | None:
    number = op.integer("softmax_precision", 0)
    found = DType.from_onnx(number)
    if number and (found is None or not found.is_float):
        raise Refusal("its softmax is computed in a type that is not supported")
    return found


def _exposed(op: OperatorView, scores: Scores, bias: Bias) -> Value | None:
    mode = op.integer("qk_matmul_output_mode", _RAW)
    if not op.wants(3):
        return None
    stages = {_RAW: scores.raw, _CAPPED: scores.capped, _BIASED: scores.biased, _PROBABLE: scores.probable}
    if mode not in stages:
        raise Refusal(f"the mode {mode} of its scores is not known")
    if mode == _BIASED and bias.allowed is not None:
        raise Refusal("the scores of keys that are not seen differ between runtimes")
    return stages[mode]


def _read_bias(op: OperatorView, build: Builder, q: Value, k: Value, past: int) -> Bias:
    """Return what the mask, the causal order, the window and the number of valid keys say together."""
    mask = op.optional(3)
    filled = op.optional(6)
    queries, keys = q.type.shape[2], k.type.shape[2]
    left, right = op.integer("left_window_size", -1), op.integer("right_window_size", -1)
    if op.integer("is_causal", 0):
        right = _CAUSAL_END
    allowed = []
    if left >= 0 or right >= 0:
        allowed += _window(
            build, queries, keys, left, right, past if filled is None else _offset(build, filled, queries)
        )
    if filled is not None:
        ends = build.reshape(filled, (q.type.shape[0], 1, 1, 1))
        allowed.append(build.elementwise("less", _iota(build, (1, keys)), ends))
    added = None
    if mask is not None:
        mask = _padded(build, mask, keys)
        if mask.type.dtype is DType.BOOL:
            allowed.append(mask)
        elif mask.type.dtype is q.type.dtype:
            added = mask
        else:
            raise Refusal(f"its mask {mask.type} is neither bool nor of the type of the queries")
    known = mask is None and filled is None
    together = reduce(lambda x, y: build.elementwise("and", x, y), allowed) if allowed else None
    return Bias(together, added, not known or _some_see_nothing(queries, keys, left, right, past))


def _window(build: Builder, queries: int, keys: int, left: int, right: int, offset: Value | int) -> list[Value]:
    """Return the bounds position - left <= key <= position + right, where position is offset + query."""
    position = _iota(build, (queries, 1), offset if isinstance(offset, int) else 0)
    position = build.add(position, offset) if isinstance(offset, Value) else position
    key = _iota(build, (1, keys))
    bounds = []
    if left >= 0:
        bounds.append(build.elementwise("greater_equal", key, build.sub(position, left)))
    if right >= 0:
        bounds.append(build.elementwise("less_equal", key, build.add(position, right) if right else position))
    return bounds


def _offset(build: Builder, filled: Value, queries: int) -> Value:
    """Return, for each sample, the number of valid keys before the first query."""
    return build.reshape(build.sub(filled, queries), (filled.type.elements, 1, 1, 1))


def _iota(build: Builder, shape: tuple[int, int], start: int = 0) -> Value:
    return build.constant(np.arange(start, start + max(shape), dtype=np.int64).reshape(shape), "position")


def _padded(build: Builder, mask: Value, keys: int) -> Value:
    """Return a mask for all keys: none that it does not mention is seen."""
    rank = mask.type.rank
    if not 1 <= rank <= 4 or mask.type.shape[-1] > keys:
        raise Refusal(f"its mask {mask.type} is not for {keys} keys")
    rest = keys - mask.type.shape[-1]
    return build.pad(mask, (0,) * rank, (0,) * (rank - 1) + (rest,), 0 if mask.type.dtype is DType.BOOL else -_INF)


def _some_see_nothing(queries: int, keys: int, left: int, right: int, past: int) -> bool:
    for position in range(past, past + queries):
        first = max(0, position - left) if left >= 0 else 0
        last = min(keys - 1, position + right) if right >= 0 else keys - 1
        if first > last:
            return True
    return False
