"""Cases of reductions, normalizations, windows and products."""

from __future__ import annotations

import itertools

import numpy as np
from operator_case import Fixed, case, fixed, floats, integers, positive, scalar  # type: ignore[import-not-found]

_MS = "com.microsoft"
_X = floats(2, 3, 4)
_LOGS = ("ReduceLogSum", "ReduceLogSumExp")
_REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare", *_LOGS)
_ALL = (*_REDUCTIONS, "ReduceSum")
_LARGE = np.array([[1e4, -1e4, 3.0], [200, 300, -50], [-np.inf, 0, 1]], np.float32)
_DEAD_ROW = np.array([[-np.inf, -np.inf, -np.inf], [0, 1, 2]], np.float32)
_HOT = np.array([[np.inf, 0, 1], [0, 1, 2]], np.float32)


def _last(name: str) -> int:
    return 12 if name == "ReduceSum" else 17


_REDUCED = [
    *(case(name, positive(2, 3, 4), until=_last(name), axes=[1]) for name in _ALL),
    *(case(name, positive(2, 3, 4), until=_last(name), axes=[0, 2], keepdims=0) for name in _ALL),
    *(case(name, positive(2, 3, 4), until=_last(name)) for name in _ALL),
    *(case(name, positive(2, 3, 4), since=11, until=_last(name), axes=[-1], keepdims=0) for name in _ALL),
    *(case(name, positive(2, 3, 4), fixed(1), since=_last(name) + 1) for name in _ALL),
    *(case(name, positive(2, 3, 4), fixed(0, -1), since=_last(name) + 1, keepdims=0) for name in _ALL),
    *(case(name, positive(2, 3, 4), since=_last(name) + 1, keepdims=0) for name in _ALL),
    *(case(name, positive(2, 3, 4), Fixed(np.zeros(0, np.int64)), since=_last(name) + 1) for name in _ALL),
    *(
        case(name, positive(2, 3, 4), since=_last(name) + 1, noop_with_empty_axes=1)
        for name in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")
    ),
    *(case(name, integers(3, 4, dtype=np.int32), since=_last(name) + 1) for name in ("ReduceSum", "ReduceMax")),
    *(case(name, integers(3, 4, dtype=np.int32), until=_last(name)) for name in ("ReduceSum", "ReduceMin")),
    *(case("ReduceLogSumExp", x, until=17, axes=[1]) for x in (_LARGE, _DEAD_ROW)),
    *(case("ReduceMean", x, until=17, axes=[1]) for x in (_HOT, floats(3, 5, dtype=np.float64))),
    case("GlobalAveragePool", floats(2, 3, 4, 5)),
    case("GlobalAveragePool", floats(2, 3, 7)),
    case("GlobalMaxPool", floats(2, 3, 4, 5)),
]

_SOFT = [
    *(case(name, _X) for name in ("Softmax", "LogSoftmax")),
    *(case(name, _X, axis=axis) for name in ("Softmax", "LogSoftmax") for axis in (0, 1, 2)),
    *(case(name, _X, axis=axis, since=11) for name in ("Softmax", "LogSoftmax") for axis in (-1, -2)),
    *(case(name, _LARGE, axis=1, tolerance=2e-5) for name in ("Softmax", "LogSoftmax")),
    *(case(name, _DEAD_ROW, axis=1) for name in ("Softmax", "LogSoftmax")),
    *(case(name, floats(2, 5, dtype=np.float64), axis=1) for name in ("Softmax", "LogSoftmax")),
    case("Softmax", floats(2, 5, dtype=np.float16), axis=1, since=13),
]

_CHANNELS = tuple(positive(3) + 0.1 * i for i in range(4))
_NORMALIZED = [
    case("BatchNormalization", floats(2, 3, 4, 5), *_CHANNELS),
    case("BatchNormalization", floats(2, 3), *_CHANNELS, epsilon=1e-2),
    case("BatchNormalization", floats(2, 3, 4), *map(Fixed, _CHANNELS), momentum=0.5),
    case("BatchNormalization", floats(2, 3, 4), *_CHANNELS, training_mode=0, since=14),
    case("BatchNormalization", floats(2, 3, 4), *_CHANNELS, spatial=1, until=8),
    case("BatchNormalization", floats(2, 3, 4), *(positive(3, 4) for _ in range(4)), spatial=0, until=8),
    case("InstanceNormalization", floats(2, 3, 4, 5), positive(3), floats(3), tolerance=2e-5),
    case("InstanceNormalization", floats(2, 3, 7), positive(3), floats(3), epsilon=1e-2, tolerance=2e-5),
    case("GroupNormalization", floats(2, 6, 3, 4), positive(2), floats(2), num_groups=2, until=20, tolerance=2e-5),
    case("GroupNormalization", floats(2, 6, 3, 4), positive(6), floats(6), num_groups=2, since=21, tolerance=2e-5),
    case("GroupNormalization", floats(1, 4, 5), positive(4), floats(4), num_groups=4, epsilon=0.1, since=21),
    case("LayerNormalization", _X, positive(4), floats(4), tolerance=2e-5),
    case("LayerNormalization", _X, positive(4), tolerance=2e-5),
    case("LayerNormalization", _X, positive(3, 4), floats(3, 4), axis=1, epsilon=1e-2, tolerance=2e-5),
    case("LayerNormalization", _X, positive(4), floats(4), outputs=3, stash_type=1, tolerance=2e-5),
    case("LayerNormalization", floats(3, 8, dtype=np.float16), positive(8, dtype=np.float16), axis=-1, tolerance=4e-3),
    case("RMSNormalization", _X, positive(4), tolerance=2e-5),
    case("RMSNormalization", _X, positive(3, 4), axis=1, epsilon=1e-2, tolerance=2e-5),
    *(case("LpNormalization", _X, axis=axis, p=p) for axis, p in ((1, 1), (0, 2), (-1, 2))),
    case("LpNormalization", _X),
    case("LpNormalization", np.array([[0, 0], [3, 4], [1e-40, -1e-30]], np.float32)),
    case("MeanVarianceNormalization", floats(2, 3, 4, 5), tolerance=2e-5),
    case("MeanVarianceNormalization", _X, axes=[1, 2], tolerance=2e-5),
    *(case("LRN", floats(2, 7, 3, 3), size=size) for size in (3, 5)),
    case("LRN", floats(2, 7, 3, 3), size=3, alpha=0.1, beta=0.5, bias=2.0),
    case("SkipLayerNormalization", _X, _X[::-1].copy(), positive(4), floats(4), domain=_MS, tolerance=2e-5),
    case("SkipLayerNormalization", _X, _X[::-1].copy(), positive(4), domain=_MS, epsilon=1e-3, tolerance=2e-5),
    case("SkipLayerNormalization", _X, _X[::-1].copy(), positive(4), floats(4), floats(4), domain=_MS, tolerance=2e-5),
]

_IMAGE = floats(1, 2, 7, 8)
_POOLS = ("AveragePool", "MaxPool")
_WINDOWS = [
    *(case(name, _IMAGE, kernel_shape=[3, 2]) for name in _POOLS),
    *(case(name, floats(2, 3, 9), kernel_shape=[3], strides=[2], pads=[1, 1]) for name in _POOLS),
    *(case(name, floats(1, 1, 4, 5, 3), kernel_shape=[2, 2, 2], strides=[2, 1, 1]) for name in _POOLS),
    *(case(name, _IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 1, 2]) for name in _POOLS),
    *(
        case(name, _IMAGE, kernel_shape=[2, 3], strides=[2, 2], auto_pad=pad)
        for name, pad in itertools.product(_POOLS, ("SAME_UPPER", "SAME_LOWER", "VALID"))
    ),
    *(case(name, _IMAGE, kernel_shape=[2, 3], strides=[2, 2], ceil_mode=1, since=10) for name in _POOLS),
    *(case(name, _IMAGE, kernel_shape=[3, 3], strides=[3, 3], pads=[1] * 4, ceil_mode=1, since=10) for name in _POOLS),
    *(case(name, _IMAGE, kernel_shape=[2, 2], strides=[3, 4], ceil_mode=1, since=10) for name in _POOLS),
    case("MaxPool", _IMAGE, kernel_shape=[2, 3], dilations=[2, 3], since=10),
    case("MaxPool", _IMAGE, kernel_shape=[2, 2], dilations=[3, 2], pads=[1] * 4, strides=[2, 2], since=10),
    case("MaxPool", integers(1, 1, 5, 5, dtype=np.int8), kernel_shape=[2, 2], pads=[1] * 4, since=12),
    case("AveragePool", _IMAGE, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1, since=7),
    case("AveragePool", _IMAGE, kernel_shape=[3, 3], pads=[2, 1, 0, 1], strides=[2, 2], count_include_pad=1, since=7),
    case("AveragePool", _IMAGE, kernel_shape=[3, 3], count_include_pad=1, since=7),
    case("AveragePool", _IMAGE, kernel_shape=[2, 3], dilations=[2, 2], since=19),
    case("AveragePool", _IMAGE, kernel_shape=[2, 3], dilations=[2, 2], pads=[1] * 4, count_include_pad=1, since=19),
    case(
        "AveragePool",
        _IMAGE,
        kernel_shape=[3, 3],
        strides=[3, 3],
        pads=[1] * 4,
        ceil_mode=1,
        count_include_pad=1,
        since=19,
    ),
]

_PRODUCTS = [
    case("MatMul", floats(3, 4), floats(4, 5)),
    case("MatMul", floats(2, 1, 3, 4), floats(5, 4, 2)),
    case("MatMul", floats(4), floats(4, 5)),
    case("MatMul", floats(2, 3, 4), floats(4)),
    case("MatMul", floats(4), positive(4)),
    case("MatMul", integers(3, 4, dtype=np.int32), integers(4, 2, dtype=np.int32), since=9),
    case("MatMul", floats(3, 4, dtype=np.float64), floats(4, 5, dtype=np.float64)),
    case("Gemm", floats(3, 4), floats(4, 5), floats(5)),
    case("Gemm", floats(3, 4), floats(4, 5), floats(3, 1), alpha=0.5, beta=2.0),
    case("Gemm", floats(4, 3), floats(5, 4), floats(3, 5), transA=1, transB=1),
    case("Gemm", floats(3, 4), floats(4, 5), scalar(2.0), beta=0.0),
    case("Gemm", floats(3, 4), floats(4, 5), since=11),
    case("Conv", floats(2, 3, 7, 6), floats(4, 3, 3, 2), tolerance=1e-5),
    case("Conv", floats(2, 3, 7, 6), floats(4, 3, 3, 2), floats(4), pads=[1, 0, 2, 1], strides=[2, 1], tolerance=1e-5),
    case("Conv", floats(1, 4, 7, 6), floats(6, 2, 3, 2), floats(6), group=2, kernel_shape=[3, 2], tolerance=1e-5),
    case("Conv", floats(1, 4, 7, 6), floats(4, 1, 3, 3), group=4, dilations=[2, 1], tolerance=1e-5),
    case("Conv", floats(1, 2, 9), floats(3, 2, 3), pads=[1, 1], tolerance=1e-5),
    case("Conv", floats(1, 2, 4, 5, 6), floats(3, 2, 2, 2, 2), tolerance=1e-5),
    *(
        case("Conv", floats(1, 2, 7, 6), floats(3, 2, 2, 3), strides=[2, 2], auto_pad=pad, tolerance=1e-5)
        for pad in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ),
    *(case("FusedMatMul", floats(2, 3, 4), floats(2, 4, 5), domain=_MS, alpha=a) for a in (1.0, 0.5)),
    case("FusedMatMul", floats(2, 4, 3), floats(2, 5, 4), domain=_MS, transA=1, transB=1),
]

CASES = [*_REDUCED, *_SOFT, *_NORMALIZED, *_WINDOWS, *_PRODUCTS]
