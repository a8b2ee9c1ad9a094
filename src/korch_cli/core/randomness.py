"""Operators that compute something else in every run."""

from __future__ import annotations

_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


def is_random(op_type: str, domain: str) -> bool:
    """Whether an operator draws numbers; `domain` is "" for ONNX's own."""
    return not domain and op_type in _RANDOM
