"""Random graphs that the rules of the algebra apply to, one function for each rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from korch_cli.core.types import Array


@dataclass(slots=True)
class Sketch:
    """A graph while it is drawn; inputs and constants have one element type."""

    rng: np.random.Generator
    dtype: Any = np.float32
    opset: int = 17
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    count: int = 0

    def input(self, *shape: int) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = shape
        return name

    def constant(self, value: Any, dtype: Any = None) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, self.dtype if dtype is None else dtype)
        return name

    def weights(self, *shape: int) -> str:
        return self.constant(self.rng.standard_normal(shape) / math.sqrt(max(math.prod(shape[1:]), 1)))

    def integers(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def add(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        names = [f"t{self.count + i}" for i in range(outputs)]
        self.count += outputs
        self.nodes.append(helper.make_node(op_type, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def either(self, op_type: str, left: str, right: str) -> str:
        pair = (left, right) if self.rng.integers(2) else (right, left)
        return str(self.add(op_type, *pair))

    def extent(self, low: int = 1, high: int = 6) -> int:
        return int(self.rng.integers(low, high + 1))

    def proto(self, wide: bool = False) -> onnx.ModelProto:
        """Return the model; with `wide`, in float64."""
        element = np.dtype(np.float64 if wide else self.dtype)
        number = helper.np_dtype_to_tensor_dtype(element)
        floats = {n: a.astype(element) if a.dtype.kind == "f" else a for n, a in self.constants.items()}
        graph = helper.make_graph(
            self.nodes,
            "sketch",
            [helper.make_tensor_value_info(name, number, shape) for name, shape in self.inputs.items()],
            [helper.make_tensor_value_info(name, number, None) for name in self.outputs],
            [numpy_helper.from_array(array, name) for name, array in floats.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


Draw = Callable[[Sketch], str]
SKETCHES: dict[str, tuple[Draw, ...]] = {}


def sketch(rule: str) -> Callable[[Draw], Draw]:
    """Enter a function that draws what a rule, named by its function, applies to, and returns the result's name."""

    def enter(draw: Draw) -> Draw:
        SKETCHES[rule] = (*SKETCHES.get(rule, ()), draw)
        return draw

    return enter


@sketch("raise_hard_sigmoids")
def hard_swish(s: Sketch) -> str:
    x = s.input(s.extent(), s.extent(), s.extent())
    clipped = s.add("Clip", s.either("Add", x, s.constant(3)), s.constant(0), s.constant(6))
    if s.rng.integers(2):
        return str(s.add("Div", s.either("Mul", x, clipped), s.constant(6)))
    return str(s.add("Div", clipped, s.constant([6])))


def _raised_erf(s: Sketch, x: str) -> str:
    inner = s.add("Div", x, s.constant(math.sqrt(2))) if s.rng.integers(2) else s.either("Mul", x, s.constant(0.5**0.5))
    return s.either("Add", s.add("Erf", inner), s.constant(1))


def _halved(s: Sketch, x: str, raised: str) -> str:
    match s.rng.integers(4):
        case 0:
            return s.either("Mul", s.either("Mul", x, s.constant(0.5)), raised)
        case 1:
            return s.either("Mul", s.either("Mul", x, raised), s.constant(0.5))
        case 2:
            return s.either("Mul", x, s.either("Mul", raised, s.constant(0.5)))
    return str(s.add("Div", s.either("Mul", x, raised), s.constant(2)))


@sketch("raise_gelu")
def gelu(s: Sketch) -> str:
    x = s.add("Neg", s.input(s.extent(), s.extent(), 7))
    return _halved(s, x, _raised_erf(s, x))


@sketch("raise_gelu")
def gelu_of_onnx(s: Sketch) -> str:
    s.opset = 20
    x = s.input(s.extent(), 5)
    return _halved(s, x, _raised_erf(s, x))


@sketch("rewrite_mish")
def mish(s: Sketch) -> str:
    x = s.add("Mul", s.input(s.extent(), s.extent(), 9), s.constant(30))
    return s.either("Mul", x, s.add("Tanh", s.add("Softplus", x)))


@sketch("rewrite_mish")
def mish_by_logarithm(s: Sketch) -> str:
    s.dtype = [np.float32, np.float64][s.rng.integers(2)]
    x = s.input(s.extent(), 9)
    soft = s.add("Log", s.either("Add", s.constant(1), s.add("Exp", x)))
    return s.either("Mul", x, s.add("Tanh", soft))


@sketch("rewrite_mish")
def mish_of_onnx(s: Sketch) -> str:
    s.opset = 18
    return str(s.add("Mish", s.input(s.extent(), 9)))


@sketch("raise_attention")
def attention(s: Sketch) -> str:
    batch, heads, width, depth = s.extent(1, 3), s.extent(1, 4), s.extent(1, 5), s.extent(1, 5)
    queries, keys = s.extent(1, 7), s.extent(1, 9)

    def apart(length: int, each: int) -> str:
        x = s.input(batch, length, heads * each)
        split = s.add("Reshape", x, s.integers(batch, length, heads, each))
        return str(s.add("Transpose", split, perm=[0, 2, 1, 3]))

    q, k, v = apart(queries, width), apart(keys, width), apart(keys, depth)
    match s.rng.integers(3):
        case 0:
            k = s.add("Transpose", k, perm=[0, 1, 3, 2])
        case 1:
            flat = s.add("Transpose", s.add("Reshape", k, s.integers(-1, keys, width)), perm=[0, 2, 1])
            k = s.add("Reshape", flat, s.integers(batch, heads, width, keys))
            q, k = s.add("Mul", q, s.constant(0.7)), s.add("Mul", k, s.constant(0.7))
        case _:
            x = s.input(batch, keys, heads * width)
            split = s.add("Reshape", x, s.integers(batch, keys, heads, width))
            k = s.add("Transpose", split, perm=[0, 2, 3, 1])
    scores = s.add("MatMul", q, k)
    if s.rng.integers(2):
        scores = s.add("Div", scores, s.constant(math.sqrt(width)))
    if s.rng.integers(2):
        mask = s.rng.choice([0.0, -1e4], (s.rng.choice([1, batch]), 1, s.rng.choice([1, queries]), keys))
        mask[..., 0] = 0
        scores = s.either("Add", scores, s.constant(mask))
    mixed = s.add("MatMul", s.add("Softmax", scores, axis=-1), v)
    joined = s.add("Transpose", mixed, perm=[0, 2, 1, 3])
    rows = [batch * queries] if s.rng.integers(2) else [batch, queries]
    return str(s.add("Reshape", joined, s.integers(*rows, heads * depth)))


def _enlarged(s: Sketch, x: str, shape: tuple[int, int, int, int]) -> str:
    mode = ["nearest", "linear", "cubic"][s.rng.integers(3)]
    how = (
        "asymmetric" if mode == "nearest" else ["half_pixel", "align_corners", "pytorch_half_pixel"][s.rng.integers(3)]
    )
    more: dict[str, Any] = {"nearest_mode": "floor"} if mode == "nearest" else {}
    sizes = s.integers(*shape)
    return str(s.add("Resize", x, "", "", sizes, mode=mode, coordinate_transformation_mode=how, **more))


@sketch("convolve_before_resize")
def resized_concat(s: Sketch) -> str:
    batch, height, width = s.extent(1, 2), s.extent(1, 3), s.extent(2, 4)
    channels = [s.extent(4, 8) for _ in range(s.extent(2, 3))]
    larger = (2 * height, 3 * width)
    parts = [_enlarged(s, s.input(batch, channels[0], height, width), (batch, channels[0], *larger))]
    parts += [s.input(batch, 1, *larger) for _ in channels[1:]]
    s.rng.shuffle(parts)
    total = channels[0] + len(channels) - 1
    joined = s.add("Concat", *parts, axis=1)
    bias = [s.weights(5)] if s.rng.integers(2) else []
    return str(s.add("Conv", joined, s.weights(5, total, 1, 1), *bias, kernel_shape=[1, 1]))


@sketch("convolve_before_resize")
def resized_alone(s: Sketch) -> str:
    batch, channels, height, width = (s.extent(1, 4) for _ in range(4))
    larger = _enlarged(s, s.input(batch, channels, height, width), (batch, channels, 2 * height, 2 * width))
    return str(s.add("Conv", larger, s.weights(3, channels, 1, 1), s.weights(3), kernel_shape=[1, 1]))


@sketch("compose")
def product_then_convolution(s: Sketch) -> str:
    batch, height, width, inputs, outputs = (s.extent(1, 4) for _ in range(5))
    middle = 4 * max(inputs, outputs)
    x = s.input(batch, height * width, inputs)
    y = s.add("MatMul", x, s.weights(inputs, middle))
    y = s.either("Add", y, s.weights(middle)) if s.rng.integers(2) else y
    image = s.add("Reshape", s.add("Transpose", y, perm=[0, 2, 1]), s.integers(batch, middle, height, width))
    return str(s.add("Conv", image, s.weights(outputs, middle, 1, 1), s.weights(outputs), kernel_shape=[1, 1]))


@sketch("compose")
def convolution_then_product(s: Sketch) -> str:
    batch, height, width, inputs, outputs = (s.extent(1, 4) for _ in range(5))
    middle = 4 * max(inputs, outputs)
    image = s.input(batch, inputs, height, width)
    y = s.add("Conv", image, s.weights(middle, inputs, 1, 1), s.weights(middle), kernel_shape=[1, 1])
    rows = s.add("Transpose", s.add("Reshape", y, s.integers(batch, middle, -1)), perm=[0, 2, 1])
    return s.either("Add", s.add("MatMul", rows, s.weights(middle, outputs)), s.weights(outputs))


@sketch("compose")
def two_convolutions(s: Sketch) -> str:
    batch, height, width, inputs, outputs = (s.extent(1, 4) for _ in range(5))
    middle = 4 * max(inputs, outputs)
    image = s.input(batch, inputs, height, width)
    y = s.add("Conv", image, s.weights(middle, inputs, 1, 1), kernel_shape=[1, 1])
    return str(s.add("Conv", y, s.weights(outputs, middle, 1, 1), s.weights(outputs), kernel_shape=[1, 1]))


@sketch("transpose_regions")
def linear_attention(s: Sketch) -> str:
    return attention_over(s, width=s.extent(2, 4), length=s.extent(2, 7))


@sketch("transpose_regions")
def long_linear_attention(s: Sketch) -> str:
    return attention_over(s, width=16, length=s.extent(600, 1100))


def attention_over(s: Sketch, width: int, length: int) -> str:
    batch, heads = s.extent(1, 2), s.extent(1, 3)
    x = s.add("Transpose", s.input(batch, heads, 3 * width, length), perm=[0, 1, 3, 2])
    q, k, v = s.add("Split", x, s.integers(width, width, width), outputs=3, axis=-1)
    q, k = s.add("Relu", q), s.add("Relu", k)
    padded = s.add("Pad", v, s.integers(0, 0, 0, 0, 0, 0, 0, 1), s.constant(1))
    context = s.add("MatMul", s.add("Transpose", k, perm=[0, 1, 3, 2]), padded)
    mixed = s.add("MatMul", q, context)
    above = s.add("Slice", mixed, s.integers(0), s.integers(-1), s.integers(3), s.integers(1))
    below = s.add("Slice", mixed, s.integers(-1), s.integers(1 << 62), s.integers(3))
    ratio = s.add("Div", above, s.either("Add", below, s.constant(0.1)))
    return str(s.add("Transpose", ratio, perm=[0, 1, 3, 2]))


@sketch("transpose_regions")
def transposed_product(s: Sketch) -> str:
    batch, rows, inner, columns = s.extent(1, 3), s.extent(2, 5), s.extent(2, 5), s.extent(2, 5)
    left = s.add("Transpose", s.input(batch, inner, rows), perm=[0, 2, 1])
    right = s.add("Transpose", s.input(batch, columns, inner), perm=[0, 2, 1])
    y = s.add("Mul", s.add("MatMul", left, right), s.weights(1, rows, 1))
    return str(s.add("Transpose", s.add("Tanh", y), perm=[0, 2, 1]))


@sketch("add_to_gate")
def gated_sum(s: Sketch) -> str:
    batch, channels, height, width = s.extent(1, 2), s.extent(), s.extent(2, 5), s.extent(2, 5)
    x = s.input(batch, channels, height, width)
    gate = s.add("Sigmoid", s.add("GlobalAveragePool", x))
    return s.either("Add", x, s.either("Mul", x, gate))


@sketch("normalize_affine_maps")
def shifted_between_convolutions(s: Sketch) -> str:
    batch, channels, height, width = s.extent(1, 2), s.extent(), s.extent(3, 6), s.extent(3, 6)
    y = s.add("Conv", s.input(batch, 3, height, width), s.weights(channels, 3, 1, 1))
    y = s.add("Relu", y)
    shift = s.weights(1) if s.rng.integers(2) else s.weights(channels, 1, 1)
    y = s.either("Add", y, shift) if s.rng.integers(2) else s.add("Sub", y, shift)
    return str(s.add("Conv", y, s.weights(2, channels, 3, 3), pads=[1, 1, 1, 1]))


@sketch("normalize_affine_maps")
def scaled_and_shifted_between_convolutions(s: Sketch) -> str:
    batch, channels, height, width = s.extent(1, 2), s.extent(), s.extent(3, 6), s.extent(3, 6)
    y = s.add("Conv", s.input(batch, 3, height, width), s.weights(channels, 3, 1, 1))
    y = s.either("Mul", y, s.add("HardSigmoid", y))
    scale = s.constant([1.7]) if s.rng.integers(2) else s.weights(channels, 1, 1)
    y = s.either("Mul", y, scale) if s.rng.integers(2) else s.add("Div", y, scale)
    y = s.either("Add", y, s.weights(1)) if s.rng.integers(2) else s.add("Sub", s.constant(0.3), y)
    return str(s.add("Conv", y, s.weights(2, channels, 3, 3), pads=[1, 1, 1, 1]))


@sketch("split_convolutions")
def split_convolution(s: Sketch) -> str:
    s.opset = int(s.rng.choice([11, 13, 17, 18]))
    batch, channels, height, width = s.extent(1, 2), s.extent(), s.extent(3, 6), s.extent(3, 6)
    sizes = [16 * s.extent(1, 2) for _ in range(s.extent(2, 3))]
    x = s.input(batch, channels, height, width)
    bias = [s.weights(sum(sizes))] if s.rng.integers(2) else []
    y = s.add("Conv", x, s.weights(sum(sizes), channels, 3, 3), *bias, pads=[1, 1, 0, 2], strides=[1, 2])
    match s.rng.integers(3):
        case 0:
            y = s.either("Mul", y, s.add("Sigmoid", y))
        case 1:
            y = s.add("Relu", s.add("LeakyRelu", y, alpha=0.3))
    parts = _split(s, y, sizes)
    last = s.add("Conv", parts[-1], s.weights(16, sizes[-1], 1, 1))
    return str(s.add("Concat", *parts, last, axis=1))


def _split(s: Sketch, x: str, sizes: list[int]) -> list[str]:
    if s.opset < 13:
        return list(s.add("Split", x, outputs=len(sizes), axis=1, split=sizes))
    return list(s.add("Split", x, s.integers(*sizes), outputs=len(sizes), axis=1))


@sketch("transpose_images")
def from_image(s: Sketch) -> str:
    batch, channels, height, width = s.extent(1, 2), s.extent(), s.extent(), s.extent()
    y = s.add("Conv", s.input(batch, 3, height, width), s.weights(channels, 3, 1, 1))
    return str(s.add("Transpose", s.add("Reshape", y, s.integers(batch, channels, -1)), perm=[0, 2, 1]))


@sketch("transpose_images")
def to_image(s: Sketch) -> str:
    batch, channels, height, width = s.extent(1, 2), s.extent(), s.extent(), s.extent()
    rows = s.add("Transpose", s.input(batch, height * width, channels), perm=[0, 2, 1])
    image = s.add("Reshape", rows, s.integers(batch, channels, height, width))
    return str(s.add("Conv", image, s.weights(2, channels, 1, 1)))


@sketch("fold_affine_maps")
def affine_behind(s: Sketch) -> str:
    batch, channels, height, width = (s.extent(1, 4) for _ in range(4))
    y = s.add("Conv", s.input(batch, 3, height, width), s.weights(channels, 3, 1, 1))
    return s.either("Add", s.either("Mul", y, s.weights(channels, 1, 1)), s.weights(1))


@sketch("sum_in_front_of_normalization")
def residual_normalization(s: Sketch) -> str:
    shape = [s.extent() for _ in range(s.extent(1, 2))]
    width = s.extent(2, 9)
    x = s.either("Add", s.input(*shape, width), s.add("Tanh", s.input(*shape, width)))
    bias = [s.weights(width)] if s.rng.integers(2) else []
    return str(s.add("LayerNormalization", x, s.weights(width), *bias, axis=-1, epsilon=1e-3))


@sketch("drop_softmax_guards")
def guarded_softmax(s: Sketch) -> str:
    batch, queries, keys, width = s.extent(1, 3), s.extent(1, 5), s.extent(1, 5), s.extent(1, 4)
    x = s.add("MatMul", s.input(batch, queries, width), s.input(batch, width, keys))
    x = s.either("Mul", x, s.constant(0.7)) if s.rng.integers(2) else x
    if s.rng.integers(2):
        seen = s.rng.choice([False, True], (queries, keys))
        seen[np.arange(queries), s.rng.integers(0, keys, queries)] = True
        barred = [s.constant(0), s.constant(-np.inf)]
        mask = s.add("Where", s.constant(seen, np.bool_), *barred) if s.rng.integers(2) else None
        x = s.either("Add", x, mask or s.constant(np.where(seen, 0, -np.inf)))
    y = s.add("Softmax", x, axis=-1)
    guarded = s.add("Where", s.add("IsNaN", y), s.constant(0), y)
    return str(s.add("MatMul", guarded, s.input(batch, keys, width)))
