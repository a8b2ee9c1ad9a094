"""The child of a contest: opens one model in one runtime and answers requests, a line of JSON each."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    """Answer until the parent closes the pipe; what runtimes print goes nowhere."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = _Worker()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(worker, request.pop("do"))(**request)
        except ImportError as error:
            answer = {"status": "missing", "failure": f"It is not installed: {error}."}
        except Exception as error:
            text = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
            answer = {"failure": f"{type(error).__name__}: {text}"}
        answers.write(json.dumps(answer) + "\n")


class _Worker:
    def open(self, runtime: str, options: dict[str, Any], inputs: str, threads: int) -> dict[str, Any]:
        """Load the model; the runtime's package is imported here."""
        with np.load(inputs, allow_pickle=False) as archive:
            feeds = {name: archive[name] for name in archive.files}
        self._runtime = _class_of(runtime)(feeds=feeds, threads=threads, **options)
        return {}

    def block(self, seconds: float) -> dict[str, Any]:
        """Run until the time is up, once at least."""
        times: list[float] = []
        wall, cpu = time.perf_counter(), _awake_seconds()
        while True:
            started = time.perf_counter()
            self._outputs = self._runtime.run()
            ended = time.perf_counter()
            times.append((ended - started) * 1e6)
            if ended - wall >= seconds:
                return {"times_us": times, "awake_s": _awake_seconds() - cpu, "wall_s": ended - wall}

    def outputs(self, path: str) -> dict[str, Any]:
        """Write what the last run computed."""
        arrays: dict[str, Any] = {f"o{i}": np.asarray(o) for i, o in enumerate(self._outputs)}
        np.savez(path, **arrays)
        return {}

    def memory(self) -> dict[str, Any]:
        """Return the largest size that the process had."""
        return {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}

    def profile(self) -> dict[str, Any]:
        """Return the time of each type of operator, where the runtime can tell."""
        return {"shares": self._runtime.shares()}


def _awake_seconds() -> float:
    """Return the time that this process's threads ran, or waited for a processor that others had."""
    total = 0
    for task in Path("/proc/self/task").iterdir():
        try:
            ran, waited, _ = (task / "schedstat").read_text(encoding="ascii").split()
        except OSError:
            continue
        total += int(ran) + int(waited)
    return total / 1e9


def _class_of(runtime: str) -> Any:
    """Return a class of `runtimes`, or of the file that is named before the colon."""
    path, _, name = runtime.rpartition(":")
    file = Path(path) if path else Path(__file__).with_name("runtimes.py")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


if __name__ == "__main__":
    main()
