"""From a file to a protobuf whose structure can be trusted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from korch_cli.core.errors import ModelError, UsageError
from korch_cli.load.structure import check_structure, label, subgraphs
from korch_cli.load.tensor import all_tensors, check_tensor, node_tensors


def read_model(path: Path) -> onnx.ModelProto:
    """Return the model in `path`; data in other files is not read.

    Raises:
        UsageError: there is no such file, or it cannot be opened.
        ModelError: it is no ONNX model, its graph is not well-formed, or its external data is missing or lies outside
            the model's folder.
    """
    proto = _parsed(_content(path), path)
    graph = proto.graph
    if not graph.node or not graph.output:
        raise ModelError("the model's graph is empty: it has no nodes or no outputs", where=str(path))
    if not proto.opset_import:
        raise ModelError("the model imports no opset", where=str(path))
    _check_names(proto)
    _check_attributes(graph.node)
    _check_inputs(graph)
    check_structure(graph)
    for tensor, where in all_tensors(graph):
        check_tensor(tensor, path.parent, where)
    for function in proto.functions:
        _check_attributes(function.node)
        for tensor, where in node_tensors(function.node):
            check_tensor(tensor, path.parent, where)
    return proto


def _content(path: Path) -> bytes:
    if path.is_dir():
        raise UsageError("this is a folder, not a model file", where=str(path), hint="name the .onnx file in it")
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise UsageError("there is no such model file", where=str(path)) from error
    except OSError as error:
        raise UsageError(f"the model file cannot be read: {error.strerror}", where=str(path)) from error


def _parsed(content: bytes, path: Path) -> onnx.ModelProto:
    try:
        proto = onnx.ModelProto.FromString(content)
    except DecodeError as error:
        raise ModelError("this is no ONNX model: its protobuf cannot be read", where=str(path)) from error
    if not proto.HasField("graph"):
        raise ModelError("this is no ONNX model: it holds no graph", where=str(path))
    assert isinstance(proto, onnx.ModelProto)
    return proto


def _check_names(proto: onnx.ModelProto) -> None:
    """Make sure that names are text: protobuf gives the bytes of what is not UTF-8."""
    names = list(_names_in(proto.graph))
    names += [name for f in proto.functions for name in (f.name, f.domain, *f.input, *f.output, *_names_of(f.node))]
    names += [opset.domain for opset in proto.opset_import]
    odd = next((name for name in names if isinstance(name, bytes)), None)
    if odd is not None:
        hint = "give it another one, or write it in UTF-8 as ONNX asks for"
        raise ModelError("a name in the model is no UTF-8 text", where=repr(odd), hint=hint)


def _names_in(graph: onnx.GraphProto) -> Iterator[str | bytes]:
    for info in (*graph.input, *graph.output, *graph.value_info):
        yield info.name
        yield from (dim.dim_param for dim in info.type.tensor_type.shape.dim)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (tensor.values.name for tensor in graph.sparse_initializer)
    yield from _names_of(graph.node)


def _names_of(nodes: Iterable[onnx.NodeProto]) -> Iterator[str | bytes]:
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
        for graph in subgraphs(node):
            yield from _names_in(graph)


def _check_attributes(nodes: Iterable[onnx.NodeProto]) -> None:
    """Make sure that attributes say what they hold, which files of ONNX's first days do not."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.UNDEFINED:
                raise ModelError(f"the attribute {attribute.name!r} has no type", where=label(node))
        for graph in subgraphs(node):
            _check_attributes(graph.node)


def _check_inputs(graph: onnx.GraphProto) -> None:
    for info in graph.input:
        kind = info.type.WhichOneof("value")
        if kind is None or (kind == "tensor_type" and not info.type.tensor_type.elem_type):
            raise ModelError(f"the graph's input {info.name!r} has no type", where=graph.name or None)
        if kind == "tensor_type" and info.type.tensor_type.elem_type not in onnx.TensorProto.DataType.values():
            number = info.type.tensor_type.elem_type
            raise ModelError(f"there is no element type {number}, which an input has", where=info.name)
