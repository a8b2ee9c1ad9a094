"""The machine's limits: the best rates that simple loops reach, so that no kernel is expected to beat them."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from korch_cli.core.errors import MissingError
from korch_cli.core.machine import MachineLimits
from korch_cli.measure.child import Worker, WorkerError
from korch_cli.measure.doubt import AGAIN_S
from korch_cli.measure.identity import machine_identity
from korch_cli.measure.store import ProfileStore

Build = Callable[[str, tuple[str, ...]], Path]
"""From C++ text and the functions that it exports to a shared library."""

DISPATCH_US = 0.16
"""What ONNX Runtime takes at least to call one more custom operator that does nothing.

The slope of the time of a run between chains of 20 and of 220 operators that know their shapes: 0.20 with ONNX Runtime
1.32, 0.16 with 1.20, on a Xeon with AVX-512. It is part of lower bounds, so the least counts.
"""

_FOOTPRINTS = tuple(1 << bits for bits in (14, 16, 18, 20, 21, 22, 23, 25, 27))
_PROTOCOL = 3
"""Part of the key: limits that were measured in another way are not used."""
_PASS_SECONDS = 0.004
_PASSES = 16
_BUSY = 0.6
"""Processes that run or wait for each processor, from which on limits are measured again in a later run."""
_LIMIT_S = 120.0
_SOURCE = """\
#include <stdint.h>

#define KORCH_EXPORT extern "C" __attribute__((visibility("default")))

#if defined(__AVX512F__)
#define KORCH_BYTES 64
#elif defined(__AVX__)
#define KORCH_BYTES 32
#else
#define KORCH_BYTES 16
#endif

// Reads n floats and writes n floats, `repeats` times; what is left of a vector is not touched.
KORCH_EXPORT void korch_stream(const float* __restrict a, float* __restrict b, int64_t n, int64_t repeats) {
  using vector = float __attribute__((vector_size(KORCH_BYTES)));
  constexpr int64_t lanes = KORCH_BYTES / 4;
  for (int64_t r = 0; r < repeats; ++r) {
    for (int64_t i = 0; i + 2 * lanes <= n; i += 2 * lanes) {
      vector first, second;  // floats need not be aligned as vectors are
      __builtin_memcpy(&first, a + i, sizeof first);
      __builtin_memcpy(&second, a + i + lanes, sizeof second);
      first *= 1.5f;
      second *= 1.5f;
      __builtin_memcpy(b + i, &first, sizeof first);
      __builtin_memcpy(b + i + lanes, &second, sizeof second);
    }
    asm volatile("" ::: "memory");
  }
}

// The floats of one vector register.
KORCH_EXPORT int64_t korch_lanes() { return KORCH_BYTES / 4; }

// Ten independent chains of fused operations, which fit into the registers and hide the latency of each: 160 operations
// on whole vectors a repeat.
KORCH_EXPORT float korch_arithmetic(int64_t repeats) {
  using vector = float __attribute__((vector_size(KORCH_BYTES)));
  vector x[10];
  for (int i = 0; i < 10; ++i) x[i] = vector{} + (float)i;
  const vector scale = vector{} + 0.999f, shift = vector{} + 0.5f;
  for (int64_t r = 0; r < repeats; ++r)
    for (int j = 0; j < 16; ++j)
      for (int i = 0; i < 10; ++i) x[i] = x[i] * scale + shift;
  float sum = 0;
  for (int i = 0; i < 10; ++i) sum += x[i][i % (KORCH_BYTES / 4)];
  return sum;
}
"""
_EXPORTS = ("korch_stream", "korch_arithmetic", "korch_lanes")
_VECTORS_PER_REPEAT = 160


def calibrate(threads: int, compiler: str, store: ProfileStore, build: Build) -> MachineLimits:
    """Return the machine's limits with `threads` threads; measured once and then kept in the store.

    What is measured beside other processes is too low, and would make promising kernels look hopeless. It is kept too,
    but measured again by a run an hour later, and the best of all counts, until one finds the machine quiet.

    Args:
        threads: that run at the same time.
        compiler: identity of what `build` compiles with.
        store: where the limits are kept.
        build: makes the library that is measured.

    Raises:
        MissingError: what was built does not run on this machine.
    """
    identity = machine_identity(threads)
    key = f"limits/{_PROTOCOL}/{identity}/{compiler}"

    def decode(document: dict[str, Any]) -> MachineLimits:
        bandwidth = tuple((int(size), float(rate)) for size, rate in document["bandwidth"])
        return MachineLimits(identity, threads, bandwidth, float(document["flops_per_second"]), DISPATCH_US)

    def stored() -> tuple[MachineLimits, dict[str, Any]] | None:
        return store.read(key, lambda document: (decode(document), document))

    known = stored()
    if known is not None and not _is_due(known[1]):
        return known[0]
    # One after the other: runs that begin together would each find a machine that the others slow down.
    with store.turn("limits", _LIMIT_S):
        known = stored()
        if known is not None and not _is_due(known[1]):
            return known[0]
        try:
            with Worker() as worker:
                request = {"library": build(_SOURCE, _EXPORTS), "threads": threads}
                measured = worker.ask(("limits", request), _LIMIT_S)
        except WorkerError as error:
            raise MissingError(f"the machine's limits cannot be measured: {error}") from error
        best = _best(None if known is None else known[1], measured | {"busy": _is_busy(), "at": time.time()})
        store.replace(key, best)
        return decode(best)


def _best(first: dict[str, Any] | None, second: dict[str, Any]) -> dict[str, Any]:
    """Return the highest rates of two measurements."""
    if first is None or len(first["bandwidth"]) != len(second["bandwidth"]):
        return second
    pairs = zip(first["bandwidth"], second["bandwidth"], strict=True)
    return {
        "bandwidth": [[size, max(rate, other)] for (size, rate), (_, other) in pairs],
        "flops_per_second": max(first["flops_per_second"], second["flops_per_second"]),
        "busy": second["busy"],
        "at": second["at"],
    }


def _is_due(document: dict[str, Any]) -> bool:
    """Whether limits are to be measured again."""
    return bool(document.get("busy", False)) and time.time() - float(document.get("at", 0.0)) > AGAIN_S


def _is_busy() -> bool:
    return os.getloadavg()[0] > _BUSY * (os.cpu_count() or 1)


def run_limits(library: Path, threads: int) -> dict[str, Any]:
    """Measure all rates with a library of `_SOURCE`: what the child process does."""
    loaded = ctypes.CDLL(str(library))
    loaded.korch_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    loaded.korch_arithmetic.argtypes = [ctypes.c_int64]
    loaded.korch_arithmetic.restype = ctypes.c_float
    loaded.korch_lanes.restype = ctypes.c_int64
    with ThreadPoolExecutor(threads) as pool:
        return {
            "bandwidth": [[size, _bandwidth(loaded, size, threads, pool)] for size in _FOOTPRINTS],
            "flops_per_second": _arithmetic(loaded, threads, pool),
        }


def _bandwidth(library: Any, footprint_bytes: int, threads: int, pool: ThreadPoolExecutor) -> float:
    """Return the best rate in bytes per second when all threads together touch `footprint_bytes`."""
    n = max(256, footprint_bytes // (8 * threads))
    buffers = [(np.ones(n, np.float32), np.ones(n, np.float32)) for _ in range(threads)]

    def stream(thread: int, repeats: int) -> None:
        a, b = buffers[thread]
        library.korch_stream(a.ctypes.data, b.ctypes.data, n, repeats)

    return 8.0 * n * threads * _best_rate(stream, threads, pool)


def _arithmetic(library: Any, threads: int, pool: ThreadPoolExecutor) -> float:
    """Return the best rate in vector operations a second, times the floats of a vector."""

    def compute(_thread: int, repeats: int) -> None:
        library.korch_arithmetic(repeats)

    floats = _VECTORS_PER_REPEAT * int(library.korch_lanes())
    return float(floats) * threads * _best_rate(compute, threads, pool)


def _best_rate(work: Callable[[int, int], None], threads: int, pool: ThreadPoolExecutor) -> float:
    """Return the most repeats a second that every thread reaches, all running at once."""

    def timed(repeats: int) -> float:
        start = time.perf_counter()
        list(pool.map(work, range(threads), [repeats] * threads))
        return time.perf_counter() - start

    repeats = 1
    while timed(repeats) < _PASS_SECONDS:
        repeats *= 2
    return max(repeats / timed(repeats) for _ in range(_PASSES))
