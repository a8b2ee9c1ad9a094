"""Random inputs that a model can make sense of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from korch_cli.core.errors import UsageError
from korch_cli.core.types import Array, DType, TensorType
from korch_cli.verify.inputs import read_proto
from korch_cli.verify.usage import Use, trace_uses

_DIGITS = 10
"""Integers that nothing is known of are drawn below this."""
_HALF_PRECISION = (DType.F16, DType.BF16)
_FLOAT_DRAWS: tuple[Callable[[np.random.Generator, tuple[int, ...]], Array], ...] = (
    lambda rng, shape: rng.standard_normal(shape),
    lambda rng, shape: rng.uniform(0.0, 1.0, shape),
    lambda rng, shape: rng.uniform(-1.0, 1.0, shape),
)
"""By run, over and over; half-precision floats, which overflow easily, get a fifth of it. Larger values tell nothing:
networks are not made for them, and ONNX Runtime's own optimisations then change outputs by more than any tolerance."""
_SET_FLAGS = 0.75


def draw_inputs(
    model: Path | object,
    inputs: Sequence[tuple[str, TensorType]],
    *,
    seed: int,
    runs: int,
    given: Mapping[str, Array] | None = None,
) -> tuple[dict[str, Array], ...]:
    """Return `runs` sets of random inputs; an input's values depend on its name, the seed and the run alone.

    Floats are normal in the first run and have other scales in the next ones. Integers that select rows of a table
    stay inside it; masks are 0 and 1 with a 1 in each row; bytes have their whole range; other integers are below 10.

    Args:
        model: the ONNX file or `onnx.ModelProto` that is to be fed.
        inputs: names and types.
        seed: of the random numbers.
        runs: number of sets.
        given: inputs that are not to be drawn, the same in every set.

    Raises:
        UsageError: what is given is no input, or has another type.
    """
    given = given or {}
    _check_given(given, dict(inputs))
    if not isinstance(model, onnx.ModelProto):
        assert isinstance(model, Path)
        model = read_proto(model)
    uses = trace_uses(model)
    ways = {name: uses.of(name) for name, _ in inputs}
    return tuple(
        {
            name: given[name] if name in given else _draw(name, type_, ways[name], run, _generator(name, seed, run))
            for name, type_ in inputs
        }
        for run in range(runs)
    )


def _check_given(given: Mapping[str, Array], types: Mapping[str, TensorType]) -> None:
    for name, array in given.items():
        if name not in types:
            raise UsageError(f"the model has no input {name!r}", hint=f"its inputs are: {', '.join(types)}")
        wanted, found = types[name], DType.from_numpy(array.dtype)
        if found is not wanted.dtype or array.shape != wanted.shape:
            what = f"{array.dtype}{list(array.shape)}"
            raise UsageError(f"the array that is given for an input is {what}; the input is {wanted}", where=name)


def _generator(name: str, seed: int, run: int) -> np.random.Generator:
    return np.random.default_rng([seed & 0xFFFFFFFFFFFFFFFF, run, *name.encode()])


def _draw(name: str, type_: TensorType, use: Use, run: int, rng: np.random.Generator) -> Array:
    dtype, shape = type_.dtype, type_.shape
    if dtype is DType.STRING:
        return np.asarray(rng.choice(["", "a", "korch", "0"], shape), dtype=object).reshape(shape)
    if use.limit is not None:
        limit = min(max(1, use.limit // 2), _DIGITS) if use.shifted else use.limit
        values: Array = rng.integers(0, min(limit, _largest(dtype) + 1), shape)
    elif "mask" in name.lower():
        values = _mask(rng, shape)
    elif dtype.is_float:
        scale = 0.2 if dtype in _HALF_PRECISION else 1.0
        values = np.asarray(scale * _FLOAT_DRAWS[run % len(_FLOAT_DRAWS)](rng, shape))
    elif dtype is DType.BOOL:
        values = rng.integers(0, 2, shape)
    elif dtype.size_bytes == 1:
        # Bytes are pixels or quantised values far more often than flags, although they too are only turned into floats.
        limits = np.iinfo(dtype.numpy)
        values = rng.integers(limits.min, int(limits.max) + 1, shape)
    elif use.flags and not use.other:
        values = _mask(rng, shape)
    else:
        values = rng.integers(0, _DIGITS, shape)
    return np.asarray(values).astype(dtype.numpy)


def _mask(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return zeros and ones; the first of each row (of the last axis) is a one."""
    values: Array = np.asarray(rng.random(shape) < _SET_FLAGS).astype(np.int64)
    values[(..., slice(1)) if shape else ()] = 1
    return values


def _largest(dtype: DType) -> int:
    return int(np.iinfo(dtype.numpy).max) if dtype.is_integer else 1 << 53
