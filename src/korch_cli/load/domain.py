"""The default domain has two names in ONNX; after loading it has one."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from korch_cli.load.constants import is_default_domain
from korch_cli.load.structure import subgraphs


def name_default_domain(proto: onnx.ModelProto) -> None:
    """Write "" for "ai.onnx" wherever a model says so: onnx's inference and its evaluator know only the former."""
    for scope in (proto, *proto.functions):
        _name_imports(scope)
    _name_nodes(proto.graph.node)
    for function in proto.functions:
        _name_nodes(function.node)


def _name_imports(scope: onnx.ModelProto | onnx.FunctionProto) -> None:
    seen: set[tuple[str, int]] = set()
    for i in range(len(scope.opset_import) - 1, -1, -1):
        entry = scope.opset_import[i]
        if is_default_domain(entry.domain):
            entry.domain = ""
        key = (entry.domain, entry.version)
        if key in seen:
            del scope.opset_import[i]
        seen.add(key)


def _name_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        if node.domain and is_default_domain(node.domain):
            node.domain = ""
        for graph in subgraphs(node):
            _name_nodes(graph.node)
