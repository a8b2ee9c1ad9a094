"""The nodes of an output model, written one kernel after the other, every tensor once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx
from onnx import helper

from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import KernelBody
from korch_cli.core.model import Model
from korch_cli.core.primitive import Constant
from korch_cli.core.types import TensorType
from korch_cli.emit.primitives import FunctionBody


@dataclass(slots=True)
class Writing:
    """Collects the nodes of the output, in an order in which they can run.

    Attributes:
        model: what was optimised.
        graph: its primitives.
        source: its protobuf.
        nodes: what was written.
        written: the tensors that some node writes, in order.
        types: of the tensors that custom nodes and single primitives write.
    """

    model: Model
    graph: PrimitiveGraph
    source: onnx.ModelProto
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    written: dict[str, None] = field(default_factory=dict)
    types: dict[str, TensorType] = field(default_factory=dict)
    _outer: set[str] = field(default_factory=set)
    _inner: set[str] = field(default_factory=set)
    _taken: set[str] = field(default_factory=set)
    _node_names: set[str] = field(default_factory=set)
    _names: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.source.graph
        self._outer = {*(i.name for i in graph.input), *(t.name for t in graph.initializer)}
        self._outer.update(t.values.name for t in graph.sparse_initializer)
        self._outer.update(name for node in graph.node for name in node.output)
        self._inner = {name for node in graph.node for name in _inner_names(node)}
        self._taken = {*self._outer, *self._inner, *(value.name for value in self.graph.values)}

    def original(self, operator: int) -> None:
        """Write a node of the model, unless all that it writes is there already."""
        node = self.source.graph.node[operator]
        if all(name in self.written for name in node.output if name):
            return
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name = self._unique_node(self.model.operators[operator].name)
        self._append(copy)

    def kernel(self, body: KernelBody, name: str, domain: str) -> None:
        """Write a custom node."""
        inputs = [self._name(v) for v in body.arguments]
        outputs = [self._name(v) for v in body.results]
        node = helper.make_node(name, inputs, outputs, name=self._unique_node(f"korch/{name}/0"), domain=domain)
        self._append(node)
        self.types.update((o, self.graph.values[v].type) for o, v in zip(node.output, body.results, strict=True))

    def primitive(self, v: int, opset: int) -> None:
        """Write a primitive as a standard node, and the constants that it has for operands. Raises Refusal."""
        value = self.graph.values[v]
        body = FunctionBody(self.graph, opset, {i: self._name(i) for i in (*value.args, v)})
        body.add(value)
        inner = {o: self._unused(self._name(v), o) for node in body.nodes for o in node.output if o != self._name(v)}
        for node in body.nodes:
            for names in (node.input, node.output):
                names[:] = [inner.get(name, name) for name in names]
            node.name = self._unique_node(f"korch/{self._name(v)}/0")
            self._append(node)
        self.types[self._name(v)] = value.type

    def outputs(self) -> None:
        """Write the outputs of the model that no kernel computes: other names of values that exist."""
        for name, v in zip(self.model.outputs, self.graph.outputs, strict=True):
            if name not in self.written and self._name(v) != name:
                node = helper.make_node("Identity", [self._name(v)], [name], name=self._unique_node(f"korch/{name}/0"))
                self._append(node)

    def constants(self) -> dict[str, Constant]:
        """Every constant that a node can read, by the name under which it is read."""
        made = {self._name(v.id): v.op for v in self.graph.values if isinstance(v.op, Constant)}
        return {**self.model.constants, **made}

    def _name(self, v: int) -> str:
        """The tensor of a value; what fission made avoids the names of subgraphs, which may not be used twice."""
        v = self.graph.first(v)
        if v not in self._names:
            name = self.graph.values[v].name
            clash = name in self._inner and name not in self._outer
            self._names[v] = self._unused(name, "outer") if clash else name
        return self._names[v]

    def _append(self, node: onnx.NodeProto) -> None:
        # What was computed before stays; the copy that comes with a recomputation gets a name that nothing reads.
        for i, name in enumerate(node.output):
            if name and name in self.written:
                node.output[i] = self._unused(name, "unread")
        self.written.update((name, None) for name in node.output if name)
        self.nodes.append(node)

    def _unused(self, name: str, word: str) -> str:
        count = 1
        while f"{name}/{word}{count}" in self._taken:
            count += 1
        self._taken.add(f"{name}/{word}{count}")
        return f"{name}/{word}{count}"

    def _unique_node(self, name: str) -> str:
        """Return a node name that is not used yet; a number in the end counts on."""
        stem, slash, number = name.rpartition("/")
        if not (slash and number.isdigit()):
            stem, number = name, "0"
        count = int(number)
        while name in self._node_names:
            count += 1
            name = f"{stem}/{count}"
        self._node_names.add(name)
        return name


def tensors_read(node: onnx.NodeProto) -> Iterator[str]:
    """The tensors that a node may need: its operands, and whatever its subgraphs mention."""
    yield from (name for name in node.input if name)
    for graph in _subgraphs(node):
        yield from (output.name for output in graph.output)
        for inner in graph.node:
            yield from tensors_read(inner)


def _inner_names(node: onnx.NodeProto) -> Iterator[str]:
    """The tensors that a node's subgraphs define."""
    for graph in _subgraphs(node):
        yield from (i.name for i in graph.input)
        yield from (t.name for t in graph.initializer)
        for inner in graph.node:
            yield from inner.output
            yield from _inner_names(inner)


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs
