"""Cases of operators that carry a state."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from operator_case import Case, case, floats, positive  # type: ignore[import-not-found]

_X, _TAPS = floats(2, 4, 8), floats(4, 1, 4)


def _conv(*inputs: np.ndarray | None, tolerance: float = 1e-5, **attributes: str) -> Case:
    return case("CausalConvWithState", *inputs, outputs=2, tolerance=tolerance, **attributes)


_CONVOLVED = [
    _conv(_X, _TAPS),
    _conv(_X, _TAPS, floats(4)),
    *(_conv(_X, _TAPS, None, floats(2, 4, 3), activation=name) for name in ("none", "silu", "swish")),
    _conv(floats(2, 4, 1), _TAPS, floats(4), floats(2, 4, 3)),
    _conv(floats(2, 4, 2), floats(4, 1, 5)),
    _conv(_X, floats(4, 1, 1)),
    _conv(_X, floats(4, 1, 9), floats(4), floats(2, 4, 8)),
    _conv(floats(1, 1, 6), floats(1, 1, 4)),
    _conv(*(x.astype(np.float16) for x in (_X, _TAPS)), tolerance=1e-2),
]


def _linear(steps: int, heads: int = 4, groups: int = 4, *, past: bool = False, rule: str = "", **given: float) -> Case:
    """A case with the operands that its rule has."""
    decay_width, beta_width = int(given.pop("decay", groups * 3)), int(given.pop("beta", groups))
    inputs = [
        floats(2, steps, heads * 3, scale=0.5),
        floats(2, steps, groups * 3, scale=0.3),
        floats(2, steps, groups * 5),
        floats(2, groups, 3, 5) if past else None,
        -positive(2, steps, decay_width) if "gated" in (rule or "gated") else None,
        positive(2, steps, beta_width) / np.float32(3) if "delta" in (rule or "delta") else None,
    ]
    while inputs[-1] is None:
        inputs.pop()
    named = {"update_rule": rule} if rule else {}
    heads_of = {"q_num_heads": heads, "kv_num_heads": groups}
    return case("LinearAttention", *inputs, outputs=2, tolerance=2e-5, **heads_of, **named, **given)


_LINEAR = [
    *(
        _linear(steps, rule=rule, past=past)
        for steps in (1, 4)
        for rule in ("linear", "gated", "delta", "gated_delta")
        for past in (False, True)
    ),
    _linear(3, 8, 4),
    _linear(3, 8, 1, beta=1),
    _linear(3, beta=1, past=True),
    _linear(3, decay=4, scale=0.25),
    _linear(2, chunk_size=16),
]

_MICROSOFT = [replace(each, domain="com.microsoft") for each in (*_CONVOLVED[:-1], *_LINEAR)]

CASES = [*_CONVOLVED, *_LINEAR, *_MICROSOFT]
