"""Calls of model-local functions become the functions' nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import onnx
import onnx.inliner

from korch_cli.core.errors import ModelError
from korch_cli.load.structure import subgraphs

_Id = tuple[str, str]


def inline(proto: onnx.ModelProto, path: Path) -> tuple[onnx.ModelProto, list[str]]:
    """Return the model without model-local functions, and a sentence on what was done.

    A function that is written for another opset than the model's stays, and so do its calls.

    Raises:
        ModelError: a function calls itself, or the functions cannot be inlined.
    """
    if not proto.functions:
        return proto, []
    _check_recursion(proto)
    called = _called_in(proto.graph.node)
    try:
        inlined = onnx.inliner.inline_local_functions(_with_defaults(proto))
    except Exception as error:
        raise ModelError(f"its model-local functions cannot be inlined: {error}", where=str(path)) from error
    kept = {(f.domain, f.name) for f in inlined.functions}
    names = sorted({f.name for f in proto.functions if (f.domain, f.name) in called - kept})
    return inlined, [f"Model-local functions were inlined: {', '.join(names)}."] if names else []


def _check_recursion(proto: onnx.ModelProto) -> None:
    # Older releases of onnx overflow the stack here.
    calls = {(f.domain, f.name): _called_in(f.node) for f in proto.functions}
    remaining = {function: called & calls.keys() for function, called in calls.items()}
    while remaining:
        leaves = {function for function, called in remaining.items() if not called & remaining.keys()}
        if not leaves:
            names = ", ".join(sorted(name for _, name in remaining))
            raise ModelError(f"model-local functions call themselves: {names}", where=names)
        remaining = {function: called for function, called in remaining.items() if function not in leaves}


def _with_defaults(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with all attributes of calls stated, for onnx's inliner forgets a function's defaults."""
    defaults = {(f.domain, f.name): f.attribute_proto for f in proto.functions if f.attribute_proto}
    if not defaults:
        return proto
    stated = onnx.ModelProto()
    stated.CopyFrom(proto)
    _state_defaults(stated.graph.node, defaults)
    for function in stated.functions:
        _state_defaults(function.node, defaults)
    return stated


def _state_defaults(nodes: Iterable[onnx.NodeProto], defaults: Mapping[_Id, Sequence[onnx.AttributeProto]]) -> None:
    for node in nodes:
        given = {attribute.name for attribute in node.attribute}
        missing = defaults.get((node.domain, node.op_type), ())
        node.attribute.extend(attribute for attribute in missing if attribute.name not in given)
        for graph in subgraphs(node):
            _state_defaults(graph.node, defaults)


def _called_in(nodes: object) -> set[_Id]:
    called: set[_Id] = set()
    for node in nodes:  # type: ignore[attr-defined]
        called.add((node.domain, node.op_type))
        for graph in subgraphs(node):
            called |= _called_in(graph.node)
    return called
