"""Runs a model with a kernel library, in a process of its own: session.py MODEL LIBRARY FEEDS RUNS THREADS [DEVICE...].

FEEDS is an .npz file; each of THREADS threads runs the model RUNS times, on every DEVICE in turn if there are any:
LIBRARY is then what on_device.cpp makes. The results are those of the last run, as .npz on stdout. A failure ends it
with status 3 and the message on stderr. Where KORCH_SESSION_CURRENT names a device, threads have made its context the
current one before, as an application may that uses CUDA itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime


def main() -> int:
    model, library, feeds, runs, threads, *devices = sys.argv[1:]
    arrays = dict(np.load(feeds))
    try:
        sessions = [_session(model, library, device) for device in devices or (None,)]
        with ThreadPoolExecutor(int(threads)) as pool:
            several = [pool.submit(_run, sessions, arrays, int(runs)) for _ in range(int(threads))]
            results = [result for future in several for result in future.result()]
    except Exception as error:
        print(error, file=sys.stderr)
        return 3
    for other in results[1:]:
        for name in other:
            assert np.array_equal(results[0][name], other[name], equal_nan=True), name
    written = io.BytesIO()
    np.savez(written, **results[0])  # type: ignore[arg-type]
    sys.stdout.buffer.write(written.getvalue())
    del sessions
    return 0


def _session(model: str, library: str, device: str | None) -> onnxruntime.InferenceSession:
    if device is not None:
        os.environ["KORCH_ON_DEVICE"] = device
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(library)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _run(
    sessions: Sequence[onnxruntime.InferenceSession], feeds: dict[str, np.ndarray], runs: int
) -> list[dict[str, np.ndarray]]:
    """Return the last results of each session."""
    names = [output.name for output in sessions[0].get_outputs()]
    with _current_context(os.environ.get("KORCH_SESSION_CURRENT")):
        for _ in range(runs):
            values = [session.run(names, feeds) for session in sessions]
    return [dict(zip(names, own, strict=True)) for own in values]


@contextlib.contextmanager
def _current_context(device: str | None) -> Iterator[None]:
    if device is None:
        yield
        return
    driver, own, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(own), int(device)) == 0
    assert driver.cuCtxPushCurrent_v2(own) == 0
    yield
    assert driver.cuCtxPopCurrent_v2(ctypes.byref(found)) == 0
    assert found.value == own.value, "another context than the application's is current"
    assert driver.cuDevicePrimaryCtxRelease_v2(int(device)) == 0


if __name__ == "__main__":
    sys.exit(main())
