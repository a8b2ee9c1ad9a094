"""Constants, and what follows from constants and static shapes alone, are computed once, here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from korch_cli.core.types import Array, DType, TensorType
from korch_cli.load.infer import infer, types_of
from korch_cli.load.read import captured, external_file, subgraphs

_FOLD_ALWAYS_BYTES = 4 << 10
"""A folded constant up to this size stays in the file even where it is larger than what it was made of."""
_FOLD_READ_BYTES = 32 << 20
"""Constants that are larger in all are not computed with."""
_MAX_ROUNDS = 20
_NEVER = frozenset(
    {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
_CONSTANT_ATTRIBUTES: dict[str, Any] = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": object,
    "value_strings": object,
}


def overridable(proto: onnx.ModelProto) -> frozenset[str]:
    """Return the initializers that a caller may replace: graph inputs too, from IR version 4 on."""
    if proto.ir_version < 4:
        return frozenset()
    inputs = {i.name for i in proto.graph.input}
    return frozenset(tensor.name for tensor in proto.graph.initializer if tensor.name in inputs)


def lift_constants(proto: onnx.ModelProto) -> None:
    """Turn Constant nodes into initializers; sparse ones stay."""
    kept = []
    for node in proto.graph.node:
        tensor = _constant_tensor(node) if node.op_type == "Constant" and node.domain in ("", "ai.onnx") else None
        if tensor is None:
            kept.append(node)
        else:
            tensor.name = node.output[0]
            proto.graph.initializer.append(tensor)
    _replace_nodes(proto.graph, kept)


def fold(proto: onnx.ModelProto, folder: Path) -> tuple[onnx.ModelProto, int]:
    """Fold until nothing is left to fold; return the model with inferred shapes, and the number of folded nodes."""
    total = 0
    for _ in range(_MAX_ROUNDS):
        proto = infer(proto)
        count = _fold_once(proto, folder)
        total += count
        if not count:
            break
    _remove_dead(proto)
    return proto, total


def _fold_once(proto: onnx.ModelProto, folder: Path) -> int:
    graph = proto.graph
    fixed = overridable(proto)
    constants = {t.name: t for t in graph.initializer if t.name not in fixed}
    types = types_of(proto)
    outputs = {o.name for o in graph.output}
    kept, count = [], 0
    for node in graph.node:
        results = None
        if not outputs.intersection(node.output):
            results = _evaluate(node, constants, types, folder, proto.opset_import)
        if results is None:
            kept.append(node)
            continue
        count += 1
        for name, array in results.items():
            tensor = numpy_helper.from_array(array, name)
            graph.initializer.append(tensor)
            constants[name] = tensor
    _replace_nodes(graph, kept)
    return count


def _evaluate(
    node: onnx.NodeProto,
    constants: Mapping[str, onnx.TensorProto],
    types: Mapping[str, TensorType],
    folder: Path,
    opsets: Any,
) -> dict[str, Array] | None:
    """Return the outputs of a node that depends on nothing that is fed, or None."""
    if node.domain not in ("", "ai.onnx") or node.op_type in _NEVER or any(True for _ in subgraphs(node)):
        return None
    names = [name for name in node.input if name]
    if node.op_type in ("Shape", "Size") and names[0] in types:
        # Only the shape counts: a single zero that looks as large as the tensor will do.
        size_bytes = 0
        feeds = {names[0]: np.broadcast_to(np.zeros((), types[names[0]].dtype.numpy), types[names[0]].shape)}
    elif all(name in constants for name in names):
        size_bytes = sum(tensor_bytes(constants[name]) for name in names)
        if size_bytes > _FOLD_READ_BYTES:
            return None
        feeds = {name: read_tensor(constants[name], folder) for name in names}
    else:
        return None
    results = None if _is_large(node, feeds) else _run(node, feeds, opsets)
    if results is None or sum(a.nbytes for a in results.values()) > max(_FOLD_ALWAYS_BYTES, size_bytes):
        return None
    agree = all(n not in types or _type_of(a) == types[n] for n, a in results.items())
    return results if agree else None


def _is_large(node: onnx.NodeProto, feeds: Mapping[str, Array]) -> bool:
    """Whether a node that makes much of little would make more than may be kept."""
    arrays = [feeds[name] for name in node.input if name]
    match node.op_type:
        case "ConstantOfShape":
            return bool(np.prod(arrays[0].astype(np.float64)) > _FOLD_ALWAYS_BYTES)
        case "Range":
            return bool(abs((arrays[1] - arrays[0]) / arrays[2]) > _FOLD_ALWAYS_BYTES)
        case "Expand" | "Tile":
            return bool(arrays[0].size * np.prod(np.maximum(arrays[1], 1).astype(np.float64)) > _FOLD_READ_BYTES)
    return False


def _run(node: onnx.NodeProto, feeds: Mapping[str, Array], opsets: Any) -> dict[str, Array] | None:
    """Return what onnx's reference evaluator makes of one node, or None where it cannot."""
    names = [name for name in node.output if name]
    inputs = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feeds.items()
    ]
    graph = onnx.helper.make_graph([node], "fold", inputs, [onnx.ValueInfoProto(name=name) for name in names])
    try:
        with np.errstate(all="ignore"):
            evaluator = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=list(opsets)))
            arrays = evaluator.run(names, dict(feeds))
    except Exception:
        return None
    if not all(isinstance(a, np.ndarray | np.generic) for a in arrays):
        return None
    return {name: np.asarray(array) for name, array in zip(names, arrays, strict=True)}


def read_tensor(tensor: onnx.TensorProto, folder: Path) -> Array:
    """Return a tensor's elements; external ones are read from their file, nothing else of which is read."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return numpy_helper.to_array(tensor)
    path, offset, length = external_file(tensor, folder)
    with path.open("rb") as file:
        file.seek(offset)
        loaded = onnx.TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=file.read(length))
    return numpy_helper.to_array(loaded)


def tensor_bytes(tensor: onnx.TensorProto) -> int:
    """Return the size of a tensor in memory."""
    dtype = DType.from_onnx(tensor.data_type)
    elements = int(np.prod(tensor.dims, dtype=np.int64))
    return elements * (dtype.size_bytes if dtype else 8)


def _type_of(array: Array) -> TensorType | None:
    dtype = DType.from_numpy(array.dtype)
    return None if dtype is None else TensorType(dtype, tuple(array.shape))


def _constant_tensor(node: onnx.NodeProto) -> onnx.TensorProto | None:
    for attribute in node.attribute:
        if attribute.name == "value":
            tensor = onnx.TensorProto()
            tensor.CopyFrom(attribute.t)
            return tensor
        if attribute.name in _CONSTANT_ATTRIBUTES:
            content = onnx.helper.get_attribute_value(attribute)
            return numpy_helper.from_array(np.array(content, _CONSTANT_ATTRIBUTES[attribute.name]))
    return None


def _remove_dead(proto: onnx.ModelProto) -> None:
    """Remove nodes and initializers that no output depends on."""
    graph = proto.graph
    needed = {o.name for o in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(node.input)
            needed.update(captured(node))
    _replace_nodes(graph, kept[::-1])
    fixed = overridable(proto)
    tensors = [t for t in graph.initializer if t.name in needed or t.name in fixed]
    del graph.initializer[:]
    graph.initializer.extend(tensors)
    infos = [info for info in graph.value_info if info.name in needed]
    del graph.value_info[:]
    graph.value_info.extend(infos)


def _replace_nodes(graph: onnx.GraphProto, nodes: list[onnx.NodeProto]) -> None:
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
