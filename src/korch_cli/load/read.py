"""From a file to a protobuf whose structure can be trusted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from korch_cli.core.errors import ModelError, UsageError


def read_model(path: Path) -> onnx.ModelProto:
    """Return the model in `path`; data in other files is not read.

    Raises:
        UsageError: there is no such file.
        ModelError: it is no ONNX model, its graph is not well-formed, or its external data is missing or lies outside
            the model's folder.
    """
    if not path.is_file():
        raise UsageError("there is no such model file", where=str(path))
    try:
        proto = onnx.load_model(str(path), load_external_data=False)
    except (DecodeError, ValueError) as error:
        raise ModelError("this is not an ONNX model: its protobuf cannot be read", where=str(path)) from error
    if not proto.HasField("graph") or not proto.graph.output or not proto.opset_import:
        raise ModelError("this is no ONNX model: it has no graph with outputs, or imports no opset", where=str(path))
    _check_names(proto.graph)
    for tensor in proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            external_file(tensor, path.parent)
    return proto


def external_file(tensor: onnx.TensorProto, folder: Path) -> tuple[Path, int, int]:
    """Return the file, the offset and the length in bytes (-1 for all the rest) of an external tensor.

    Raises:
        ModelError: the file is missing or lies outside the model's folder.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    target = folder / location
    inside = target.resolve().is_relative_to(folder.resolve())
    if not location or Path(location).is_absolute() or not inside:
        raise ModelError(f"external data {location!r} lies outside the model's folder", where=tensor.name)
    if not target.is_file():
        raise ModelError(f"the file {location!r} with external data is missing", where=tensor.name)
    return target, int(entries.get("offset") or 0), int(entries.get("length") or -1)


def sorted_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the nodes in a topological order that keeps the file's order where it can.

    Raises:
        ModelError: the nodes form a loop.
    """
    writer = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    waits = [{writer[n] for n in (*node.input, *captured(node)) if n in writer} for node in graph.node]
    done: set[int] = set()
    order: list[int] = []
    pending = list(range(len(waits)))
    while pending:
        later = []
        for i in pending:
            if waits[i] <= done:
                done.add(i)
                order.append(i)
            else:
                later.append(i)
        if len(later) == len(pending):
            stuck = graph.node[later[0]]
            raise ModelError("the graph has a loop", where=f"{stuck.op_type} {stuck.name or list(stuck.output)}")
        pending = later
    return [graph.node[i] for i in order]


def captured(node: onnx.NodeProto) -> Iterator[str]:
    """The outer tensors that a node's subgraphs read, each once."""
    seen: dict[str, None] = {}
    for graph in subgraphs(node):
        local = {i.name for i in graph.input} | {i.name for i in graph.initializer}
        for inner in graph.node:
            for name in (*inner.input, *captured(inner)):
                if name and name not in local:
                    seen[name] = None
            local.update(inner.output)
        seen.update((o.name, None) for o in graph.output if o.name not in local)
    yield from seen


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def _check_names(graph: onnx.GraphProto) -> None:
    sparse = {tensor.values.name for tensor in graph.sparse_initializer}
    given = {i.name for i in graph.input} | {i.name for i in graph.initializer} | sparse
    made: set[str] = set()
    for node in graph.node:
        for name in node.output:
            if name and (name in made or name in given):
                raise ModelError(f"tensor {name!r} is defined twice", where=f"{node.op_type} {node.name}")
            made.add(name)
    for node in graph.node:
        for name in (*node.input, *captured(node)):
            if name and name not in made and name not in given:
                raise ModelError(f"nothing defines the input {name!r}", where=f"{node.op_type} {node.name}")
    for output in graph.output:
        if output.name not in made and output.name not in given:
            raise ModelError(f"nothing defines the graph's output {output.name!r}", where=output.name)
