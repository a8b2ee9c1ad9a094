"""Initializers: which are constant, how a node becomes one, and what nothing needs any more."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from korch_cli.load.structure import reads

_FIRST_IR_WITH_DEFAULTS = 4
"""From this IR version on an initializer need not be a graph input, and one that is can be replaced by the caller."""
_CONSTANT_ATTRIBUTES: dict[str, Any] = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": object,
    "value_strings": object,
}


def is_default_domain(domain: str) -> bool:
    """Whether a domain is ONNX's own, by either of its names."""
    return domain in ("", "ai.onnx")


def fed_inputs(proto: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs that have to be fed: those without an initializer of the same name."""
    initialized = {tensor.name for tensor in proto.graph.initializer}
    return [info for info in proto.graph.input if info.name not in initialized]


def overridable(proto: onnx.ModelProto) -> frozenset[str]:
    """Return the initializers that a caller may replace: graph inputs too, from IR version 4 on."""
    if proto.ir_version < _FIRST_IR_WITH_DEFAULTS:
        return frozenset()
    inputs = {info.name for info in proto.graph.input}
    return frozenset(tensor.name for tensor in proto.graph.initializer if tensor.name in inputs)


def add_initializer(proto: onnx.ModelProto, tensor: onnx.TensorProto) -> None:
    """Add an initializer; before IR version 4 every one must be listed as an input too."""
    proto.graph.initializer.append(tensor)
    if proto.ir_version < _FIRST_IR_WITH_DEFAULTS:
        info = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tuple(tensor.dims))
        proto.graph.input.append(info)


def lift_constants(proto: onnx.ModelProto) -> None:
    """Turn Constant nodes into initializers; sparse ones stay."""
    kept = []
    for node in proto.graph.node:
        is_constant = node.op_type == "Constant" and is_default_domain(node.domain)
        tensor = _constant_tensor(node) if is_constant else None
        if tensor is None:
            kept.append(node)
        else:
            tensor.name = node.output[0]
            add_initializer(proto, tensor)
    replace_nodes(proto.graph, kept)


def remove_dead(proto: onnx.ModelProto) -> None:
    """Remove nodes, initializers and types of tensors that no output depends on; overridable initializers stay."""
    graph = proto.graph
    needed = {output.name for output in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed.intersection(name for name in node.output if name):
            kept.append(node)
            needed.update(reads(node))
    replace_nodes(graph, kept[::-1])
    needed |= overridable(proto)
    dead = {tensor.name for tensor in graph.initializer} - needed
    _keep(graph.initializer, lambda tensor: tensor.name not in dead)
    # Before IR version 4 an input that loses its initializer would have to be fed.
    _keep(graph.input, lambda info: info.name not in dead)
    made = {name for node in graph.node for name in node.output}
    _keep(graph.value_info, lambda info: info.name in made)


def replace_nodes(graph: onnx.GraphProto, nodes: list[onnx.NodeProto]) -> None:
    """Make `nodes`, which may be the graph's own in another order, its nodes."""
    copies = [_copy(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _keep(field: Any, wanted: Any) -> None:
    for i in reversed(range(len(field))):
        if not wanted(field[i]):
            del field[i]


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


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
