"""A model and a rewritten one in one: operators that they share once, all others of the second behind those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import onnx

from korch_cli.core.model import Model, Operator

_WORD = "rewritten"
"""Sets names of the rewritten model apart where the written one has them for something else."""


@dataclass(frozen=True, slots=True)
class Union:
    """Two ways to write a model.

    Attributes:
        model: has the operators of both, and so tensors that two operators make: no model to run, but one to choose
            from. The written operators come first, under the same indices.
        rewritten: the rewritten model. What has the name of a tensor of the written one is equal to that.
        operators: for each operator of `rewritten`, its index in `model`.
    """

    model: Model
    rewritten: Model
    operators: tuple[int, ...]


def unite_models(written: Model, rewritten: Model) -> Union | None:
    """Return both models in one, None if they do not fit together.

    A tensor that both have under one name and with one type is taken to be equal in both. Where the types differ, or
    one of them is a constant, the rewritten one gets another name.
    """
    different = _different(written, rewritten)
    if not _fit(written, rewritten, different):
        return None
    taken = {*_tensors(written), *_tensors(rewritten)}
    names = {name: _unused(name, taken) for name in sorted(different)}
    rewritten = _renamed(rewritten, names) if names else rewritten
    operators = _matched(written, rewritten)
    model = _assembled(written, rewritten, operators)
    return Union(model, rewritten, operators)


def _tensors(model: Model) -> set[str]:
    return {*model.inputs, *model.constants, *(name for o in model.operators for name in o.outputs if name)}


def _different(written: Model, rewritten: Model) -> set[str]:
    """The tensors of the rewritten model that only have the name of one of the written model's."""
    return {
        name
        for name in _tensors(written) & _tensors(rewritten)
        if written.types.get(name) != rewritten.types.get(name)
        or (name in written.constants) != (name in rewritten.constants)
    }


def _fit(written: Model, rewritten: Model, different: set[str]) -> bool:
    if (written.inputs, written.outputs) != (rewritten.inputs, rewritten.outputs):
        return False
    if any(rewritten.opsets.get(domain, version) != version for domain, version in written.opsets.items()):
        return False
    seen = {*written.inputs, *written.outputs, *(name for o in rewritten.operators for name in o.captures)}
    return not different & seen


def _renamed(model: Model, names: Mapping[str, str]) -> Model:
    def new(name: str) -> str:
        return names.get(name, name)

    proto = onnx.ModelProto()
    assert isinstance(model.proto, onnx.ModelProto)
    proto.CopyFrom(model.proto)
    for node in proto.graph.node:
        node.input[:] = map(new, node.input)
        node.output[:] = map(new, node.output)
    for named in (*proto.graph.initializer, *proto.graph.value_info, *proto.graph.input):
        named.name = new(named.name)
    for sparse in proto.graph.sparse_initializer:
        sparse.values.name = new(sparse.values.name)
    return replace(
        model,
        operators=tuple(
            replace(o, inputs=tuple(map(new, o.inputs)), outputs=tuple(map(new, o.outputs))) for o in model.operators
        ),
        types={new(name): typed for name, typed in model.types.items()},
        constants={new(name): constant for name, constant in model.constants.items()},
        proto=proto,
    )


def _matched(written: Model, rewritten: Model) -> tuple[int, ...]:
    """For each operator of the rewritten model, the same one of the written model, or else a new index."""
    known: dict[bytes, list[int]] = {}
    for operator, text in zip(written.operators, _texts(written), strict=True):
        known.setdefault(text, []).append(operator.index)
    found = []
    count = len(written.operators)
    for text in _texts(rewritten):
        same = known.get(text)
        if same:
            found.append(same.pop(0))
        else:
            found.append(count)
            count += 1
    return tuple(found)


def _texts(model: Model) -> Iterable[bytes]:
    """What each operator is, apart from its name."""
    assert isinstance(model.proto, onnx.ModelProto)
    for node in model.proto.graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.ClearField("name")
        copy.ClearField("doc_string")
        yield copy.SerializeToString(deterministic=True)


def _assembled(written: Model, rewritten: Model, indices: tuple[int, ...]) -> Model:
    assert isinstance(written.proto, onnx.ModelProto)
    assert isinstance(rewritten.proto, onnx.ModelProto)
    proto = onnx.ModelProto()
    proto.CopyFrom(written.proto)
    taken = {operator.name for operator in written.operators}
    operators: list[Operator] = list(written.operators)
    for operator, index in zip(rewritten.operators, indices, strict=True):
        if index < len(written.operators):
            continue
        name = operator.name if operator.name not in taken else _unused(operator.name, taken)
        taken.add(name)
        operators.append(replace(operator, index=index, name=name))
        proto.graph.node.add().CopyFrom(rewritten.proto.graph.node[operator.index])
        proto.graph.node[-1].name = name
    _add_initializers(proto, rewritten.proto)
    imported = {entry.domain for entry in proto.opset_import}
    proto.opset_import.extend(e for e in rewritten.proto.opset_import if e.domain not in imported)
    proto.ir_version = max(proto.ir_version, rewritten.proto.ir_version)
    return replace(
        written,
        operators=tuple(operators),
        types={**rewritten.types, **written.types},
        constants={**rewritten.constants, **written.constants},
        opsets={**rewritten.opsets, **written.opsets},
        ir_version=proto.ir_version,
        proto=proto,
        notes=rewritten.notes,
    )


def _add_initializers(proto: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Add what the other model holds and this one does not; old formats list initializers among the inputs too."""
    given = {tensor.name for tensor in proto.graph.initializer}
    given |= {tensor.values.name for tensor in proto.graph.sparse_initializer}
    listed = {info.name for info in proto.graph.input}
    new = [tensor for tensor in other.graph.initializer if tensor.name not in given]
    proto.graph.initializer.extend(new)
    proto.graph.sparse_initializer.extend(t for t in other.graph.sparse_initializer if t.values.name not in given)
    names = {tensor.name for tensor in new}
    proto.graph.input.extend(i for i in other.graph.input if i.name in names and i.name not in listed)


def _unused(name: str, taken: set[str]) -> str:
    found, count = f"{name}/{_WORD}", 1
    while found in taken:
        count += 1
        found = f"{name}/{_WORD}{count}"
    taken.add(found)
    return found
