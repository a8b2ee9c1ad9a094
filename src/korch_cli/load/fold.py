"""Constants, and what follows from constants and static shapes alone, are computed once, here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from korch_cli.core.types import Array, DType, TensorType
from korch_cli.load.branches import take_branches
from korch_cli.load.constants import (
    add_initializer,
    is_default_domain,
    lift_constants,
    overridable,
    remove_dead,
    replace_nodes,
)
from korch_cli.load.evaluate import FIRST_OPSET, FOLDABLE, SHAPE_READERS, evaluate
from korch_cli.load.infer import infer, is_consistent, types_of
from korch_cli.load.structure import reads
from korch_cli.load.tensor import read_tensor, tensor_bytes

_SMALL_BYTES = 4 << 10
"""A result up to this size is kept even where it is larger than the constants that it replaces."""
_MOST_READ_BYTES = 256 << 20
"""Constants that are larger in all are not computed with."""
_SIZED_BY_VALUES = frozenset({"Compress", "NonZero"})
"""The sizes of their results are never inferred, but bounded by those of their operands."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """What folding one round knows.

    Attributes:
        constants: tensors whose values are known; grows as nodes are folded.
        types: static types.
        uses: how many nodes and graph outputs read a tensor; shrinks as nodes are folded.
    """

    constants: dict[str, onnx.TensorProto]
    types: Mapping[str, TensorType]
    uses: Counter[str]
    opsets: tuple[onnx.OperatorSetIdProto, ...]
    folder: Path


def fold(proto: onnx.ModelProto, stated: Mapping[str, onnx.ValueInfoProto], folder: Path) -> int:
    """Infer and fold by turns until nothing is left to fold; return the number of folded nodes.

    Each needs the other: a shape that is inferred folds into a constant, and a constant is the shape of something else.
    An If on a constant is replaced by the branch that it takes.
    Nodes that make graph outputs stay, as do those whose results would make the file grow.
    """
    before = None
    if any(node.op_type == "If" for node in proto.graph.node):
        before = onnx.ModelProto()
        before.CopyFrom(proto)
    total, taken = _fold_all(proto, stated, folder, branches=True)
    if before is not None and taken and not is_consistent(proto):
        # In a branch, where they infer no shapes, runtimes accept operands that they refuse elsewhere.
        proto.CopyFrom(before)
        total, _ = _fold_all(proto, stated, folder, branches=False)
    return total


def _fold_all(
    proto: onnx.ModelProto, stated: Mapping[str, onnx.ValueInfoProto], folder: Path, *, branches: bool
) -> tuple[int, int]:
    """Fold; return how many nodes were folded or replaced by a branch, and how many by a branch."""
    version = max((o.version for o in proto.opset_import if is_default_domain(o.domain)), default=0)
    total = taken = 0
    while True:
        infer(proto, stated)
        count = _fold_once(proto, folder) if version >= FIRST_OPSET else 0
        chosen = _take_branches(proto, folder) if branches else 0
        taken += chosen
        total += count + chosen
        remove_dead(proto)
        if not count + chosen:
            return total, taken


def _take_branches(proto: onnx.ModelProto, folder: Path) -> int:
    """Replace every If on a constant; return how many there were."""
    fixed = overridable(proto)
    constants = {tensor.name: tensor for tensor in proto.graph.initializer if tensor.name not in fixed}

    def value(name: str) -> Array | None:
        return read_tensor(constants[name], folder) if name in constants else None

    count = take_branches(proto.graph, frozenset(), value, partial(add_initializer, proto))
    if count:
        lift_constants(proto)
    return count


def _fold_once(proto: onnx.ModelProto, folder: Path) -> int:
    graph = proto.graph
    fixed = overridable(proto)
    outputs = {output.name for output in graph.output}
    scope = _Scope(
        constants={tensor.name: tensor for tensor in graph.initializer if tensor.name not in fixed},
        types=types_of(proto),
        uses=Counter([*outputs, *(name for node in graph.node for name in set(reads(node)))]),
        opsets=tuple(proto.opset_import),
        folder=folder,
    )
    kept = []
    for node in graph.node:
        results = None if outputs.intersection(node.output) else _results(node, scope)
        if results is None:
            kept.append(node)
            continue
        scope.uses.subtract(set(node.input))
        for name, array in results.items():
            tensor = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
            add_initializer(proto, tensor)
            scope.constants[name] = tensor
    count = len(graph.node) - len(kept)
    replace_nodes(graph, kept)
    return count


def _results(node: onnx.NodeProto, scope: _Scope) -> dict[str, Array] | None:
    """Return the outputs of a node that depends on nothing that is fed, or None where it has to stay."""
    names = list(dict.fromkeys(name for name in node.input if name))
    if not is_default_domain(node.domain) or node.op_type not in FOLDABLE:
        return None
    if node.op_type in SHAPE_READERS:
        feeds, replaced_bytes = _shaped_like(names, scope), 0
    else:
        feeds, replaced_bytes = _values(names, scope), _replaced_bytes(names, scope)
    if feeds is None:
        return None
    limit = max(_SMALL_BYTES, replaced_bytes)
    expected = {name: scope.types.get(name) for name in node.output if name}
    if node.op_type not in _SIZED_BY_VALUES and any(t is None or t.size_bytes > limit for t in expected.values()):
        return None
    results = evaluate(node, feeds, scope.opsets)
    if results is None or sum(array.nbytes for array in results.values()) > limit:
        return None
    agree = all(_agrees(array, expected[name]) for name, array in results.items())
    return results if agree else None


def _shaped_like(names: list[str], scope: _Scope) -> dict[str, Array] | None:
    """Return a single zero that looks as large as the tensor, whose shape alone counts."""
    if len(names) != 1 or names[0] not in scope.types:
        return None
    type_ = scope.types[names[0]]
    return {names[0]: np.broadcast_to(np.zeros((), type_.dtype.numpy), type_.shape)}


def _values(names: list[str], scope: _Scope) -> dict[str, Array] | None:
    sizes = [tensor_bytes(scope.constants[name]) if name in scope.constants else None for name in names]
    if None in sizes or sum(size or 0 for size in sizes) > _MOST_READ_BYTES:
        return None
    return {name: read_tensor(scope.constants[name], scope.folder) for name in names}


def _replaced_bytes(names: list[str], scope: _Scope) -> int:
    """Return the bytes of the constants that nobody else reads, and that therefore leave the file."""
    own = [scope.constants[name] for name in names if name in scope.constants and scope.uses[name] == 1]
    return sum(tensor_bytes(tensor) or 0 for tensor in own)


def _agrees(array: Array, expected: TensorType | None) -> bool:
    dtype = DType.from_numpy(array.dtype)
    if dtype is None or dtype is DType.STRING:
        return False
    return expected is None or (dtype is expected.dtype and tuple(array.shape) == expected.shape)
