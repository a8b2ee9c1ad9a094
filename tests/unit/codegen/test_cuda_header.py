"""The functions of korch_cuda.h that no compiler knows: conversions of 16-bit floats, bit by bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from korch_cli.core.launch import CudaKernel, Launch
from korch_cli.core.types import Array, DType, TensorType
from tests.cuda_on_cpu.execution import build, execute


def _converter(name: str, source: str, target: str, count: int) -> CudaKernel:
    text = f"""#include "korch_cuda.h"
namespace korch {{
extern "C" __global__ void __launch_bounds__(256)
{name}_all(const {source}* __restrict__ a0, {target}* __restrict__ r0) {{
  const int number = (int)blockIdx.x * 256 + (int)threadIdx.x;
  if (number < {count}) r0[number] = {name}(a0[number]);
}}
}}  // namespace korch
"""
    launch = Launch(f"{name}_all", (-(-count // 256), 1, 1), (256, 1, 1), 0, (("in", 0), ("out", 0)))
    return CudaKernel(name, "digest", "by hand", text, (launch,), (), 0, 0, 0)


def _floats() -> Array:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 50_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
        # Just beside a half, and half-way between two neighbours.
        beside = [np.nextafter(halves, np.float32(side)) for side in (-np.inf, np.inf)]
        middle = (halves[:-1].astype(np.float64) + halves[1:]) / 2
        return np.concatenate([bits, halves, *beside, middle.astype(np.float32)])


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_sixteen_bits_are_read_exactly(dtype: DType, cuda_builds: Path) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    kernel = _converter(f"from_{dtype.text}", "uint16_t", "float", every.size)
    (got,) = execute(build([kernel], cuda_builds), kernel, [every], [TensorType(DType.F32, every.shape)])
    np.testing.assert_array_equal(got, every.view(dtype.numpy).astype(np.float32))


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_floats_are_rounded_to_the_nearest_even_sixteen_bits(dtype: DType, cuda_builds: Path) -> None:
    x = _floats()
    kernel = _converter(f"to_{dtype.text}", "float", "uint16_t", x.size)
    (got,) = execute(build([kernel], cuda_builds), kernel, [x], [TensorType(DType.U16, x.shape)])
    with np.errstate(all="ignore"):
        want = x.astype(dtype.numpy)
    np.testing.assert_array_equal(got.view(dtype.numpy).astype(np.float32), want.astype(np.float32))
    numbers = ~np.isnan(x)
    np.testing.assert_array_equal(got[numbers], want.view(np.uint16)[numbers])
