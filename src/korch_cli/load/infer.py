"""Static types of all tensors."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from korch_cli.core.types import DType, TensorType
from korch_cli.load.bind import is_static


def forget_shapes(proto: onnx.ModelProto) -> None:
    """Remove recorded shapes that inputs with other dimensions make stale; inference finds them again."""
    del proto.graph.value_info[:]
    for output in proto.graph.output:
        if output.type.HasField("tensor_type") and not all(map(is_static, output.type.tensor_type.shape.dim)):
            output.type.tensor_type.ClearField("shape")


def infer(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with every type that can be inferred; where inference fails, with what it has."""
    # What an earlier pass could only name stands in the way of what this one finds out.
    static = [info for info in proto.graph.value_info if info.name in _stated([info])]
    del proto.graph.value_info[:]
    proto.graph.value_info.extend(static)
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except Exception:
        return proto
    assert isinstance(inferred, onnx.ModelProto)
    return inferred


def types_of(proto: onnx.ModelProto) -> dict[str, TensorType]:
    """Return the static types that the model states, by tensor; tensors without one are absent."""
    graph = proto.graph
    found: dict[str, TensorType] = {}
    for tensor in graph.initializer:
        dtype = DType.from_onnx(tensor.data_type)
        if dtype is not None:
            found[tensor.name] = TensorType(dtype, tuple(tensor.dims))
    found.update(_stated((*graph.input, *graph.output, *graph.value_info)))
    return found


def _stated(infos: Iterable[onnx.ValueInfoProto]) -> dict[str, TensorType]:
    found = {}
    for info in infos:
        if not info.type.HasField("tensor_type") or not info.type.tensor_type.HasField("shape"):
            continue
        dtype = DType.from_onnx(info.type.tensor_type.elem_type)
        dims = info.type.tensor_type.shape.dim
        if dtype is not None and all(map(is_static, dims)):
            found[info.name] = TensorType(dtype, tuple(d.dim_value for d in dims))
    return found
