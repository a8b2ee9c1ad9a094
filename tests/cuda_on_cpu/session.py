"""Runs a model with a kernel library, in a process of its own: session.py MODEL LIBRARY FEEDS RUNS THREADS > results.

FEEDS is an .npz file; each of THREADS threads runs the model RUNS times. The results are those of the last run, as
.npz. A failure ends it with status 3 and the message on stderr.
"""

from __future__ import annotations

import io
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime


def main() -> int:
    model, library, feeds, runs, threads = sys.argv[1:]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    arrays = dict(np.load(feeds))
    try:
        options.register_custom_ops_library(library)
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        with ThreadPoolExecutor(int(threads)) as pool:
            several = [pool.submit(_run, session, arrays, int(runs)) for _ in range(int(threads))]
            results = [future.result() for future in several]
    except Exception as error:
        print(error, file=sys.stderr)
        return 3
    for other in results[1:]:
        for name in other:
            assert np.array_equal(results[0][name], other[name], equal_nan=True), name
    written = io.BytesIO()
    np.savez(written, **results[0])  # type: ignore[arg-type]
    sys.stdout.buffer.write(written.getvalue())
    del session
    return 0


def _run(session: onnxruntime.InferenceSession, feeds: dict[str, np.ndarray], runs: int) -> dict[str, np.ndarray]:
    names = [output.name for output in session.get_outputs()]
    for _ in range(runs):
        values = session.run(names, feeds)
    return dict(zip(names, values, strict=True))


if __name__ == "__main__":
    sys.exit(main())
