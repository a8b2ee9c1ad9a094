"""How exactly operators are defined: what ONNX Runtime's own result is worth, in units in the last place."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx

from korch_cli.core.types import Array
from tests.fuzz.normalization import NORMALIZERS, enlargement, normalized
from tests.fuzz.running import dtype_of, float_limits

ULPS = 8
_F32_EPSILON = 2.0**-23


def _named(*names: str) -> frozenset[str]:
    return frozenset(" ".join(names).split())


_EXACT = _named(
    "Abs Neg Sign Relu Ceil Floor Round Max Min Clip Identity Dropout Where Cast CastLike ReduceMax ReduceMin MaxPool",
    "GlobalMaxPool TopK Transpose Reshape Flatten Squeeze Unsqueeze Slice Pad Concat Split Gather GatherElements",
    "GatherND ScatterElements Tile Expand DepthToSpace SpaceToDepth Trilu EyeLike Constant ConstantOfShape OneHot",
    "Shape Compress NonZero Unique Hardmax",
)
"""There is one right result."""
_SUMMING = _named(
    "ReduceSum ReduceMean ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare GlobalAveragePool"
)
"""Sums of all that is given."""
_ROUNDING = 0.0625
"""How many units in the last place each term moves a sum by; a quarter, with the judge's factor, as sums grow."""
_NEVER_SMALLER = _named("Add Sub Sum")
"""What is left of a difference is a number that its operands' type holds."""
_SNAPPING = _named("Sign Ceil Floor Round EyeLike ConstantOfShape OneHot Shape NonZero Hardmax")
"""What they give is right to the last digit, however uncertain the operand is."""
ACCUMULATING = _named(
    "ReduceSum ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare Softmax LogSoftmax",
    "LayerNormalization RMSNormalization SimplifiedLayerNormalization SkipLayerNormalization BatchNormalization LRN",
    "InstanceNormalization GroupNormalization MeanVarianceNormalization LpNormalization MatMul FusedMatMul Gemm Einsum",
    "Conv ConvTranspose AveragePool GlobalAveragePool LpPool GlobalLpPool CumSum Sum Mean Resize Upsample Loop Scan",
)
"""Sums and products of many numbers, in an order that is not said: an error may be large beside a small result."""
_ABSOLUTE = _named(
    "Sigmoid Tanh Erf Softmax LogSoftmax Elu Celu Selu Mish Gelu QuickGelu FastGelu BiasGelu Softplus Swish HardSwish",
    "Sin Cos Tan Sinh Asinh Atanh Acosh Acos Log ReduceLogSumExp ReduceLogSum GroupNormalization InstanceNormalization",
    "LayerNormalization BatchNormalization MeanVarianceNormalization Mod Shrink HardSigmoid",
)
"""They cancel or clamp inside: ONNX Runtime is right up to a few epsilons of 1, however small the result."""
SINGLE = _named(
    "Gelu FastGelu QuickGelu BiasGelu Shrink Elu Celu Selu HardSigmoid HardSwish LeakyRelu ThresholdedRelu Swish LRN",
)
"""They have float attributes or constants, and ONNX Runtime rounds to single precision in them, float64 too."""


@dataclass(frozen=True)
class Slack:
    """How far a result may be off, in epsilons beside those of its own size.

    Attributes:
        absolute: epsilons of 1.
        least_epsilon: what an epsilon is at least.
    """

    absolute: float
    least_epsilon: float


_RELATIVE = Slack(0.0, 0.0)


@dataclass(frozen=True)
class Noise:
    """Moves numbers by up to `ULPS` units in the last place; `direction` is 1 or -1.

    All go the same way if there is no `rng`, else up or down at random, and by half of that at least. `plain` is what
    the tensors are without. Then each node also reads a rounded number in its own way: other programs compute it again
    for each, or leave out a rounding to sixteen bits for some. `slack` says of such tensors how.
    """

    plain: Mapping[str, Array]
    rng: np.random.Generator | None
    direction: float
    slack: dict[str, Slack] = field(default_factory=dict)

    def on_operand(self, node: onnx.NodeProto, name: str, array: Array) -> Array:
        """Move an operand that is rounded, or one of many numbers that are added up, unless it decides on extents."""
        if node.op_type in ("Resize", "Upsample") and name != node.input[0]:
            return array
        if self.rng is not None and name in self.slack:
            array = self._moved(array, self.slack[name])
        plain = self.plain[name]
        if node.op_type not in ACCUMULATING or array.size <= 1 or array.shape != plain.shape:
            return array
        # What has been moved stays as it is: a second time might take it back.
        growth = self._growth(node) if node.op_type in _SUMMING else 1.0
        return np.where(array == plain, self._moved(array, growth=growth), array)

    def on_result(self, node: onnx.NodeProto, name: str, array: Array, operands: Mapping[str, Array]) -> Array:
        """Move a result by as much as it may differ between correct programs."""
        done = frozenset(_operators(node))
        slacks = [self.slack[n] for n in operands if n in self.slack and not done & _SNAPPING]
        narrowing = _is_narrowing(node, array, operands)
        if narrowing or not done <= _EXACT:
            slacks.append(Slack(1.0 if done & _ABSOLUTE else 0.0, _F32_EPSILON if done & SINGLE else 0.0))
        if slacks:
            self.slack[name] = Slack(max(s.absolute for s in slacks), max(s.least_epsilon for s in slacks))
        if narrowing:
            # ONNX Runtime may leave this rounding out; then zeros are tiny numbers.
            return self._moved(array, among_zeros=operands[node.input[0]] != 0)
        lost = self._growth(node) * enlargement(node, operands) if node.op_type in NORMALIZERS else 0.0
        if done <= _EXACT:
            return array
        return self._moved(array, slacks[-1], lost=lost, among_zeros=_may_vanish(node, array, operands))

    def _growth(self, node: onnx.NodeProto) -> float:
        """How many times `ULPS` the errors of one long sum may be: each term may be rounded away from zero.

        Sums of numbers of sixteen bits are in float32.
        """
        x = self.plain[node.input[0]]
        if not dtype_of(x).is_float or x.dtype.itemsize == 2 or not x.size:
            return 1.0
        if node.op_type in NORMALIZERS:
            numbers, axes = normalized(node, self.plain)
            terms = math.prod(numbers.shape[axis] for axis in axes)
        else:
            terms = x.size // max(1, self.plain[node.output[0]].size)
        return float(max(1.0, terms * _ROUNDING / ULPS))

    def _moved(
        self,
        array: Array,
        slack: Slack = _RELATIVE,
        *,
        lost: Array | float = 0.0,
        growth: float = 1.0,
        among_zeros: Array | bool = False,
    ) -> Array:
        """Move numbers by `growth` times `ULPS` units in the last place of their size, `slack` and `lost` together."""
        dtype = dtype_of(array)
        if not dtype.is_float:
            return array
        epsilon = self.direction * growth * ULPS * max(slack.least_epsilon, float_limits(dtype).epsilon)
        with np.errstate(all="ignore"):
            step = np.full(array.shape, epsilon)
            if self.rng is not None:
                step *= self.rng.uniform(0.5, 1.0, array.shape) * self.rng.choice((-1.0, 1.0), array.shape)
            wide = array.astype(np.float64)
            # The places of numbers that are not normal are those of the smallest one that is.
            size = np.where(
                (wide == 0) & ~np.asarray(among_zeros), 0.0, np.maximum(np.abs(wide), float_limits(dtype).tiny)
            )
            moved = np.where(np.isfinite(wide), wide + step * (size + slack.absolute + lost), wide)
            return np.asarray(moved).astype(dtype.numpy)


@dataclass(frozen=True)
class Zeros:
    """Makes zeros of what may be zero: numbers that earlier runs had on both sides of it.

    Quotients of them, and functions that jump there, are as uncertain as that. So are comparisons for equality, by the
    difference of their operands: no noise makes them equal.
    """

    uncertain: Mapping[str, Array]

    def on_operand(self, _node: onnx.NodeProto, _name: str, array: Array) -> Array:
        """Return an operand as it is."""
        return array

    def on_result(self, _node: onnx.NodeProto, name: str, array: Array, _operands: Mapping[str, Array]) -> Array:
        """Replace what may be zero by it, and a comparison of what may be equal by true."""
        mask = self.uncertain.get(name)
        if mask is None or mask.shape != array.shape:
            return array
        return np.where(mask, array.dtype.type(array.dtype == np.bool_), array)


def differences(model: onnx.ModelProto, values: Mapping[str, Array]) -> dict[str, Array]:
    """Return the difference of the operands of each comparison for equality of floats, by the name of its result."""
    with np.errstate(all="ignore"):
        return {
            node.output[0]: values[node.input[0]].astype(np.float64) - values[node.input[1]]
            for node in model.graph.node
            if node.op_type == "Equal" and dtype_of(values[node.input[0]]).is_float
        }


@dataclass
class Signs:
    """Which numbers of each tensor were above zero, and which below, in some run."""

    above: dict[str, Array] = field(default_factory=dict)
    below: dict[str, Array] = field(default_factory=dict)

    def note(self, values: Mapping[str, Array]) -> None:
        """Take in one run; tensors whose shape differs between runs are left out."""
        for name, array in values.items():
            if dtype_of(array).is_float:
                for found, now in ((self.above, array > 0), (self.below, array < 0)):
                    earlier = found.get(name, now)
                    found[name] = earlier | now if earlier.shape == now.shape else np.zeros(now.shape, np.bool_)

    def uncertain(self) -> dict[str, Array]:
        """Return where numbers were on both sides."""
        masks = {name: above & self.below[name] for name, above in self.above.items()}
        return {name: mask for name, mask in masks.items() if mask.any()}


def _is_narrowing(node: onnx.NodeProto, result: Array, operands: Mapping[str, Array]) -> bool:
    """Whether a node rounds floats to sixteen bits."""
    if node.op_type not in ("Cast", "CastLike") or not dtype_of(result).is_float:
        return False
    operand = operands[node.input[0]]
    return dtype_of(operand).is_float and result.dtype.itemsize == 2 < operand.dtype.itemsize


def _may_vanish(node: onnx.NodeProto, result: Array, operands: Mapping[str, Array]) -> Array | bool:
    """Where a zero of sixteen bits may be a number too small for them: ONNX Runtime may leave the rounding out."""
    if result.dtype.itemsize != 2 or not dtype_of(result).is_float or node.op_type in _NEVER_SMALLER:
        return False
    given = [array != 0 for array in operands.values() if dtype_of(array).is_float]
    try:
        return np.broadcast_to(np.logical_and.reduce(np.broadcast_arrays(*given)), result.shape)
    except ValueError:
        return all(array.any() for array in given)


def _operators(node: onnx.NodeProto) -> Iterator[str]:
    """The operator of a node, and those in its subgraphs."""
    yield node.op_type
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            for inner in body.node:
                yield from _operators(inner)
