"""Results that the operators' definitions leave open, or that ONNX Runtime does not keep to: not compared, by rule.

A rule looks at a node and the inputs that it gets. Where it holds, nothing that depends on the node is compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import onnx

from korch_cli.core.types import Array, DType
from tests.fuzz.normalization import NORMALIZERS, normalized
from tests.fuzz.precision import ACCUMULATING, SINGLE, ULPS
from tests.fuzz.running import dtype_of, float_limits, reads

Rule = Callable[[onnx.NodeProto, Sequence[Array]], bool]

_RULES: dict[str, list[Rule]] = {}
_PART_OF_A_TURN = 0.05
_LARGEST_EXPONENT = 700.0


def rule(names: str) -> Callable[[Rule], Rule]:
    """Enter the decorated function as a rule of the operators `names`, which are separated by spaces."""

    def enter(function: Rule) -> Rule:
        for name in names.split():
            _RULES.setdefault(name, []).append(function)
        return function

    return enter


def undefined_tensors(model: onnx.ModelProto, values: Mapping[str, Array]) -> set[str]:
    """Return the tensors that are not to be compared when the tensors are `values`."""
    found: set[str] = set()
    for node in model.graph.node:
        read = reads(node)
        inputs = [values[name] for name in read]
        if any(name in found for name in read) or any(r(node, inputs) for r in _RULES.get(node.op_type, ())):
            found.update(node.output)
    return found


def joins_what_does_not_fit(model: onnx.ModelProto, values: Mapping[str, Array]) -> bool:
    """Whether a Concat joins tensors whose other extents differ, which ONNX Runtime does where one is empty."""
    for node in model.graph.node:
        if node.op_type == "Concat":
            shapes = [values[name].shape for name in node.input]
            (axis,) = (attribute.i % len(shapes[0]) for attribute in node.attribute if attribute.name == "axis")
            if len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) > 1:
                return True
    return False


def _floats(inputs: Sequence[Array]) -> Iterator[Array]:
    return (a.astype(np.float64) for a in inputs if dtype_of(a).is_float)


@rule(
    "Max Min ReduceMax ReduceMin MaxPool GlobalMaxPool ArgMax ArgMin TopK Clip Hardmax Unique Softmax LogSoftmax "
    "ReduceLogSumExp"
)
def _nan_by_position(_node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """Whether a NaN wins against a number depends on its position in ONNX Runtime, and on the vector unit."""
    return any(np.isnan(a).any() for a in _floats(inputs))


@rule("Sign Relu LeakyRelu ThresholdedRelu PRelu HardSigmoid HardSwish Shrink")
def _nan_in_comparisons(_node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """ONNX Runtime computes these by comparisons and maxima in which a NaN falls on either side."""
    return any(np.isnan(a).any() for a in _floats(inputs))


@rule("Cast CastLike")
def _out_of_range(node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """ONNX leaves a float open that the integer type does not hold."""
    if not dtype_of(inputs[0]).is_float:
        return False
    if node.op_type == "CastLike":
        target: DType | None = dtype_of(inputs[-1])
    else:
        target = DType.from_onnx(next(a.i for a in node.attribute if a.name == "to"))
    if target is None or not target.is_integer:
        return False
    ends, x = np.iinfo(target.numpy), inputs[0].astype(np.float64)
    return not bool(((x >= float(ends.min)) & (x < float(ends.max) + (ends.max < 2**53))).all())


@rule("Pow")
def _power_of_infinity(_node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """ONNX Runtime replaces some exponents by roots and products, which differ at -inf and -0; integers overflow."""
    x = inputs[0].astype(np.float64)
    return bool((np.isinf(x) | (x == 0)).any()) or bool((np.abs(x) > 1e4).any() and not dtype_of(inputs[0]).is_float)


@rule("LRN")
def _running_sum(node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """ONNX Runtime slides a running sum of squares over the channels, which an infinity or a NaN never leaves.

    What a large square rounds away from the small ones beside it stays away, too.
    """
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    most = 4.0 * given.get("bias", 1.0) * given["size"] / max(given.get("alpha", 1e-4), 1e-30)
    return any(not (np.abs(a) < min(1e15, math.sqrt(most))).all() for a in _floats(inputs))


@rule("ReduceProd ReduceSum ReduceMean ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp")
def _overflowing_reduction(node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """ONNX Runtime adds up and multiplies some integers as floats, which round large ones and end at the largest."""
    if dtype_of(inputs[0]).is_float or not inputs[0].size:
        return False
    size = np.abs(inputs[0].astype(np.float64))
    with np.errstate(over="ignore"):
        largest = np.maximum(size, 1.0).prod() if node.op_type == "ReduceProd" else (size * size + size).sum()
    return bool(largest > min(np.iinfo(inputs[0].dtype).max, 2**53))


@rule("ReduceProd")
def _product_out_of_range(_node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """A product that overflows or underflows on the way does so in one order and not in another."""
    if not dtype_of(inputs[0]).is_float:
        return False
    size = np.abs(inputs[0].astype(np.float64))
    exponents = np.log2(size[np.isfinite(size) & (size > 0)])
    extremes = float(exponents[exponents > 0].sum()), float(-exponents[exponents < 0].sum())
    return not np.isfinite(size).all() or max(extremes) > float_limits(dtype_of(inputs[0])).exponent - 2


@rule(
    "InstanceNormalization GroupNormalization BatchNormalization LayerNormalization RMSNormalization LpNormalization "
    "SimplifiedLayerNormalization SkipLayerNormalization MeanVarianceNormalization"
)
def _overflowing_squares(_node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """Squares overflow, and so do products with the mean, which ONNX Runtime subtracts before or after scaling."""
    return any(bool((size >= 2.0**half).any()) for size, half in _sizes(inputs))


@rule(" ".join(sorted(ACCUMULATING)))
def _overflowing_sum(_node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """Sums of finite numbers that overflow on the way do so in one order and not in another."""
    exponents = [math.log2(max(1.0, float(np.abs(a[np.isfinite(a)]).max(initial=0.0)))) for a in _floats(inputs)]
    if not exponents or not inputs[0].size:
        return False
    # Squares and products, and as many of them as there are elements.
    reach = max(2 * max(exponents), sum(exponents)) + math.log2(inputs[0].size)
    limits = float_limits(next(dtype_of(a) for a in inputs if dtype_of(a).is_float))
    return reach > limits.exponent


@rule("ReduceLogSumExp")
def _beyond_exponentials(_node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """From version 28 on ONNX writes it as a logarithm of sums of exponentials in float64, which overflow."""
    return any(bool((a[np.isfinite(a)] > _LARGEST_EXPONENT).any()) for a in _floats(inputs))


@rule("ReduceMean")
def _mean_of_nothing(_node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """ONNX leaves open what the mean of no elements is."""
    return not inputs[0].size


@rule("MaxPool GlobalMaxPool")
def _least_number(_node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """ONNX Runtime begins some maxima with the lowest finite number, which -inf does not lower."""
    return any(np.isneginf(a).any() for a in _floats(inputs))


@rule("Div Reciprocal")
def _sign_of_zero(_node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """A maximum of zeros has either sign, and with it a quotient."""
    return any((a == 0).any() for a in list(_floats(inputs))[-1:])


@rule("Sin Cos Tan")
def _angle_of_no_direction(_node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """Where a few units in the last place are a part of a turn, a few runs do not show how far the result may go."""
    return any(
        bool((np.abs(a[np.isfinite(a)]) * float_limits(dtype_of(a)).epsilon * ULPS > _PART_OF_A_TURN).any())
        for a in inputs
    )


@rule("Equal")
def _nearly_equal(_node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """Where two numbers are some units in the last place apart, other correct programs find them equal."""
    if not dtype_of(inputs[0]).is_float or len(inputs) == 1:
        return False
    a, b = _floats(inputs)
    return _near(a, b, dtype_of(inputs[0]))


@rule("Hardmax ArgMax ArgMin TopK")
def _first_by_a_hair(node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """Where two numbers are some units in the last place apart, other correct programs find the second one larger."""
    x, typed = inputs[0], dtype_of(inputs[0])
    if not typed.is_float or x.size < 2 or x.ndim == 0:
        return False
    given = {a.name: a.i for a in node.attribute}
    axis = given.get("axis", 0 if node.op_type.startswith("Arg") else -1)
    rows = [np.moveaxis(x, axis, -1)]
    if node.op_type == "Hardmax":
        # Before opset 13 everything from the axis on, which is 1 by default, is one row.
        split = given.get("axis", 1) % x.ndim
        rows.append(x.reshape(int(np.prod(x.shape[:split])), -1))
    for row in rows:
        ordered = np.sort(row.astype(np.float64), axis=-1)
        first, second = ordered[..., :-1], ordered[..., 1:]
        if node.op_type != "TopK":
            end = slice(0, 1) if node.op_type == "ArgMin" else slice(-1, None)
            first, second = first[..., end], second[..., end]
        if _near(first, second, typed):
            return True
    return False


def _near(a: Array, b: Array, typed: DType) -> bool:
    """Whether some numbers differ by so little that they may be equal or the other way round."""
    with np.errstate(invalid="ignore"):
        apart = np.abs(a - b)
    # What is float64 may be the result of an operator that ONNX Runtime computes in float32.
    epsilon = float_limits(DType.F32 if typed is DType.F64 else typed).epsilon
    near = 2 * ULPS * epsilon * (np.abs(a) + np.abs(b))
    return bool(((apart > 0) & (apart <= near)).any())


@rule("NonZero")
def _vanished(_node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """What is rounded to zero in one program is a tiny number in another."""
    return any((np.abs(a) < 2.0**-100).any() for a in _floats(inputs))


@rule("Resize Upsample")
def _weightless_infinity(_node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """Between two places ONNX Runtime multiplies by zero what is not needed, which infinities do not survive."""
    return any(not np.isfinite(a).all() for a in list(_floats(inputs))[:1])


@rule("Resize Upsample")
def _vanishing_weight(_node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """A number near the smallest is rounded to zero or not by its weights, in the order in which they apply."""
    limits = float_limits(dtype_of(inputs[0])) if dtype_of(inputs[0]).is_float else None
    return limits is not None and bool(((inputs[0] != 0) & (np.abs(inputs[0]) < limits.tiny)).any())


@rule("Softplus")
def _overflowing_exponential(_node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """ONNX Runtime has a kernel for float32 alone, and else takes the operator apart: exponential and logarithm."""
    typed = dtype_of(inputs[0])
    return typed is not DType.F32 and bool((inputs[0] > math.log(float_limits(typed).most)).any())


@rule("Softmax LogSoftmax")
def _overflowing_distance(_node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """Where the distance to the maximum overflows or is inf - inf, ONNX Runtime's float64 kernel differs."""
    most = float_limits(dtype_of(inputs[0])).most / 4
    return any(bool((a > most).any() or (np.isfinite(a) & (a < -most)).any()) for a in _floats(inputs))


@rule("LpNormalization")
def _vanishing_squares(_node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """Where squares vanish, it depends on the program whether the norm is zero."""
    return any(bool(((size > 0) & (size <= 2.0**-half)).any()) for size, half in _sizes(inputs))


def _sizes(inputs: Sequence[Array]) -> Iterator[tuple[Array, float]]:
    """Yield absolute values, and half the exponent at which their type overflows, less some for sums."""
    for a in inputs:
        if dtype_of(a).is_float:
            yield np.abs(a.astype(np.float64)), (float_limits(dtype_of(a)).exponent - 14) / 2


@rule(" ".join(sorted(SINGLE)))
def _beyond_single(_node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """ONNX Runtime computes these in float32 even where the operands are float64, which may overflow or vanish."""
    most, least = float_limits(DType.F32).most, float(np.finfo(np.float32).smallest_subnormal)
    sizes = [np.abs(a[np.isfinite(a) & (a != 0)]) for a in inputs if a.dtype == np.float64]
    return any(bool(((size > most) | (size < least)).any()) for size in sizes)


@rule("Clip")
def _absent_bound(node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """ONNX Runtime takes the largest finite number for a bound that is absent, which cuts infinities off."""
    bounds = len([name for name in node.input[1:] if name]) + len(node.attribute)
    return bounds < 2 and any(np.isinf(a).any() for a in _floats(inputs[:1]))


@rule(" ".join(NORMALIZERS))
def _nothing_but_noise(node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """What is left of one number, or of equal ones, without their mean is rounding errors, made large."""
    x, axes = normalized(node, dict(zip(reads(node), inputs, strict=True)))
    if not x.size:
        return False
    with np.errstate(all="ignore"):
        size, deviation = np.abs(x).max(axis=axes), x.std(axis=axes)
        return bool((deviation <= 4 * ULPS * float_limits(dtype_of(inputs[0])).epsilon * size)[size > 0].any())


@rule("OneHot Range")
def _indices_that_are_no_numbers(_node: onnx.NodeProto, inputs: Sequence[Array]) -> bool:
    """An index has to be a number that an integer holds."""
    return any((~np.isfinite(a) | (np.abs(a) > 2**31)).any() for a in _floats(inputs[:1]))
