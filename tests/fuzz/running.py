"""ONNX Runtime with everything that it would change switched off, for whole models and for single nodes."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import helper

from korch_cli.core.types import Array, DType

_SILENT = 4
_BF16 = "tensor(bfloat16)"


class Session:
    """A model in ONNX Runtime without graph optimisations, on one thread.

    Args:
        model: a file, or a model.
        library: with the custom operators that it needs.
    """

    def __init__(self, model: Path | onnx.ModelProto, library: Path | None = None) -> None:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = _SILENT
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        if library is not None:
            options.register_custom_ops_library(str(library))
        source = str(model) if isinstance(model, Path) else model.SerializeToString()
        self._session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        self._types = {info.name: info.type for info in self._session.get_outputs()}

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Return the outputs in order. Raises whatever ONNX Runtime raises."""
        # numpy has no bfloat16: such values pass as an OrtValue.
        if _BF16 not in self._types.values() and all(a.dtype != DType.BF16.numpy for a in feeds.values()):
            return [np.asarray(a) for a in self._session.run(None, dict(feeds))]
        found = self._session.run_with_ort_values(list(self._types), {n: _given(a) for n, a in feeds.items()})
        return [_fetched(value, typed) for value, typed in zip(found, self._types.values(), strict=True)]


def _given(array: Array) -> onnxruntime.OrtValue:
    array = np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype == DType.BF16.numpy:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, DType.BF16.onnx)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def _fetched(value: onnxruntime.OrtValue, typed: str) -> Array:
    if typed != _BF16:
        return np.asarray(value.numpy())
    shape = tuple(value.shape())
    size = math.prod(shape) * DType.BF16.size_bytes
    content = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(content, DType.BF16.numpy).reshape(shape)


def value_info(name: str, array: Array) -> onnx.ValueInfoProto:
    """Return the type of an array as ONNX writes it."""
    return helper.make_tensor_value_info(name, dtype_of(array).onnx, array.shape)


def dtype_of(array: Array) -> DType:
    """Return the element type of an array."""
    dtype = DType.from_numpy(array.dtype)
    assert dtype is not None
    return dtype


@dataclass(frozen=True)
class FloatLimits:
    """What a floating-point type can hold: its epsilon, and its largest, smallest normal and smallest numbers."""

    epsilon: float
    most: float
    tiny: float
    least: float

    @property
    def exponent(self) -> int:
        """The binary exponent at which numbers overflow."""
        return math.frexp(self.most)[1]


def float_limits(dtype: DType) -> FloatLimits:
    """Return the limits of a floating-point type."""
    found: Any = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    return FloatLimits(*(float(n) for n in (found.eps, found.max, found.tiny, found.smallest_subnormal)))


def captures(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the outer tensors that the subgraphs of a node read."""
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs
        for graph in graphs:
            inner = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
            inner |= {name for own in graph.node for name in own.output}
            for own in graph.node:
                yield from (name for name in (*own.input, *captures(own)) if name and name not in inner)
            yield from (info.name for info in graph.output if info.name not in inner)


def reads(node: onnx.NodeProto) -> tuple[str, ...]:
    """Return the tensors that a node reads, each one once."""
    return tuple(dict.fromkeys([*(name for name in node.input if name), *captures(node)]))


def node_model(
    node: onnx.NodeProto, fed: Mapping[str, Array], fixed: Sequence[onnx.TensorProto], like: onnx.ModelProto
) -> onnx.ModelProto:
    """Return a model of one node: `fed` are its inputs, `fixed` its initializers, `like` has its opsets."""
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    # Extents are left open: perturbed or special inputs may give other ones.
    inputs = [helper.make_tensor_value_info(n, dtype_of(a).onnx, [None] * a.ndim) for n, a in fed.items()]
    graph = helper.make_graph([node], "node", inputs, outputs, fixed)
    return helper.make_model(graph, opset_imports=like.opset_import, ir_version=max(4, like.ir_version))
