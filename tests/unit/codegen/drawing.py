"""Operands for kernels under test, and the errors that kernels may have."""

from __future__ import annotations

import numpy as np

from korch_cli.core.types import Array, DType, TensorType

EPSILONS = {DType.F32: 2e-5, DType.F64: 1e-13, DType.F16: 2.0**-7, DType.BF16: 2.0**-4}
"""Relative errors that a kernel may have; integers and booleans none."""


def draw_operand(typed: TensorType, rng: np.random.Generator) -> Array:
    """Return random elements."""
    if typed.dtype is DType.BOOL:
        return np.asarray(rng.integers(0, 2, typed.shape), bool)
    if typed.dtype.is_integer:
        return np.asarray(rng.integers(-6, 7, typed.shape)).astype(typed.dtype.numpy)
    return np.asarray(rng.standard_normal(typed.shape) * 2).astype(typed.dtype.numpy)
