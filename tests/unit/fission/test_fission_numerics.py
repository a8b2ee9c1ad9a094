"""How exact the primitives are that operators are split into."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from operator_case import (  # type: ignore[import-not-found]
    Case,
    case,
    fixed,
    interpreted,
    judged,
    rng,
    split,
)

from korch_cli.core.types import Array, DType


def _computed(each: Case, *results: Array) -> list[Array]:
    graph = split(each.proto(list(results)))
    assert not graph.refusals
    return list(interpreted(graph, each.feeds()))


def _offset(*shape: int) -> Array:
    return np.asarray(1e4 + rng("offset").standard_normal(shape), np.float32)


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
def test_rows_without_any_finite_number_give_what_the_runtime_gives(op_type: str) -> None:
    x = np.full((2, 4), -np.inf, np.float32)
    x[1] = [0, 1, -np.inf, 2]
    each = replace(case(op_type, x), version=13)
    (expected,) = judged(each)
    np.testing.assert_allclose(_computed(each, x)[0], expected, rtol=1e-6, atol=1e-6)
    assert np.isnan(expected[0]).all()
    assert not np.isnan(expected[1]).any()


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "ReduceLogSumExp"])
def test_large_numbers_do_not_overflow(op_type: str) -> None:
    x = np.array([[1e4, 1e4 - 1, -1e4], [88.8, 89, 90], [-1e30, 0, 1e30]], np.float32)
    attributes = {"axes": [1]} if op_type.startswith("Reduce") else {}
    (found,) = _computed(replace(case(op_type, x, **attributes), version=13), x[:, :1] if attributes else x)
    wide = x.astype(np.float64)
    top = wide.max(1, keepdims=True)
    logarithm = top + np.log(np.exp(wide - top).sum(1, keepdims=True))
    expected = {
        "Softmax": np.exp(wide - logarithm),
        "LogSoftmax": wide - logarithm,
        "ReduceLogSumExp": logarithm,
    }[op_type]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


_MOMENTS = [
    (case("LayerNormalization", _offset(4, 256), np.ones(256, np.float32)), 17, (1,)),
    (case("InstanceNormalization", _offset(2, 3, 16, 16), np.ones(3, np.float32), np.zeros(3, np.float32)), 17, (2, 3)),
    (
        case(
            "GroupNormalization", _offset(2, 3, 16, 16), np.ones(3, np.float32), np.zeros(3, np.float32), num_groups=3
        ),
        21,
        (2, 3),
    ),
    (case("MeanVarianceNormalization", _offset(2, 3, 16, 16), axes=[2, 3]), 13, (2, 3)),
]


@pytest.mark.parametrize(("each", "version", "axes"), _MOMENTS, ids=lambda p: p.op_type if isinstance(p, Case) else "")
def test_variances_survive_a_large_mean(each: Case, version: int, axes: tuple[int, ...]) -> None:
    x = each.inputs[0]
    wide = x.astype(np.float64)
    variance = wide.var(axes, keepdims=True)
    expected = (wide - wide.mean(axes, keepdims=True)) / np.sqrt(variance + 1e-5)
    (found,) = _computed(replace(each, version=version), x)
    # One pass over the data, E[x²] - E[x]², would lose all digits: x² is 1e8, and float32 holds it to within 8.
    np.testing.assert_allclose(found, expected, atol=2e-3)


_NARROW_REDUCTIONS = [
    ("ReduceSum", lambda x: x.sum(1)),
    ("ReduceMean", lambda x: x.mean(1)),
    ("ReduceL1", lambda x: np.abs(x).sum(1)),
    ("ReduceL2", lambda x: np.sqrt((x * x).sum(1))),
    ("ReduceSumSquare", lambda x: (x * x).sum(1)),
    ("ReduceLogSum", lambda x: np.log(x.sum(1))),
    ("ReduceLogSumExp", lambda x: np.log(np.exp(x).sum(1))),
]


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=lambda d: d.text)
@pytest.mark.parametrize(("op_type", "meaning"), _NARROW_REDUCTIONS, ids=[name for name, _ in _NARROW_REDUCTIONS])
def test_reductions_of_narrow_floats_round_once(op_type: str, meaning: object, dtype: DType) -> None:
    assert callable(meaning)
    x = np.asarray(rng("narrow").random((3, 4096)) + 0.5).astype(dtype.numpy)
    expected = np.asarray(meaning(x.astype(np.float64)))
    (found,) = _computed(replace(case(op_type, x, fixed(1), keepdims=0), version=18), expected.astype(dtype.numpy))
    # Half a unit in the last place, and a little for float32.
    digits = {DType.F16: 11, DType.BF16: 8}[dtype]
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=1.02 * 2.0**-digits)


@pytest.mark.parametrize("op_type", ["ReduceSumSquare", "ReduceL2"])
def test_squares_of_narrow_floats_do_not_underflow(op_type: str) -> None:
    x = np.full((1, 1 << 15), 1e-4, np.float16)
    total = (x.astype(np.float64) ** 2).sum(1, keepdims=True)
    expected = total if op_type == "ReduceSumSquare" else np.sqrt(total)
    (found,) = _computed(replace(case(op_type, x, axes=[1]), version=13), x[:, :1])
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=1.02 * 2.0**-11)


def test_the_mean_of_large_narrow_floats_does_not_overflow() -> None:
    x = np.full((2, 100), 60000, np.float16)
    (found,) = _computed(replace(case("ReduceMean", x, axes=[1]), version=13), x[:, :1])
    np.testing.assert_array_equal(found, x[:, :1])


@pytest.mark.parametrize("op_type", ["Elu", "Selu", "Celu", "Mish", "Gelu"])
def test_activations_of_narrow_floats_are_computed_wide(op_type: str) -> None:
    x = np.linspace(-4, 4, 201).astype(np.float16)
    each = replace(case(op_type, x), version=22)
    (expected,) = judged(replace(each, inputs=(x.astype(np.float32),)))
    (found,) = _computed(each, x)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=1.02 * 2.0**-11, atol=1e-7)
