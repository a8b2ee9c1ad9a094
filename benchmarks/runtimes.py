"""The runtimes that models are compared in. Each is imported in the process that uses it, and only there."""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

Feeds = dict[str, np.ndarray[Any, Any]]

LINEAR = ("Conv", "Gemm", "MatMul", "Integer", "LSTM", "GRU", "RNN", "Attention")
"""Parts of the names of operators whose time goes into products; vendors compute those near the machine's limit."""


class OnnxRuntime:
    """ONNX Runtime on the CPU, with all of its optimisations or with none, and with a library of custom operators."""

    def __init__(
        self, *, model: str, feeds: Feeds, threads: int, library: str | None = None, optimize: bool = True
    ) -> None:
        import onnxruntime

        self._module, self._model, self._threads, self._library = onnxruntime, model, threads, library
        self._session = onnxruntime.InferenceSession(
            model, self._options(optimize=optimize), providers=["CPUExecutionProvider"]
        )
        self._feeds = feeds

    def run(self) -> list[Any]:
        """Run once and return the outputs."""
        return list(self._session.run(None, self._feeds))

    def shares(self) -> dict[str, float]:
        """Return the share of the time of each type of operator, by ONNX Runtime's profiler."""
        options = self._options(optimize=True)
        options.enable_profiling = True
        with tempfile.TemporaryDirectory() as folder:
            options.profile_file_prefix = f"{folder}/profile"
            session = self._module.InferenceSession(self._model, options, providers=["CPUExecutionProvider"])
            for _ in range(10):
                session.run(None, self._feeds)
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        times: Counter[str] = Counter()
        for event in events:
            if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
                times[event["args"]["op_name"]] += event["dur"]
        total = sum(times.values()) or 1
        return {name: time / total for name, time in times.most_common()}

    def _options(self, *, optimize: bool) -> Any:
        options = self._module.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.log_severity_level = 4
        levels = self._module.GraphOptimizationLevel
        options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL
        if self._library is not None:
            options.register_custom_ops_library(self._library)
        return options


class OpenVino:
    """OpenVINO on the CPU; in f32, for by default it rounds to bf16 where the processor can."""

    def __init__(self, *, model: str, feeds: Feeds, threads: int) -> None:
        import openvino

        core = openvino.Core()
        read = core.read_model(model)
        names = [name for port in read.inputs for name in [port.any_name] if name in feeds]
        read.reshape({name: openvino.PartialShape(list(feeds[name].shape)) for name in names})
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
        }
        self._request = core.compile_model(read, "CPU", settings).create_infer_request()
        self._feeds = {name: feeds[name] for name in names}

    def run(self) -> list[Any]:
        """Run once and return the outputs."""
        results = self._request.infer(self._feeds, share_inputs=True, share_outputs=True)
        return [np.array(results[i]) for i in range(len(results))]


class Inductor:
    """torch.compile with its CPU backend and frozen weights, of the network that the ONNX file was exported from."""

    def __init__(self, *, network: str, shape: list[int], models: str, feeds: Feeds, threads: int) -> None:
        import torch
        import torch._inductor.config as inductor

        torch.set_num_threads(threads)
        inductor.freezing = True
        sys.path.insert(0, models)
        from export import made

        self._torch = torch
        self._model = torch.compile(made(network, tuple(shape)), backend="inductor")
        self._inputs = [torch.from_numpy(array) for array in feeds.values()]

    def run(self) -> list[Any]:
        """Run once and return the outputs."""
        with self._torch.inference_mode():
            found = self._model(*self._inputs)
        flat = list(found) if isinstance(found, tuple | list) else [found]
        return [tensor.numpy() for tensor in flat]


class Tvm:
    """Apache TVM without tuning: its pre-defined pipeline for this processor."""

    def __init__(self, *, model: str, feeds: Feeds, threads: int) -> None:
        import os

        os.environ["TVM_NUM_THREADS"] = str(threads)
        import onnx
        import tvm
        from tvm import relax
        from tvm.relax.frontend.onnx import from_onnx

        proto = onnx.load(model)
        module = from_onnx(proto, shape_dict={name: list(array.shape) for name, array in feeds.items()})
        module = relax.transform.DecomposeOpsForInference()(module)
        target = tvm.target.Target.from_device(tvm.cpu())
        executable = tvm.compile(module, target=target)
        self._device = tvm.cpu()
        self._machine = relax.VirtualMachine(executable, self._device)
        self._inputs = [tvm.runtime.tensor(array, self._device) for array in feeds.values()]

    def run(self) -> list[Any]:
        """Run once and return the outputs."""
        found = self._machine["main"](*self._inputs)
        flat = [found] if hasattr(found, "numpy") else list(found)
        return [tensor.numpy() for tensor in flat]


class Copy:
    """Copies as many bytes as a kernel reads and writes, half of them each way, with as many threads."""

    def __init__(self, *, library: str, copied: int, feeds: Feeds, threads: int) -> None:
        import ctypes

        del feeds
        self._copy = ctypes.CDLL(library).copy_bytes
        self._source, self._target = np.ones(copied, np.uint8), np.zeros(copied, np.uint8)
        self._arguments = (
            ctypes.c_void_p(self._target.ctypes.data),
            ctypes.c_void_p(self._source.ctypes.data),
            ctypes.c_size_t(copied),
            ctypes.c_int(threads),
        )

    def run(self) -> list[Any]:
        """Run once and return the outputs."""
        self._copy(*self._arguments)
        return []


class InductorPattern:
    """torch.compile of one of the patterns, with its weights frozen."""

    def __init__(self, *, number: int, patterns: str, feeds: Feeds, threads: int) -> None:
        import torch
        import torch._inductor.config as inductor

        torch.set_num_threads(threads)
        inductor.freezing = True
        sys.path.insert(0, patterns)
        from patterns import PATTERNS

        pattern = PATTERNS[number]
        tensors = {name: torch.from_numpy(np.asarray(array)) for name, array in pattern.arrays().items()}
        weights = torch.nn.ParameterDict({n: torch.nn.Parameter(t) for n, t in tensors.items() if n in pattern.weights})
        numbers = {n: t.item() for n, t in tensors.items() if n not in pattern.weights and t.numel() == 1}

        class Module(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.weights = weights

            def forward(self, *inputs: Any) -> Any:
                named = dict(zip(pattern.inputs, inputs, strict=True))
                return pattern.function(torch, **named, **self.weights, **numbers)

        self._torch = torch
        self._model = torch.compile(Module().eval(), backend="inductor")
        self._inputs = [torch.from_numpy(array) for array in feeds.values()]

    def run(self) -> list[Any]:
        """Run once and return the outputs."""
        with self._torch.inference_mode():
            return [self._model(*self._inputs).numpy()]
