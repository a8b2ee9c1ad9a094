"""Cases of attention and rotary embedding."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from operator_case import Case, Fixed, booleans, case, floats  # type: ignore[import-not-found]

_NAMES = ("q", "k", "v", "mask", "past_key", "past_value", "filled")
_Q, _K, _V = floats(2, 4, 3, 6), floats(2, 4, 5, 6) + 0.1, floats(2, 4, 5, 7)
_SHARED = (floats(2, 2, 5, 6), floats(2, 2, 5, 7))
_PACKED = (floats(2, 3, 24), floats(2, 5, 12), floats(2, 5, 14))
_PAST = {"past_key": floats(2, 4, 2, 6), "past_value": floats(2, 4, 2, 7)}
_WHOLE_ROW = np.ones((3, 5), bool)
_WHOLE_ROW[1] = False
_BARRED = np.where(_WHOLE_ROW, np.float32(0), np.float32(-np.inf))
_INFINITE = _Q.copy()
_INFINITE[0, 0, 1] = np.inf


def _attention(*three: np.ndarray, outputs: int = 1, since: int = 23, tolerance: float = 1e-5, **given: Any) -> Case:
    inputs = [*three, *(given.pop(name, None) for name in _NAMES[3:])]
    while inputs[-1] is None:
        inputs.pop()
    return case("Attention", *inputs, outputs=outputs, since=since, tolerance=tolerance, **given)


_ATTENTION = [
    _attention(_Q, _K, _V),
    _attention(_Q, *_SHARED),
    _attention(*_PACKED, q_num_heads=4, kv_num_heads=2),
    _attention(*_PACKED, q_num_heads=4, kv_num_heads=2, is_causal=1, scale=0.3),
    _attention(floats(2, 2, 5, 6), *_SHARED, is_causal=1),
    _attention(floats(1, 1, 1, 4), floats(1, 1, 1, 4), floats(1, 1, 1, 1), is_causal=1),
    _attention(floats(2, 4, 7, 6), _K, _V, is_causal=1),
    *(
        _attention(_Q, _K, _V, mask=mask, is_causal=causal)
        for mask, causal in product(
            (booleans(3, 5) | np.eye(3, 5, dtype=bool), floats(3, 5), floats(4, 3, 5), floats(2, 1, 3, 5)), (0, 1)
        )
    ),
    *(_attention(q, _K, _V, mask=mask) for q in (_Q, _INFINITE) for mask in (_WHOLE_ROW, _BARRED)),
    _attention(_Q, _K, _V, mask=_WHOLE_ROW[:, ::-1].copy(), is_causal=1),
    _attention(_INFINITE, _K, _V),
    _attention(_Q, _K, _V, mask=np.full((3, 5), -1e30, np.float32)),
    _attention(_Q, _K, _V, mask=Fixed(floats(3, 5))),
    _attention(_Q, _K, _V, softcap=1.5, mask=floats(3, 5)),
    *(_attention(_Q, _K, _V, outputs=3, is_causal=causal, **_PAST) for causal in (0, 1)),
    _attention(_Q, _K, _V, outputs=3, mask=floats(3, 7), **_PAST),
    *(
        _attention(_Q, _K, _V, outputs=4, qk_matmul_output_mode=mode, softcap=2.0, mask=floats(3, 5))
        for mode in (0, 1, 2, 3)
    ),
    _attention(_Q, _K, _V, outputs=4, qk_matmul_output_mode=3, mask=_WHOLE_ROW),
    _attention(_Q, _K, _V, outputs=4, is_causal=1),
    *(_attention(_Q, _K, _V, softmax_precision=p, tolerance=5e-3) for p in (1, 10, 11)),
    _attention(*(x.astype(np.float16) for x in (_Q, _K, _V)), softmax_precision=1, tolerance=1e-2),
    _attention(*(x.astype(np.float16) for x in (_Q, _K, _V)), mask=floats(3, 5, dtype=np.float16), tolerance=1e-2),
    _attention(*(x.astype(np.float64) for x in (_Q, _K, _V)), tolerance=1e-12),
    _attention(*(x.astype(np.float64) for x in (_Q, _K, _V)), tolerance=1e-12, scale=0.3),
    _attention(_Q, _K, _V, outputs=3, past_key=_PAST["past_key"][:, :, :0], past_value=_PAST["past_value"][:, :, :0]),
    _attention(-np.abs(_Q), np.full_like(_K, np.inf), _V),
    _attention(_Q, _K, _V, filled=np.array([0, 3]), since=24),
    *(
        _attention(_Q, _K, _V, filled=np.array([5, 3]), since=24, is_causal=causal, mask=mask)
        for causal in (0, 1)
        for mask in (None, floats(3, 5), booleans(3, 5))
    ),
    _attention(_Q, _K, _V, filled=np.array([1, 2]), since=24, is_causal=1),
    *(
        _attention(_Q, _K, _V, left_window_size=left, right_window_size=right, is_causal=causal, since=25)
        for left, right, causal in ((1, 1, 0), (0, -1, 0), (-1, 0, 0), (-1, 1, 0), (1, 1, 1), (-1, -1, 0), (1, -1, 1))
    ),
    _attention(_Q, _K, _V, left_window_size=1, right_window_size=0, since=25, **_PAST),
    _attention(_Q, _K, _V, left_window_size=1, filled=np.array([5, 2]), since=25),
    _attention(floats(2, 4, 9, 6), _K, _V, left_window_size=1, since=25),
    *(_attention(_Q, _K, _V, mask=mask, since=25) for mask in (floats(3, 4), booleans(3, 4), floats(5), floats(3, 1))),
]

_ANGLES = floats(2, 3, 4), floats(2, 3, 4) * np.float32(0.7)
_TABLES = floats(9, 4), floats(9, 4) * np.float32(0.7)
_POSITIONS = Fixed(np.array([[0, 3, 8], [2, 2, 1]]))
_MS = "com.microsoft"
_ROTARY = [
    *(
        case("RotaryEmbedding", x, *_ANGLES, interleaved=interleaved, **more)
        for interleaved in (0, 1)
        for x, more in (
            (floats(2, 5, 3, 8), {}),
            (floats(2, 3, 40), {"num_heads": 5}),
            (floats(2, 5, 3, 12), {"rotary_embedding_dim": 8}),
            (floats(2, 3, 24), {"num_heads": 2, "rotary_embedding_dim": 8}),
        )
    ),
    case("RotaryEmbedding", floats(2, 5, 3, 8), *_TABLES, _POSITIONS),
    case("RotaryEmbedding", floats(2, 3, 40), *map(Fixed, _TABLES), _POSITIONS, num_heads=5, interleaved=1),
    case("RotaryEmbedding", *(x.astype(np.float16) for x in (floats(2, 5, 3, 8), *_ANGLES)), tolerance=1e-2),
    *(
        case("RotaryEmbedding", x, positions, *_TABLES, domain=_MS, interleaved=interleaved)
        for x in (floats(2, 5, 3, 8), floats(2, 3, 40))
        for positions in (_POSITIONS, Fixed(np.array([5])))
        for interleaved in (0, 1)
    ),
    case("RotaryEmbedding", floats(2, 3, 24), _POSITIONS, *_TABLES, domain=_MS, num_heads=2, rotary_embedding_dim=8),
]

CASES = [*_ATTENTION, *_ROTARY]
