"""Nodes under other names."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from korch_cli.load.structure import given_names, subgraphs


def renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """Return a copy of a node in which tensors have other names: its operands, its results, what its bodies capture."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [names.get(name, name) for name in node.input]
    copy.output[:] = [names.get(name, name) for name in node.output]
    for graph in subgraphs(copy):
        _rename_captures(graph, names)
    return copy


def _rename_captures(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    local = given_names(graph) | {name for node in graph.node for name in node.output}
    visible = {name: new for name, new in names.items() if name not in local}
    for node in graph.node:
        node.input[:] = [visible.get(name, name) for name in node.input]
        for inner in subgraphs(node):
            _rename_captures(inner, visible)
    for output in graph.output:
        output.name = visible.get(output.name, output.name)
