"""The elementary functions of generated kernels against float64, one element at a time and in vectors."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from korch_cli.codegen import headers
from korch_cli.core.progress import Silent
from korch_cli.core.types import Array
from korch_cli.toolchain import Compiler, compile_units, find_compiler, link

ULP = {"exp": 2.0, "log": 2.0, "tanh": 2.5, "erf": 2.0, "sigmoid": 2.5, "sin": 2.0, "cos": 2.0, "softplus": 2.0}
"""Units in the last place that each function may be off, denormal results aside."""

REFERENCES: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "erf": lambda x: np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x)),
    "sigmoid": lambda x: np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x)))),
    "sin": np.sin,
    "cos": np.cos,
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
}


def _source() -> str:
    lines = ['#include "korch_vector.h"', "using namespace korch;"]
    lines += [
        f'extern "C" void {name}_all(const float* x, float* scalar, float* vector, int64_t n) {{\n'
        f"  for (int64_t i = 0; i < n; ++i) scalar[i] = {name}_(x[i]);\n"
        f"  for (int64_t i = 0; i + kLanes <= n; i += kLanes) store(vector + i, {name}_(load<vf>(x + i)));\n"
        "}"
        for name in [*ULP, "floor", "ceil", "round", "sqrt", "sign", "abs"]
    ]
    lines.append(
        'extern "C" void pow_all(const float* x, const float* y, float* scalar, float* vector, int64_t n) {\n'
        "  for (int64_t i = 0; i < n; ++i) scalar[i] = pow_(x[i], y[i]);\n"
        "  for (int64_t i = 0; i + kLanes <= n; i += kLanes)\n"
        "    store(vector + i, pow_(load<vf>(x + i), load<vf>(y + i)));\n"
        "}"
    )
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("math")
    found = find_compiler()
    # Optimised as kernels are: contraction of products and sums is a part of what is tested.
    compiler = Compiler(found.command, tuple(f for f in found.flags if f != "-fvisibility=hidden"), found.identity)
    built = compile_units(compiler, {"math": _source()}, headers(), folder, jobs=1, progress=Silent())["math"]
    assert isinstance(built, Path), built
    names = [f"{n}_all" for n in [*ULP, "floor", "ceil", "round", "sqrt", "sign", "abs", "pow"]]
    link(compiler, [built], folder / "math.so", exports=names)
    return ctypes.CDLL(str(folder / "math.so"))


def _run(library: ctypes.CDLL, name: str, *operands: Array) -> tuple[Array, Array]:
    n = operands[0].size
    assert n % 16 == 0
    scalar, vector = np.zeros(n, np.float32), np.zeros(n, np.float32)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*operands, scalar, vector)]
    getattr(library, f"{name}_all")(*pointers, ctypes.c_int64(n))
    return scalar, vector


def _sweep() -> Array:
    rng = np.random.default_rng(0)
    parts = [
        np.linspace(-20, 20, 40_000),
        np.linspace(-104, 89, 20_000),
        rng.standard_normal(20_000),
        np.exp(rng.uniform(-80, 80, 20_000)),
        -np.exp(rng.uniform(-80, 8, 10_000)),
        1 + rng.uniform(-1e-3, 1e-3, 2_000),
    ]
    x = np.concatenate(parts).astype(np.float32)
    return np.asarray(x[: x.size // 16 * 16])


def _ulps(got: Array, want: Array) -> Array:
    """Errors in units of the last place of the correctly rounded result; denormal ones in those of the least normal."""
    rounded = want.astype(np.float32)
    spacing = np.spacing(np.maximum(np.abs(rounded), np.finfo(np.float32).tiny)).astype(np.float64)
    return np.asarray(np.abs(got.astype(np.float64) - want) / spacing)


@pytest.mark.parametrize("name", sorted(ULP))
def test_errors_stay_within_the_bound(library: ctypes.CDLL, name: str) -> None:
    x = _sweep()
    if name in ("sin", "cos"):
        x = x[np.abs(x) < 1e4]
        x = x[: x.size // 16 * 16]
    with np.errstate(all="ignore"):
        want = REFERENCES[name](x.astype(np.float64))
        finite = np.isfinite(want) & (np.abs(want) < np.finfo(np.float32).max)
        if name in ("sin", "cos"):
            finite &= np.abs(want) > 1e-4
        for got in _run(library, name, x):
            errors = _ulps(got[finite], want[finite])
            worst = int(errors.argmax())
            assert errors[worst] <= ULP[name], f"{errors[worst]:.2f} ulp at {x[finite][worst]!r}"
            if name in ("sin", "cos"):
                np.testing.assert_allclose(got[~finite], want[~finite], rtol=0, atol=2e-10)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_angles_of_any_size_are_reduced(library: ctypes.CDLL, name: str) -> None:
    rng = np.random.default_rng(2)
    powers = np.ldexp(rng.uniform(1, 2, (128, 64)), np.arange(128)[:, None])
    halves = np.rint(np.exp(rng.uniform(0, 80, 4096))) * (math.pi / 2)
    edges = [np.nextafter(np.float32(1e4), np.float32(side)) for side in (0, 1e5)] * 8
    x = np.concatenate([powers.ravel(), halves, edges, np.full(16, np.finfo(np.float32).max)]).astype(np.float32)
    x = np.where(rng.random(x.size) < 0.5, -x, x).astype(np.float32)
    want = REFERENCES[name](x.astype(np.float64))
    for got in _run(library, name, x):
        np.testing.assert_allclose(got, want, rtol=3e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["floor", "ceil", "round", "sqrt", "sign", "abs"])
def test_exact_functions_are_exact(library: ctypes.CDLL, name: str) -> None:
    x = np.concatenate([_sweep(), np.array([0.0, -0.0, 0.5, -0.5, 1.5, 2.5, 8388607.5, -8388607.5] * 2, np.float32)])
    reference = {"floor": np.floor, "ceil": np.ceil, "round": np.rint, "sqrt": np.sqrt, "sign": np.sign, "abs": np.abs}
    with np.errstate(all="ignore"):
        want = reference[name](x)
    for got in _run(library, name, x):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", sorted(ULP))
def test_special_values(library: ctypes.CDLL, name: str) -> None:
    x = np.zeros(32, np.float32)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-38, 200.0, -200.0, 3e38, -3e38]
    x[: len(special)] = special
    with np.errstate(all="ignore"):
        want = REFERENCES[name](x.astype(np.float64)).astype(np.float32)
    for got in _run(library, name, x):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=2e-45, equal_nan=True)


def test_powers(library: ctypes.CDLL) -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(0, 10, 4096), rng.uniform(-4, 4, 4096)]).astype(np.float32)
    y = np.concatenate([rng.uniform(-6, 6, 4096), rng.integers(-4, 5, 4096)]).astype(np.float32)
    corners = [0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -2.0]
    pairs = [(a, b) for a in corners for b in corners]
    x = np.concatenate([x, np.array([a for a, _ in pairs], np.float32)])
    y = np.concatenate([y, np.array([b for _, b in pairs], np.float32)])
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    for got in _run(library, "pow", x, y):
        np.testing.assert_allclose(got, want, rtol=3e-7, atol=1e-38, equal_nan=True)
