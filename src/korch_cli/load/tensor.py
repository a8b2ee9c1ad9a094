"""Tensors of a file: their size, their elements, and the other files that hold those of large models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np
import onnx
from onnx import numpy_helper

from korch_cli.core.errors import ModelError
from korch_cli.core.types import Array, DType
from korch_cli.load.structure import subgraphs


def tensor_bytes(tensor: onnx.TensorProto) -> int | None:
    """Return the size of a tensor's elements in memory, None for element types that korch does not know."""
    dtype = DType.from_onnx(tensor.data_type)
    if dtype is None or dtype is DType.STRING:
        return None
    return dtype.size_bytes * int(math.prod(tensor.dims))


def read_tensor(tensor: onnx.TensorProto, folder: Path) -> Array:
    """Return a tensor's elements; of a file with external data nothing else is read.

    Raises:
        ModelError: the elements do not fill the shape, or external data is missing, short or outside `folder`.
    """
    try:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            array = numpy_helper.to_array(tensor)
        else:
            array = _read_external(tensor, folder)
    except (ValueError, TypeError) as error:
        raise ModelError(f"the elements do not fill the shape {list(tensor.dims)}", where=tensor.name) from error
    dtype = DType.from_onnx(tensor.data_type)
    # Older releases of onnx widen bfloat16 to float32.
    return array if dtype is None else array.astype(dtype.numpy, copy=False)


def external_entries(tensor: onnx.TensorProto) -> dict[str, str]:
    """Return what an external tensor says of where its elements lie, by key: location, offset, length."""
    return {entry.key: entry.value for entry in tensor.external_data}


def check_tensor(tensor: onnx.TensorProto, folder: Path, where: str) -> None:
    """Check what a tensor says of its elements, which are not read.

    Raises:
        ModelError: as `read_tensor`; `where` stands for the name of a tensor that has none.
    """
    if any(extent < 0 for extent in tensor.dims):
        raise ModelError(f"the shape {list(tensor.dims)} is negative", where=tensor.name or where)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        _external_range(tensor, folder, tensor.name or where)
    elif tensor.HasField("raw_data") and tensor_bytes(tensor) not in (None, len(tensor.raw_data)):
        message = f"{len(tensor.raw_data)} bytes do not fill the shape {list(tensor.dims)}"
        raise ModelError(message, where=tensor.name or where)


def all_tensors(graph: onnx.GraphProto) -> Iterator[tuple[onnx.TensorProto, str]]:
    """Every tensor in a graph and its subgraphs, with the name of what holds it."""
    for tensor in graph.initializer:
        yield tensor, tensor.name
    for sparse in graph.sparse_initializer:
        yield sparse.values, sparse.values.name
        yield sparse.indices, sparse.values.name
    yield from node_tensors(graph.node)


def node_tensors(nodes: Iterable[onnx.NodeProto]) -> Iterator[tuple[onnx.TensorProto, str]]:
    """Every tensor among the attributes of nodes and in their subgraphs, with the name of its node."""
    for node in nodes:
        where = f"{node.op_type} {node.name}".strip()
        for attribute in node.attribute:
            dense = [attribute.t] if attribute.HasField("t") else []
            sparse = [
                *attribute.sparse_tensors,
                *([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []),
            ]
            for tensor in (*dense, *attribute.tensors, *(part for s in sparse for part in (s.values, s.indices))):
                yield tensor, where
        for graph in subgraphs(node):
            yield from all_tensors(graph)


def _read_external(tensor: onnx.TensorProto, folder: Path) -> Array:
    path, offset, length = _external_range(tensor, folder, tensor.name)
    with path.open("rb") as file:
        file.seek(offset)
        content = file.read(length)
    dtype = DType.from_onnx(tensor.data_type)
    if dtype is None:
        return numpy_helper.to_array(onnx.TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=content))
    return np.frombuffer(content, dtype.numpy.newbyteorder("<")).reshape(tuple(tensor.dims))


def _external_range(tensor: onnx.TensorProto, folder: Path, where: str) -> tuple[Path, int, int]:
    """Return the file, the offset and the length in bytes of an external tensor."""
    entries = external_entries(tensor)
    path = _contained(entries.get("location", ""), folder, where)
    try:
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or -1)
    except ValueError as error:
        raise ModelError("the offset or length of its external data is no number", where=where) from error
    available = path.stat().st_size - offset
    needed = tensor_bytes(tensor)
    if needed is None:
        needed = length if length >= 0 else max(available, 0)
    if offset < 0 or needed > available or 0 <= length < needed:
        message = f"its external data needs {needed} bytes from {offset} on, more than {path.name!r} has for it"
        raise ModelError(message, where=where)
    return path, offset, needed


def _contained(location: str, folder: Path, where: str) -> Path:
    parts = (*PurePosixPath(location).parts, *PureWindowsPath(location).parts)
    absolute = PurePosixPath(location).is_absolute() or bool(PureWindowsPath(location).anchor)
    target = folder / location
    foreign = not location or "\0" in location or absolute or ".." in parts
    if foreign or not target.resolve().is_relative_to(folder.resolve()):
        raise ModelError(
            f"external data {location!r} lies outside the model's folder",
            where=where,
            hint="put the file itself, not a link to it, beside the model",
        )
    if not target.is_file():
        raise ModelError(f"the file {location!r} with external data is missing", where=where)
    if target.stat().st_nlink > 1:
        raise ModelError(
            f"external data {location!r} is a hard link, whose other name may lie outside the model's folder",
            where=where,
            hint="copy it: cp FILE FILE.copy && mv FILE.copy FILE",
        )
    return target
