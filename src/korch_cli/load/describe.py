"""From a protobuf to a `Model` in neutral terms."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from korch_cli.core.model import Attribute, Model, Operator
from korch_cli.core.primitive import Constant
from korch_cli.core.types import DType
from korch_cli.load.constants import fed_inputs, is_default_domain, overridable
from korch_cli.load.infer import types_of
from korch_cli.load.structure import captured
from korch_cli.load.tensor import read_tensor


def describe(proto: onnx.ModelProto, path: Path, notes: tuple[str, ...]) -> Model:
    """Return the model that a bound, folded and sorted protobuf describes; node names are made unique in `proto`."""
    _name_nodes(proto.graph)
    opsets = {_domain(entry.domain): entry.version for entry in proto.opset_import}
    return Model(
        path=path,
        inputs=tuple(info.name for info in fed_inputs(proto)),
        outputs=tuple(info.name for info in proto.graph.output),
        operators=tuple(_operator(i, node, opsets, path.parent) for i, node in enumerate(proto.graph.node)),
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


def _operator(index: int, node: onnx.NodeProto, opsets: Mapping[str, int], folder: Path) -> Operator:
    domain = _domain(node.domain)
    return Operator(
        index=index,
        name=node.name,
        op_type=node.op_type,
        domain=domain,
        version=opsets.get(domain, 1),
        inputs=tuple(node.input),
        outputs=tuple(node.output),
        captures=captured(node),
        attributes={attribute.name: _attribute(attribute, folder) for attribute in node.attribute},
    )


def _attribute(attribute: onnx.AttributeProto, folder: Path) -> Attribute:
    kinds = onnx.AttributeProto
    content: Any = onnx.helper.get_attribute_value(attribute)
    match attribute.type:
        case kinds.TENSOR:
            return read_tensor(content, folder)
        case kinds.TENSORS:
            return tuple(read_tensor(tensor, folder) for tensor in content)
        case kinds.STRING:
            return _text(content)
        case kinds.STRINGS:
            return tuple(map(_text, content))
        case kinds.INT | kinds.FLOAT | kinds.GRAPH | kinds.SPARSE_TENSOR | kinds.TYPE_PROTO:
            return content  # type: ignore[no-any-return]
    return tuple(content)


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
    return "" if is_default_domain(domain) else domain
