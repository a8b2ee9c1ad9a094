"""Cases of ONNX Runtime's own operators."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from operator_case import Case, Fixed, case, floats, positive  # type: ignore[import-not-found]

_MS = "com.microsoft"
_X = floats(2, 3, 4)
_MASK = np.array([[1, 1, 0, 1, 0], [1, 0, 0, 0, 0]], np.int32)


def _ms(op_type: str, *inputs: np.ndarray | Fixed | None, **attributes: Any) -> Case:
    attributes = {"tolerance": 1e-5, **attributes}
    return case(op_type, *inputs, domain=_MS, **attributes)


_NORMALIZED = [
    case("SimplifiedLayerNormalization", _X, positive(4), tolerance=2e-5),
    case("SimplifiedLayerNormalization", _X, positive(4), outputs=2, epsilon=1e-2, tolerance=2e-5),
    case("SimplifiedLayerNormalization", _X, positive(3, 4), axis=1, stash_type=1, tolerance=2e-5),
    _ms("SkipSimplifiedLayerNormalization", _X, _X[::-1].copy(), positive(4)),
    _ms("SkipSimplifiedLayerNormalization", _X, floats(3, 4), positive(4), floats(4), epsilon=1e-3),
    _ms("SkipSimplifiedLayerNormalization", _X[0], floats(3, 4), positive(4)),
    case("SwiGLU", _X, _X[::-1].copy()),
    case("SwiGLU", _X, _X[::-1].copy(), alpha=1.5),
    case("SwiGLU", _X * 40, _X[::-1].copy()),
]

_IMAGE, _WEIGHT = floats(1, 2, 5, 6), floats(3, 2, 3, 3)
_ACTIVATIONS: tuple[tuple[str, tuple[float, ...]], ...] = (
    ("Relu", ()),
    ("Tanh", ()),
    ("Sigmoid", ()),
    ("HardSwish", ()),
    ("LeakyRelu", (0.2,)),
    ("HardSigmoid", (0.1, 0.4)),
)
_GEMM_ACTIVATIONS = (("Elu", (0.5,)), ("Softplus", ()), ("Softsign", ()), ("ThresholdedRelu", (0.5,)))


def _gemm(name: str, parameters: tuple[float, ...]) -> Case:
    named = zip(("activation_alpha", "activation_beta"), parameters, strict=False)
    return _ms("FusedGemm", floats(3, 4), floats(4, 5), floats(5), activation=name, alpha=0.5, **dict(named))


_FUSED = [
    *(
        _ms("FusedConv", _IMAGE, _WEIGHT, floats(3), *residual, activation=name, activation_params=list(p) or None)
        for (name, p), residual in itertools.product(
            (*_ACTIVATIONS, ("Clip", (-1.0, 2.0))), ((), (floats(1, 3, 3, 4),))
        )
    ),
    _ms("FusedConv", _IMAGE, _WEIGHT, None, floats(1, 3, 3, 4), activation="Relu"),
    _ms("FusedConv", _IMAGE, floats(4, 1, 3, 3), floats(4), group=2, pads=[1] * 4, strides=[2, 2], activation="Relu"),
    *(_gemm(name, p) for name, p in (*_ACTIVATIONS, *_GEMM_ACTIVATIONS) if name != "HardSwish"),
    _ms("FusedGemm", floats(4, 3), floats(5, 4), transA=1, transB=1, activation="Relu"),
    *(
        _ms("FusedMatMul", a, floats(2, 4, 5), transBatchA=1, transA=t)
        for a, t in ((floats(3, 2, 4), 0), (floats(4, 2, 3), 1))
    ),
    _ms("FusedMatMul", _X, floats(4, 2, 5), transBatchB=1),
    _ms("FusedMatMul", _X, floats(5, 2, 4), transBatchB=1, transB=1, alpha=0.5),
    _ms("FusedMatMul", floats(3, 2, 6, 4), floats(2, 6, 4, 5), transBatchA=1),
    _ms("FusedMatMul", floats(4), floats(4, 5), transA=1),
    _ms("TransposeMatMul", floats(2, 4, 3), floats(2, 4, 5), transA=1, alpha=2.0),
]

_Q, _K, _V = floats(2, 3, 8), floats(2, 5, 8) + np.float32(0.1), floats(2, 5, 12)
_HEADED = floats(2, 4, 5, 2), floats(2, 4, 5, 2) * np.float32(0.5)
_PAST = floats(2, 4, 2, 2), floats(2, 4, 2, 2) * np.float32(0.5)
_ATTENTION = [
    _ms("MultiHeadAttention", _Q, _K, _V, num_heads=4),
    _ms("MultiHeadAttention", _Q, _K, _V, num_heads=4, scale=0.3),
    _ms("MultiHeadAttention", _Q, _K, _V, floats(28), num_heads=4),
    _ms("MultiHeadAttention", _Q, *_HEADED, num_heads=4),
    _ms("MultiHeadAttention", _Q, _K, _V, None, _MASK, num_heads=4),
    _ms("MultiHeadAttention", _Q, _K, _V, None, _MASK, num_heads=4, mask_filter_value=-3.0),
    _ms("MultiHeadAttention", _Q, _K, _V, None, None, floats(2, 4, 3, 5), num_heads=4),
    _ms("MultiHeadAttention", _Q, _K, _V, None, _MASK, floats(1, 1, 3, 5), num_heads=4),
    _ms("MultiHeadAttention", _K, _K, _V, num_heads=4, unidirectional=1),
    _ms("MultiHeadAttention", _K, _K, _V, None, _MASK, num_heads=4, unidirectional=1),
    _ms("MultiHeadAttention", _Q, _Q, _Q, None, None, None, *_PAST, num_heads=4, outputs=3),
    _ms("MultiHeadAttention", _Q, _Q, _Q, None, None, None, *_PAST, num_heads=4, outputs=3, unidirectional=1),
    _ms("Attention", _K, floats(8, 24), floats(24), num_heads=4),
    _ms("Attention", _K, Fixed(floats(8, 24)), Fixed(floats(24)), num_heads=4, scale=0.2),
    _ms("Attention", _K, floats(8, 24), floats(24), _MASK, num_heads=2),
    _ms("Attention", _K, floats(8, 24), floats(24), num_heads=4, unidirectional=1),
    _ms("Attention", _K, floats(8, 24), floats(24), _MASK, num_heads=4, unidirectional=1),
    _ms("Attention", _K, floats(8, 28), floats(28), num_heads=4, qkv_hidden_sizes=[8, 8, 12]),
    _ms("Attention", _K, floats(8, 24), floats(24), None, None, floats(2, 4, 5, 5), num_heads=4),
]

CASES = [*_NORMALIZED, *_FUSED, *_ATTENTION]
