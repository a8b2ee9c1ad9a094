"""Cases of losses."""

from __future__ import annotations

import numpy as np
from operator_case import case, floats, integers, positive  # type: ignore[import-not-found]

_LOSSES = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
_REDUCTIONS = ("none", "sum", "mean")
_X = floats(4, 5)
_LABELS = np.array([1, 0, 4, 2])
_IGNORED = np.array([1, -1, 4, -1])
_FAR = np.array([[0, 200, 3], [-np.inf, 1, 2], [np.inf, 1, 2], [-np.inf] * 3], np.float32)
_IMAGE, _IMAGE_LABELS = floats(2, 5, 3, 2), integers(2, 3, 2, low=0, high=5)

CASES = [
    *(case(name, _X, _LABELS, reduction=r) for name in _LOSSES for r in _REDUCTIONS),
    *(case(name, _X, _LABELS, positive(5), reduction=r) for name in _LOSSES for r in _REDUCTIONS),
    *(case(name, _X, _IGNORED, reduction=r, ignore_index=-1) for name in _LOSSES for r in _REDUCTIONS),
    *(case(name, _X, _LABELS, positive(5), reduction=r, ignore_index=4) for name in _LOSSES for r in _REDUCTIONS),
    *(case(name, _X, np.full(4, 3), ignore_index=3) for name in _LOSSES),
    *(case(name, _IMAGE, _IMAGE_LABELS, reduction=r) for name in _LOSSES for r in _REDUCTIONS),
    *(case(name, _IMAGE, _IMAGE_LABELS, positive(5), ignore_index=2) for name in _LOSSES),
    *(case(name, floats(3, 4, 6), integers(3, 6, dtype=np.int32, low=0, high=4)) for name in _LOSSES),
    *(case(name, floats(2, 3, 2, 2, 2), integers(2, 2, 2, 2, low=0, high=3), positive(3)) for name in _LOSSES),
    *(case(name, _X.astype(np.float64), _LABELS, positive(5, dtype=np.float64)) for name in _LOSSES),
    *(case(name, _X.astype(np.float16), _LABELS, tolerance=4e-3) for name in _LOSSES),
    *(case(name, _FAR, np.array([0, 0, 1, 2]), reduction="none") for name in _LOSSES),
    *(case(name, floats(1, 1), np.array([0])) for name in _LOSSES),
    case("SoftmaxCrossEntropyLoss", _X, _LABELS, outputs=2),
    case("SoftmaxCrossEntropyLoss", _IMAGE, _IMAGE_LABELS, positive(5), outputs=2, reduction="none"),
    case("SoftmaxCrossEntropyLoss", _FAR, np.array([0, 0, 1, 2]), outputs=2),
]
