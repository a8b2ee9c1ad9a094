"""A model as it is in its file, but bound and sorted, and what can be said of its tensors: where reduction begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import onnx

from korch_cli.core.model import Bindings
from korch_cli.core.primitive import Constant
from korch_cli.core.types import DType, TensorType
from korch_cli.load.bind import bind
from korch_cli.load.constants import constant_tensor, is_default_domain, replace_nodes
from korch_cli.load.driver import load
from korch_cli.load.infer import possible_types
from korch_cli.load.read import read_model
from korch_cli.load.structure import sorted_nodes
from korch_cli.load.tensor import read_tensor


@dataclass(frozen=True, slots=True)
class WholeModel:
    """A model with all of its nodes.

    Attributes:
        proto: the `onnx.ModelProto`; it may refer to external data in the folder of its file.
        types: the type (`onnx.TypeProto`) of every tensor for which it can be inferred or is stated.
        static: the static types of those that have one; more than `types` tells, for shapes that are computed from
            shapes are known too.
        constants: what nodes make, where it follows from constants and static shapes.
    """

    proto: object
    types: Mapping[str, object]
    static: Mapping[str, TensorType]
    constants: Mapping[str, Constant]


def read_whole(path: Path, bindings: Bindings) -> WholeModel:
    """Read a model without changing it, except that dimensions are bound if there are bindings, and nodes sorted.

    Raises:
        UsageError: the file is missing, or the bindings do not fit the model's inputs or leave some open.
        ModelError: the file is no valid ONNX model.
    """
    proto = read_model(path)
    bound = bool(bindings.dims or bindings.shapes)
    if bound:
        bind(proto, bindings)
    replace_nodes(proto.graph, sorted_nodes(proto.graph))
    held = _held(proto, path.parent)
    try:
        model = load(path, bindings)
    except Exception:
        # Symbolic shapes, or whatever else may be wrong with a model that somebody wants to report.
        return WholeModel(proto, possible_types(proto), {}, held)
    made = {name for node in proto.graph.node for name in node.output if name}
    static = {name: typed for name, typed in model.types.items() if name in made}
    if bound:
        _restate(proto, static)
    folded = {name: constant for name, constant in model.constants.items() if name in made}
    return WholeModel(proto, possible_types(proto), static, folded | held)


def _restate(proto: onnx.ModelProto, static: Mapping[str, TensorType]) -> None:
    """Give what nodes make the shape that it has now, wherever the file states one."""
    for info in (*proto.graph.output, *proto.graph.value_info):
        if info.name in static and info.type.HasField("tensor_type"):
            shape = info.type.tensor_type.shape
            shape.ClearField("dim")
            shape.SetInParent()
            for extent in static[info.name].shape:
                shape.dim.add().dim_value = extent


def _held(proto: onnx.ModelProto, folder: Path) -> dict[str, Constant]:
    """Return what Constant nodes hold."""
    found = {}
    for node in proto.graph.node:
        is_constant = node.op_type == "Constant" and is_default_domain(node.domain)
        tensor = constant_tensor(node) if is_constant else None
        dtype = None if tensor is None else DType.from_onnx(tensor.data_type)
        if tensor is not None and dtype is not None:
            found[node.output[0]] = Constant(
                read=partial(read_tensor, tensor, folder), dtype=dtype, shape=tuple(tensor.dims)
            )
    return found
