"""What a model does with its inputs, as far as it says which values make sense."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import onnx
from onnx import inliner, numpy_helper

_PASSING = frozenset(
    {"Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten", "Transpose", "Expand", "Tile", "Slice", "Split"}
    | {"Concat", "Gather", "GatherElements"}
)
"""Operators whose first output has the values of their first input (or of all, for Concat)."""
_ARITHMETIC = frozenset(["Add", "Sub", "Mul", "Mod", "Max", "Min", "Clip", "Where"])
_MEASURING = frozenset({"Shape", "Size"})
"""Operators that do not look at values."""
_COMPARING = frozenset(["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "And", "Or", "Xor", "Sign"])
_INDEXING = {"Gather": 1, "GatherElements": 1, "GatherND": 1, "OneHot": 0, "ScatterElements": 1, "ScatterND": 1}
"""Operators that read indices, and which of their inputs these are."""
_EMBEDDINGS = {0: 2, 1: 4}
"""com.microsoft.EmbedLayerNormalization: input of ids -> input of the table they select from."""
_FLOATS = frozenset(
    {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE, onnx.TensorProto.BFLOAT16}
)
_INFERENCE_BYTES = 1 << 30
"""Shape inference copies the nodes; beyond this size only declared shapes are used."""
_LARGEST_SHAPE = 64
"""Constants with more elements than this are no shapes: inference sees their types alone."""
_INFERENCE_IR = 8


@dataclass(slots=True)
class Use:
    """How an input is used.

    Attributes:
        limit: it holds indices that must be smaller than this; None if it does not.
        shifted: arithmetic lies between the input and the indices, so that only a part of the range is safe.
        flags: it is used as a flag: compared, or turned into floats or bools.
        other: it is used in ways that say nothing.
    """

    limit: int | None = None
    shifted: bool = False
    flags: bool = False
    other: bool = False

    def restrict(self, limit: int, shifted: bool) -> None:
        """Indices must be smaller than `limit` too."""
        self.limit = limit if self.limit is None else min(self.limit, limit)
        self.shifted |= shifted


@dataclass(frozen=True)
class Uses:
    """Finds the uses of tensors in a model; make one with `trace_uses`."""

    graph: onnx.GraphProto
    inferred: Sequence[onnx.ValueInfoProto] = field(repr=False)
    consumers: Mapping[str, tuple[onnx.NodeProto, ...]] = field(repr=False)

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of tensors; 0 where a dimension is not known."""
        shapes: dict[str, tuple[int, ...]] = {}
        for info in (*self.graph.input, *self.graph.output, *self.graph.value_info, *self.inferred):
            shapes[info.name] = tuple(d.dim_value for d in info.type.tensor_type.shape.dim)
        shapes.update((name, tuple(t.dims)) for name, t in self._tensors.items())
        return shapes

    @cached_property
    def _tensors(self) -> dict[str, onnx.TensorProto]:
        tensors = {tensor.name: tensor for tensor in self.graph.initializer}
        for node in _nodes(self.graph.node):
            if node.op_type == "Constant":
                tensors.update((node.output[0], a.t) for a in node.attribute if a.name == "value")
        return tensors

    def of(self, name: str) -> Use:
        """Return how the tensor `name` is used."""
        use = Use()
        seen: set[tuple[str, bool]] = set()
        pending = [(name, False)]
        while pending:
            tensor, shifted = pending.pop()
            if (tensor, shifted) in seen:
                continue
            seen.add((tensor, shifted))
            for node in self.consumers.get(tensor, ()):
                self._visit(node, tensor, shifted, use, pending)
        return use

    def _visit(
        self, node: onnx.NodeProto, tensor: str, shifted: bool, use: Use, pending: list[tuple[str, bool]]
    ) -> None:
        """Note what one node does with a tensor, and where its values go on to."""
        limits = [n for slot, name in enumerate(node.input) if name == tensor for n in self._limit(node, slot)]
        for limit in limits:
            use.restrict(limit, shifted)
        if limits:
            return
        target = next((a.i for a in node.attribute if a.name == "to"), None) if node.op_type == "Cast" else None
        if node.op_type in _COMPARING or target in _FLOATS or target == onnx.TensorProto.BOOL:
            use.flags = True
        elif node.op_type in _PASSING and (node.input[0] == tensor or node.op_type == "Concat"):
            pending.extend((output, shifted) for output in node.output)
        elif node.op_type in _ARITHMETIC:
            use.other = True
            pending.extend((output, True) for output in node.output)
        elif node.op_type not in _MEASURING:
            use.other = True

    def _limit(self, node: onnx.NodeProto, slot: int) -> Iterator[int]:
        """Yield the extent that the indices in an input of `node` are bounded by, if it holds indices."""
        if node.op_type == "EmbedLayerNormalization":
            if slot in _EMBEDDINGS:
                yield self._extent(node.input[_EMBEDDINGS[slot]], 0)
        elif _INDEXING.get(node.op_type) == slot:
            if node.op_type == "OneHot":
                yield self._number(node.input[1])
            elif node.op_type.endswith("ND"):
                yield min(self._shapes.get(node.input[0]) or (1,)) or 1
            else:
                yield self._extent(node.input[0], next((a.i for a in node.attribute if a.name == "axis"), 0))

    def _extent(self, name: str, axis: int) -> int:
        """Return the extent of an axis, 1 where it is not known: index 0 is always valid."""
        shape = self._shapes.get(name, ())
        return (shape[axis] if -len(shape) <= axis < len(shape) else 1) or 1

    def _number(self, name: str) -> int:
        tensor = self._tensors.get(name)
        if tensor is None or tensor.data_location == onnx.TensorProto.EXTERNAL:
            return 1
        return max(1, int(np.asarray(numpy_helper.to_array(tensor)).reshape(-1)[0]))


def trace_uses(proto: onnx.ModelProto) -> Uses:
    """Return what is needed to find uses in a model; its functions are looked into."""
    if proto.functions:
        proto = inliner.inline_local_functions(proto)
    consumers: dict[str, list[onnx.NodeProto]] = {}
    for node in _nodes(proto.graph.node):
        for name in dict.fromkeys(node.input):
            consumers.setdefault(name, []).append(node)
    needs_shapes = any(node.op_type in _INDEXING for nodes in consumers.values() for node in nodes)
    inferred = _inferred(proto) if needs_shapes else ()
    return Uses(proto.graph, inferred, {name: tuple(nodes) for name, nodes in consumers.items()})


def _inferred(proto: onnx.ModelProto) -> Sequence[onnx.ValueInfoProto]:
    """Return the shapes that can be inferred; weights, which may be most of the model, stay where they are."""
    model = onnx.ModelProto(ir_version=_INFERENCE_IR, opset_import=proto.opset_import)
    graph, source = model.graph, proto.graph
    graph.name = source.name or "graph"
    graph.input.extend(source.input)
    graph.output.extend(source.output)
    graph.value_info.extend(source.value_info)
    graph.node.extend(source.node)
    declared = {info.name for info in source.input}
    for tensor in source.initializer:
        if math.prod(tensor.dims) <= _LARGEST_SHAPE:
            graph.initializer.append(tensor)
        elif tensor.name not in declared:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    if model.ByteSize() > _INFERENCE_BYTES:
        return ()
    try:
        return tuple(onnx.shape_inference.infer_shapes(model).graph.value_info)
    except onnx.shape_inference.InferenceError:
        return ()


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes and those of their subgraphs."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _nodes(graph.node)
