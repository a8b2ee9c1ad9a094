"""From a protobuf to a `Model` in neutral terms."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper

from korch_cli.core.model import Attribute, Model, Operator
from korch_cli.core.primitive import Constant
from korch_cli.core.types import DType
from korch_cli.load.bind import fed_inputs
from korch_cli.load.fold import overridable, read_tensor
from korch_cli.load.infer import types_of
from korch_cli.load.read import captured


def describe(proto: onnx.ModelProto, path: Path, notes: tuple[str, ...]) -> Model:
    """Return the model that a bound, folded and sorted protobuf describes; node names are made unique in `proto`."""
    _name_nodes(proto.graph)
    opsets = {_domain(entry.domain): entry.version for entry in proto.opset_import}
    return Model(
        path=path,
        inputs=tuple(info.name for info in fed_inputs(proto)),
        outputs=tuple(info.name for info in proto.graph.output),
        operators=tuple(_operator(i, node, opsets) for i, node in enumerate(proto.graph.node)),
        types=types_of(proto),
        constants=_constants(proto, path.parent),
        opsets=opsets,
        ir_version=proto.ir_version,
        proto=proto,
        notes=notes,
    )


def _name_nodes(graph: onnx.GraphProto) -> None:
    taken = {node.name for node in graph.node}
    seen: set[str] = set()
    for index, node in enumerate(graph.node):
        if node.name and node.name not in seen:
            seen.add(node.name)
            continue
        stem = node.name or f"{node.op_type}_{index}"
        name, count = stem, 0
        while name in taken:
            count += 1
            name = f"{stem}_{count}"
        node.name = name
        taken.add(name)
        seen.add(name)


def _operator(index: int, node: onnx.NodeProto, opsets: dict[str, int]) -> Operator:
    domain = _domain(node.domain)
    return Operator(
        index=index,
        name=node.name,
        op_type=node.op_type,
        domain=domain,
        version=opsets.get(domain, 1),
        inputs=tuple(node.input),
        outputs=tuple(node.output),
        captures=tuple(captured(node)),
        attributes={attribute.name: _attribute(attribute) for attribute in node.attribute},
    )


def _attribute(attribute: onnx.AttributeProto) -> Attribute:
    content: Any = onnx.helper.get_attribute_value(attribute)
    if attribute.type == onnx.AttributeProto.TENSOR:
        return numpy_helper.to_array(content)
    if attribute.type == onnx.AttributeProto.STRING:
        return _text(content)
    if attribute.type == onnx.AttributeProto.STRINGS:
        return tuple(_text(item) for item in content)
    if attribute.type in (onnx.AttributeProto.FLOATS, onnx.AttributeProto.INTS):
        return tuple(content)
    return content  # type: ignore[no-any-return]


def _text(content: bytes) -> str | bytes:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _constants(proto: onnx.ModelProto, folder: Path) -> dict[str, Constant]:
    fixed = overridable(proto)
    found = {}
    for tensor in proto.graph.initializer:
        dtype = DType.from_onnx(tensor.data_type)
        if dtype is not None and tensor.name not in fixed:
            read = partial(read_tensor, tensor, folder)
            found[tensor.name] = Constant(read=read, dtype=dtype, shape=tuple(tensor.dims))
    return found


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain
