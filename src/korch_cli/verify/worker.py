"""The child process: reads requests from a pipe, runs a model in ONNX Runtime, writes answers.

A request is a tuple (verb, arguments...); an answer is ("done", value) or ("failed", stage, sentence).
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from korch_cli.core.ortvalue import Runner
    from korch_cli.core.types import Array

_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""
_MESSAGE_CHARACTERS = 400
_CPU = "CPUExecutionProvider"


class _FailureError(Exception):
    def __init__(self, stage: str, sentence: str) -> None:
        super().__init__(stage, sentence)


class _Runner:
    """Holds the session of the model that was opened last."""

    def __init__(self) -> None:
        self._session: Any = None
        self._run: Runner

    def open(
        self,
        model: str,
        library: str | None,
        optimize: bool,
        threads: int,
        profile: str | None,
        provider: str,
        exact: bool,
    ) -> None:
        """Make the session."""
        import onnxruntime as ort

        from korch_cli.core.ortvalue import runner

        self._session = None
        ort.disable_telemetry_events()
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        levels = ort.GraphOptimizationLevel
        options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL
        if profile is not None:
            options.enable_profiling = True
            options.profile_file_prefix = profile
            options.optimized_model_filepath = f"{profile}.onnx"
            # Weights beside the model: a protobuf ends at 2 GiB.
            weights = "session.optimized_model_external_initializers_file_name"
            options.add_session_config_entry(weights, f"{os.path.basename(profile)}.weights")  # noqa: PTH119
        if library is not None:
            try:
                options.register_custom_ops_library(library)
            except Exception as error:
                raise _FailureError("library", f"ONNX Runtime refuses its library: {_first_line(error)}") from error
        try:
            providers = [_CPU] if provider == _CPU else [(provider, {"use_tf32": "0"} if exact else {}), _CPU]
            self._session = ort.InferenceSession(model, options, providers=providers)
        except Exception as error:
            raise _FailureError("open", f"ONNX Runtime cannot load it: {_first_line(error)}") from error
        if provider not in self._session.get_providers():
            # ONNX Runtime falls back to the CPU without an error.
            raise _FailureError("open", f"ONNX Runtime does not run it on the {provider}; its log says why")
        self._run = runner(self._session)

    def run(self, feeds: Mapping[str, Array]) -> tuple[tuple[str, Array], ...]:
        """Return the outputs by name."""
        values = self._execute(feeds)
        names = [output.name for output in self._session.get_outputs()]
        return tuple(pair for name, value in zip(names, values, strict=True) for pair in _arrays(name, value))

    def time(self, feeds: Mapping[str, Array], seconds: float) -> tuple[float, ...]:
        """Return the times of runs in microseconds, without the first one, which finds the caches cold."""
        times: list[float] = []
        run = self._on_device(feeds) or functools.partial(self._execute, feeds)
        end = time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            start = time.perf_counter_ns()
            run()
            times.append((time.perf_counter_ns() - start) / 1e3)
        return tuple(times[1:] or times)

    def _on_device(self, feeds: Mapping[str, Array]) -> Callable[[], object] | None:
        """Return a run whose operands and results stay on the GPU, as they do in a pipeline; None on the CPU."""
        provider = self._session.get_providers()[0]
        # ONNX Runtime takes no bfloat16 from numpy.
        if provider == _CPU or any(array.dtype.name == "bfloat16" for array in feeds.values()):
            return None
        import onnxruntime as ort

        binding = self._session.io_binding()
        for name, array in feeds.items():
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
        for output in self._session.get_outputs():
            binding.bind_output(output.name, "cuda")
        return functools.partial(self._session.run_with_iobinding, binding)

    def profile(self, feeds: Mapping[str, Array], runs: int) -> str:
        """Run some times and return the path of ONNX Runtime's profile."""
        for _ in range(runs):
            self._execute(feeds)
        return str(self._session.end_profiling())

    def _execute(self, feeds: Mapping[str, Array]) -> list[Any]:
        try:
            return self._run(feeds)
        except Exception as error:
            raise _FailureError("run", f"ONNX Runtime cannot run it: {_first_line(error)}") from error


def _arrays(name: str, value: object) -> list[tuple[str, Array]]:
    """Take sequences and maps apart; an optional output without a value has no arrays."""
    import numpy as np

    if value is None:
        return []
    if isinstance(value, list):
        return [pair for i, item in enumerate(value) for pair in _arrays(f"{name}[{i}]", item)]
    if isinstance(value, dict):
        return [pair for key, item in value.items() for pair in _arrays(f"{name}[{key!r}]", item)]
    return [(name, np.asarray(value))]


def _first_line(error: Exception) -> str:
    line = _without_origin((str(error).strip() or type(error).__name__).splitlines()[0])
    return line if len(line) <= _MESSAGE_CHARACTERS else f"{line[:_MESSAGE_CHARACTERS]}..."


def _without_origin(line: str) -> str:
    """Return a message of ONNX Runtime without the source file and the signature that it begins with."""
    found = re.search(r"/\S+\.(?:cc|cpp|h):\d+ [^(]*\(", line)
    if found is None:
        return line
    depth, end = 1, found.end()
    while depth and end < len(line):
        depth += {"(": 1, ")": -1}.get(line[end], 0)
        end += 1
    return line[: found.start()] + line[end:].lstrip(" [")


def _tie_to_parent() -> None:
    """Leave interrupts to the parent, which ends this process, and end with it when it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def serve(pipe: Connection) -> None:
    """Answer requests until the parent closes the pipe."""
    runner = _Runner()
    verbs: dict[str, Callable[..., object]] = {
        "open": runner.open,
        "run": runner.run,
        "time": runner.time,
        "profile": runner.profile,
    }
    while True:
        try:
            verb, *arguments = pipe.recv()
        except EOFError:
            return
        answer: tuple[object, ...]
        try:
            answer = ("done", verbs[verb](*arguments))
        except _FailureError as failure:
            answer = ("failed", *failure.args)
        pipe.send(answer)


def main() -> None:
    """Serve the pipe whose file descriptor is the only argument."""
    _tie_to_parent()
    with Connection(int(sys.argv[1])) as pipe:
        serve(pipe)
    # Sessions are not torn down: a library's destructors must not turn an answer that was given into a crash.
    os._exit(0)


if __name__ == "__main__":
    main()
