"""Data that a model keeps in other files: found wherever a tensor may stand, and copied without being held."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import onnx

from korch_cli.core.errors import ModelError
from korch_cli.core.types import DType

_COPY_BYTES = 16 << 20
_ALIGNMENT = 64
"""Offsets are multiples of this, so that mapped data can be read in whole cache lines."""


def external_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The tensors whose data lies in other files, subgraphs and functions included."""
    found = [*_tensors_of(proto.graph), *(t for f in proto.functions for t in _tensors_in(f.node))]
    return (tensor for tensor in found if tensor.data_location == onnx.TensorProto.EXTERNAL)


def copy_external(proto: onnx.ModelProto, folder: Path, name: str, out: BinaryIO) -> None:
    """Copy all external data of a model to the file `out`, and let its tensors refer to that file as `name`.

    Raises:
        ModelError: external data is missing, shorter than it says, or outside `folder`.
    """
    places: dict[tuple[str, str, str], tuple[int, int]] = {}
    for tensor in external_tensors(proto):
        entries = {entry.key: entry.value for entry in tensor.external_data}
        range_ = (entries.get("location", ""), entries.get("offset") or "0", entries.get("length") or _length(tensor))
        if range_ not in places:
            out.write(b"\0" * (-out.tell() % _ALIGNMENT))
            start = out.tell()
            places[range_] = (start, _copy_range(folder, range_, out, tensor.name))
        start, length = places[range_]
        del tensor.external_data[:]
        for key, value in (("location", name), ("offset", str(start)), ("length", str(length))):
            tensor.external_data.add(key=key, value=value)


def _length(tensor: onnx.TensorProto) -> str:
    """Return the bytes of a tensor that does not say, "" for an element type that korch does not know: all the rest."""
    dtype = DType.from_onnx(tensor.data_type)
    return "" if dtype is None else str(dtype.size_bytes * math.prod(tensor.dims))


def _copy_range(folder: Path, range_: tuple[str, str, str], out: BinaryIO, name: str) -> int:
    """Copy one range in parts; return its length in bytes."""
    location, offset, length = range_
    relative = PurePosixPath(location)
    if not location or relative.is_absolute() or ".." in relative.parts:
        raise ModelError(f"external data lies outside the model's folder: {location!r}", where=name)
    try:
        file = (folder / location).open("rb")
    except OSError as error:
        raise ModelError(f"external data cannot be read: {error.strerror}", where=str(folder / location)) from error
    with file:
        size = file.seek(0, 2)
        begin = int(offset)
        left = copied = int(length) if length else max(0, size - begin)
        if begin + left > size:
            raise ModelError(f"external data ends {begin + left - size} bytes early", where=name)
        file.seek(begin)
        while left:
            part = file.read(min(left, _COPY_BYTES))
            if not part:
                raise ModelError(f"external data ends {left} bytes early", where=name)
            out.write(part)
            left -= len(part)
    return copied


def _tensors_of(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _tensors_in(graph.node)


def _tensors_in(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == onnx.AttributeProto.GRAPH:
                yield from _tensors_of(attribute.g)
            yield from attribute.tensors
            for graph in attribute.graphs:
                yield from _tensors_of(graph)
