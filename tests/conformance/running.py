"""Running a model in ONNX Runtime with everything that it would change switched off."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
from onnx import helper

_QUIET = 4
_FOREIGN: dict[str, np.dtype[Any]] = {
    "tensor(bfloat16)": np.dtype(ml_dtypes.bfloat16),
    "tensor(float8e4m3fn)": np.dtype(ml_dtypes.float8_e4m3fn),
    "tensor(float8e4m3fnuz)": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "tensor(float8e5m2)": np.dtype(ml_dtypes.float8_e5m2),
    "tensor(float8e5m2fnuz)": np.dtype(ml_dtypes.float8_e5m2fnuz),
}
"""Element types that numpy lacks, by ONNX Runtime's name; they pass as an OrtValue."""
_UNFETCHABLE = ("int2", "int4", "float4", "float8e8m0")
"""Words in the names of element types that Python gets no values of."""


class UnfeedableError(Exception):
    """A value has a type that ONNX Runtime does not take from Python, or does not give to it."""


class Session:
    """A model in ONNX Runtime without graph optimisations, on one thread.

    Args:
        model: a file, or a serialized model.
        library: with the custom operators that it needs.
    """

    def __init__(self, model: Path | bytes, library: Path | None = None) -> None:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = _QUIET
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        if library is not None:
            options.register_custom_ops_library(str(library))
        source = model if isinstance(model, bytes) else str(model)
        self._session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Return the outputs in order: arrays, lists, dictionaries or None.

        Raises:
            UnfeedableError: Python cannot feed an input, or not fetch an output.
            Exception: whatever ONNX Runtime raises.
        """
        outputs = self._session.get_outputs()
        for output in outputs:
            if any(word in output.type for word in _UNFETCHABLE):
                raise UnfeedableError(f"an output is a {output.type}")
        if not any(map(_is_foreign, feeds.values())) and all(output.type not in _FOREIGN for output in outputs):
            _check_native(feeds.values())
            return list(self._session.run(None, dict(feeds)))
        values = {name: _given(value) for name, value in feeds.items()}
        found = self._session.run_with_ort_values([output.name for output in outputs], values)
        return [_fetched(value, output.type) for value, output in zip(found, outputs, strict=True)]


def _is_foreign(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype in _FOREIGN.values()


def _check_native(values: Iterable[Any]) -> None:
    """Raise UnfeedableError if there is an element type that neither numpy nor an OrtValue can hold."""
    for value in values:
        if isinstance(value, np.ndarray) and value.dtype.type.__module__ != "numpy":
            raise UnfeedableError(f"an input is a tensor({value.dtype})")


def _given(value: Any) -> onnxruntime.OrtValue:
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OUS":
        raise UnfeedableError("a sequence or strings lie beside element types that numpy lacks")
    if _is_foreign(value):
        number = helper.np_dtype_to_tensor_dtype(value.dtype)
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(np.asarray(value, order="C"), number)
    _check_native([value])
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.asarray(value, order="C"))


def _fetched(value: onnxruntime.OrtValue, typed: str) -> Any:
    if typed not in _FOREIGN:
        return value.numpy()
    dtype = _FOREIGN[typed]
    shape = tuple(value.shape())
    size = math.prod(shape) * dtype.itemsize
    content = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(content, dtype).reshape(shape)
