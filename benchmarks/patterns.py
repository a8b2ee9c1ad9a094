"""Fused patterns at the shapes of real models: as ONNX, and as a function of torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

_HEAD = '<ir_version: 8, opset_import: ["": 18]>'


@dataclass(frozen=True, slots=True)
class Pattern:
    """A few operators that belong into one kernel.

    Attributes:
        name: unique; the shape is part of it.
        inputs: extents by name; float32.
        output: extents.
        body: nodes in ONNX's text form, from the inputs and weights to `y`.
        function: the same with torch, given the module and tensors by name.
        weights: extents of random initializers by name.
        constants: initializers with these values.
        quick: part of the quick run.
    """

    name: str
    inputs: Mapping[str, tuple[int, ...]]
    output: tuple[int, ...]
    body: str
    function: Callable[..., Any]
    weights: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    quick: bool = False

    def write(self, path: Path) -> None:
        """Write the ONNX file."""
        import onnx
        from onnx import numpy_helper, parser

        given = ", ".join(f"float[{','.join(map(str, shape))}] {name}" for name, shape in self.inputs.items())
        result = f"float[{','.join(map(str, self.output))}] y"
        model = parser.parse_model(f"{_HEAD} g ({given}) => ({result}) {{ {self.body} }}")
        for name, array in self.arrays().items():
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        onnx.checker.check_model(model)
        path.write_bytes(model.SerializeToString())

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The initializers."""
        rng = np.random.default_rng(1)
        drawn = {name: rng.uniform(0.2, 1.0, shape).astype(np.float32) for name, shape in self.weights.items()}
        return drawn | {name: np.asarray(value) for name, value in self.constants.items()}

    def feeds(self) -> dict[str, np.ndarray[Any, Any]]:
        """Random inputs."""
        rng = np.random.default_rng(0)
        return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in self.inputs.items()}

    @property
    def moved_bytes(self) -> int:
        """What a perfect kernel reads and writes, weights aside."""
        return 4 * (sum(math.prod(shape) for shape in self.inputs.values()) + math.prod(self.output))


F32 = np.float32


def _instance_norm(c: int, s: int, *, quick: bool = False) -> Pattern:
    return Pattern(
        f"InstanceNorm + ReLU, {c} x {s} x {s}",
        {"x": (1, c, s, s)},
        (1, c, s, s),
        "n = InstanceNormalization(x, scale, bias) y = Relu(n)",
        lambda t, x, scale, bias: t.relu(t.nn.functional.instance_norm(x, weight=scale, bias=bias, eps=1e-5)),
        {"scale": (c,), "bias": (c,)},
        quick=quick,
    )


def _layer_norm(rows: int, columns: int, *, quick: bool = False) -> Pattern:
    return Pattern(
        f"LayerNorm, {rows} x {columns}",
        {"x": (rows, columns)},
        (rows, columns),
        "y = LayerNormalization<axis = -1>(x, scale, bias)",
        lambda t, x, scale, bias: t.nn.functional.layer_norm(x, (columns,), scale, bias, 1e-5),
        {"scale": (columns,), "bias": (columns,)},
        quick=quick,
    )


def _masked_softmax(length: int, *, quick: bool = False) -> Pattern:
    return Pattern(
        f"scale + mask + Softmax, 12 x {length} x {length}",
        {"x": (1, 12, length, length), "m": (1, 1, 1, length)},
        (1, 12, length, length),
        "s = Mul(x, k) a = Add(s, m) y = Softmax<axis = -1>(a)",
        lambda t, x, m, k: t.softmax(x * k + m, -1),
        constants={"k": F32(0.125)},
        quick=quick,
    )


def _squeeze_excite(t: Any, x: Any, down: Any, low: Any, up: Any, high: Any, **_: Any) -> Any:
    functional = t.nn.functional
    h = functional.hardswish(x)
    narrow = t.relu(functional.conv2d(h.mean((2, 3), keepdim=True), down, low))
    return h * functional.hardsigmoid(functional.conv2d(narrow, up, high))


PATTERNS = (
    _instance_norm(32, 224, quick=True),
    _instance_norm(64, 112),
    _instance_norm(128, 56),
    Pattern(
        "InstanceNorm + Add, 128 x 56 x 56",
        {"x": (1, 128, 56, 56), "r": (1, 128, 56, 56)},
        (1, 128, 56, 56),
        "n = InstanceNormalization(x, scale, bias) y = Add(n, r)",
        lambda t, x, r, scale, bias: t.nn.functional.instance_norm(x, weight=scale, bias=bias, eps=1e-5) + r,
        {"scale": (128,), "bias": (128,)},
    ),
    _layer_norm(16384, 32, quick=True),
    _layer_norm(4096, 64),
    _layer_norm(1024, 160),
    _layer_norm(256, 256),
    Pattern(
        "Add + LayerNorm, 128 x 384",
        {"x": (128, 384), "r": (128, 384)},
        (128, 384),
        "s = Add(x, r) y = LayerNormalization<axis = -1>(s, scale, bias)",
        lambda t, x, r, scale, bias: t.nn.functional.layer_norm(x + r, (384,), scale, bias, 1e-5),
        {"scale": (384,), "bias": (384,)},
    ),
    _masked_softmax(128, quick=True),
    Pattern(
        "scale + Softmax, 16384 x 256",
        {"x": (16384, 256)},
        (16384, 256),
        "s = Mul(x, k) y = Softmax<axis = -1>(s)",
        lambda t, x, k: t.softmax(x * k, -1),
        constants={"k": F32(0.125)},
    ),
    Pattern(
        "bias + GELU, 128 x 1536",
        {"x": (128, 1536)},
        (128, 1536),
        "b = Add(x, bias) d = Mul(b, r) e = Erf(d) o = Add(e, one) m = Mul(b, o) y = Mul(m, half)",
        lambda t, x, bias, **_: t.nn.functional.gelu(x + bias),
        {"bias": (1536,)},
        {"r": F32(0.70710678), "one": F32(1), "half": F32(0.5)},
        quick=True,
    ),
    Pattern(
        "SiLU, 64 x 104 x 104",
        {"x": (1, 64, 104, 104)},
        (1, 64, 104, 104),
        "s = Sigmoid(x) y = Mul(x, s)",
        lambda t, x: t.nn.functional.silu(x),
    ),
    Pattern(
        "Mish, 64 x 208 x 208",
        {"x": (1, 64, 208, 208)},
        (1, 64, 208, 208),
        "s = Softplus(x) t = Tanh(s) y = Mul(x, t)",
        lambda t, x: t.nn.functional.mish(x),
        quick=True,
    ),
    Pattern(
        "HardSwish written out with scale and shift, 96 x 24 x 160",
        {"x": (1, 96, 24, 160)},
        (1, 96, 24, 160),
        "m = Mul(x, a) s = Add(m, b) h = Add(s, three) c = Clip(h, zero, six) p = Mul(s, c) y = Div(p, six)",
        lambda t, x, a, b, **_: t.nn.functional.hardswish(x * a + b),
        constants={"a": F32(0.73), "b": F32(0.13), "three": F32(3), "zero": F32(0), "six": F32(6)},
        quick=True,
    ),
    Pattern(
        "squeeze-excite gate with HardSwish, 128 x 28 x 28",
        {"x": (1, 128, 28, 28), "g": (1, 128, 1, 1)},
        (1, 128, 28, 28),
        "h = HardSigmoid<alpha = 0.1666667, beta = 0.5>(g) m = Mul(x, h) y = HardSwish(m)",
        lambda t, x, g: t.nn.functional.hardswish(x * t.nn.functional.hardsigmoid(g)),
    ),
    Pattern(
        "squeeze: GlobalAveragePool of HardSwish, 128 x 28 x 28",
        {"x": (1, 128, 28, 28)},
        (1, 128, 1, 1),
        "h = HardSwish(x) y = GlobalAveragePool(h)",
        lambda t, x: t.nn.functional.hardswish(x).mean((2, 3), keepdim=True),
    ),
    Pattern(
        "HardSwish with squeeze-excite, 128 x 28 x 28",
        {"x": (1, 128, 28, 28)},
        (1, 128, 28, 28),
        "t = Add(x, three) k = Clip(t, zero, six) m = Mul(x, k) h = Div(m, six) p = GlobalAveragePool(h) "
        "c = Conv(p, down, low) r = Relu(c) e = Conv(r, up, high) g = HardSigmoid<alpha = 0.1666667, beta = 0.5>(e) "
        "y = Mul(h, g)",
        _squeeze_excite,
        {"down": (32, 128, 1, 1), "low": (32,), "up": (128, 32, 1, 1), "high": (128,)},
        {"three": F32(3), "zero": F32(0), "six": F32(6)},
    ),
    Pattern(
        "ReLU, 64 x 512 x 512",
        {"x": (1, 64, 512, 512)},
        (1, 64, 512, 512),
        "y = Relu(x)",
        lambda t, x: t.relu(x),
    ),
    Pattern(
        "bias + SiLU + Add, 64 x 512 x 512",
        {"x": (1, 64, 512, 512), "r": (1, 64, 512, 512)},
        (1, 64, 512, 512),
        "b = Add(x, bias) s = Sigmoid(b) m = Mul(b, s) y = Add(m, r)",
        lambda t, x, r, bias: t.nn.functional.silu(x + bias) + r,
        {"bias": (64, 1, 1)},
    ),
    Pattern(
        "Transpose + ReLU, 64 x 512 x 512 to rows",
        {"x": (1, 64, 262144)},
        (1, 262144, 64),
        "p = Transpose<perm = [0, 2, 1]>(x) y = Relu(p)",
        lambda t, x: t.relu(x.transpose(1, 2)).contiguous(),
    ),
    _layer_norm(65536, 256),
    _masked_softmax(1024),
    Pattern(
        "Transpose + Add, 32 x 128 x 128 to rows",
        {"x": (1, 32, 16384), "r": (1, 16384, 32)},
        (1, 16384, 32),
        "p = Transpose<perm = [0, 2, 1]>(x) y = Add(p, r)",
        lambda t, x, r: t.add(x.transpose(1, 2), r),
        quick=True,
    ),
    Pattern(
        "reflect Pad + ReLU, 32 x 224 x 224",
        {"x": (1, 32, 224, 224)},
        (1, 32, 226, 226),
        'r = Relu(x) y = Pad<mode = "reflect">(r, pads)',
        lambda t, x, **_: t.nn.functional.pad(t.relu(x), (1, 1, 1, 1), mode="reflect"),
        constants={"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1])},
    ),
    Pattern(
        "nearest Resize + Add, 64 x 40 x 40 to 80 x 80",
        {"x": (1, 64, 40, 40), "r": (1, 64, 80, 80)},
        (1, 64, 80, 80),
        'u = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">'
        "(x, , scales) y = Add(u, r)",
        lambda t, x, r, **_: t.nn.functional.interpolate(x, scale_factor=2.0, mode="nearest") + r,
        constants={"scales": np.array([1, 1, 2, 2], F32)},
    ),
    Pattern(
        "linear Resize, 256 x 16 x 16 to 128 x 128",
        {"x": (1, 256, 16, 16)},
        (1, 256, 128, 128),
        'y = Resize<mode = "linear">(x, , scales)',
        lambda t, x, **_: t.nn.functional.interpolate(x, scale_factor=8.0, mode="bilinear", align_corners=False),
        constants={"scales": np.array([1, 1, 8, 8], F32)},
    ),
    Pattern(
        "Concat of three activations, 3 x 85 x 52 x 52",
        {"a": (1, 4, 52, 52), "b": (1, 1, 52, 52), "c": (1, 80, 52, 52)},
        (1, 85, 52, 52),
        "sb = Sigmoid(b) sc = Sigmoid(c) y = Concat<axis = 1>(a, sb, sc)",
        lambda t, a, b, c: t.cat((a, t.sigmoid(b), t.sigmoid(c)), 1),
    ),
    Pattern(
        "detection head: offsets and sizes, 3549 boxes",
        {"x": (1, 3549, 85), "g": (1, 3549, 2), "s": (1, 3549, 1)},
        (1, 3549, 85),
        "xy, wh, r = Split<axis = -1>(x, parts) o = Add(xy, g) p = Mul(o, s) e = Exp(wh) q = Mul(e, s) "
        "y = Concat<axis = -1>(p, q, r)",
        lambda t, x, g, s, **_: t.cat(((x[..., :2] + g) * s, t.exp(x[..., 2:4]) * s, x[..., 4:]), -1),
        constants={"parts": np.array([2, 2, 81])},
    ),
)
