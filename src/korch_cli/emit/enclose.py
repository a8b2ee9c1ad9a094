"""From a flat output model back to one with the bodies of its control flow in their places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx
from onnx import helper, numpy_helper

from korch_cli.core.model import Body, Model, UnrolledModel
from korch_cli.emit.writing import tensors_read

_Path = tuple[tuple[int, str], ...]


def enclose(
    flat: onnx.ModelProto, unrolled: UnrolledModel, domain: str, rewritten: Model | None = None
) -> onnx.ModelProto:
    """Return the output model: bodies with custom or rewritten nodes are replaced, all others are as they were.

    Args:
        flat: the output for `unrolled.flat`, or for `rewritten`.
        unrolled: what was optimised.
        domain: of the custom operators.
        rewritten: the flat model with operators behind its own that may stand for some of these.
    """
    if not unrolled.bodies:
        return flat
    assert isinstance(unrolled.model.proto, onnx.ModelProto)
    enclosing = _Enclosing(flat, unrolled, domain, rewritten or unrolled.flat)
    for body in reversed(unrolled.bodies):
        enclosing.body(body)
    return enclosing.model()


@dataclass(slots=True)
class _Enclosing:
    """Rewrites one body after the other, inner ones first.

    Attributes:
        flat: the flat output.
        unrolled: what was optimised.
        domain: of the custom operators.
        model_of_flat: describes the tensors of `flat`.
        written: the new graphs, by where they are.
    """

    flat: onnx.ModelProto
    unrolled: UnrolledModel
    domain: str
    model_of_flat: Model
    written: dict[_Path, onnx.GraphProto] = field(default_factory=dict)
    _prefixes: tuple[str, ...] = ()
    _taken: set[str] = field(default_factory=set)
    _local: dict[str, str] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)
    _new: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        assert isinstance(self.unrolled.model.proto, onnx.ModelProto)
        self._prefixes = tuple(sorted((b.prefix for b in self.unrolled.bodies), key=len, reverse=True))
        self._taken = set(_defined(self.unrolled.model.proto.graph))
        self._taken.update(name for node in self.flat.graph.node for name in node.output)
        flat = self.model_of_flat
        self._new = {operator.name for operator in flat.operators[len(self.unrolled.flat.operators) :]}
        self._known = {name for o in flat.operators for name in (*o.inputs, *o.outputs, *o.captures)}
        self._known |= flat.constants.keys() | set(flat.outputs)

    def model(self) -> onnx.ModelProto:
        """Return the output, once all bodies are done."""
        model = self.unrolled.model
        assert isinstance(model.proto, onnx.ModelProto)
        result = onnx.ModelProto()
        result.CopyFrom(self.flat)
        graph = result.graph
        del graph.node[:], graph.initializer[:], graph.value_info[:], graph.input[:], graph.output[:]
        for node in self._nodes(""):
            self._add(graph, model.proto.graph, node, ())
        graph.initializer.extend(t for t in self.flat.graph.initializer if not self._prefix(t.name))
        graph.value_info.extend(i for i in self.flat.graph.value_info if not self._prefix(i.name))
        graph.input.extend(i for i in self.flat.graph.input if not self._prefix(i.name))
        graph.output.extend(self.flat.graph.output[: len(model.outputs)])
        return result

    def body(self, body: Body) -> None:
        """Rewrite a body, if a node that it did not have is in it or in a body inside it."""
        nodes = list(self._nodes(body.prefix))
        inner = any(path[: len(body.path)] == body.path for path in self.written)
        if not inner and not any(node.domain == self.domain or node.name in self._new for node in nodes):
            return
        source = self._source(body.path)
        graph = onnx.GraphProto()
        graph.CopyFrom(source)
        del graph.node[:], graph.initializer[:], graph.value_info[:]
        for node in nodes:
            self._add(graph, source, node, body.path)
        for position in sorted(body.left):
            graph.node.add().CopyFrom(source.node[position])
            self._fill(graph.node[-1], source, body.path)
        for tensor in self.flat.graph.initializer:
            if self._prefix(tensor.name) == body.prefix:
                graph.initializer.add().CopyFrom(tensor)
                graph.initializer[-1].name = self._inside(tensor.name)
        for info in self.flat.graph.value_info:
            if self._prefix(info.name) == body.prefix:
                graph.value_info.add().CopyFrom(info)
                graph.value_info[-1].name = self._inside(info.name)
        self._add_missing(graph, source, body.prefix)
        self.written[body.path] = graph

    def _add(self, graph: onnx.GraphProto, source: onnx.GraphProto, node: onnx.NodeProto, path: _Path) -> None:
        """Add a node of the flat model to the graph at `path`, which was `source`."""
        copy = graph.node.add()
        copy.CopyFrom(node)
        copy.name = self._bare(node.name)
        for names in (copy.input, copy.output):
            names[:] = [self._inside(name) for name in names]
        self._fill(copy, source, path)

    def _fill(self, node: onnx.NodeProto, source: onnx.GraphProto, path: _Path) -> None:
        """Give a node of the graph at `path` its bodies: new ones, and else those that it had in `source`."""
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                position = next(i for i, other in enumerate(source.node) if set(node.output) & set(other.output) - {""})
                original = next(a for a in source.node[position].attribute if a.name == attribute.name)
                attribute.CopyFrom(original)
                if (*path, (position, attribute.name)) in self.written:
                    attribute.g.CopyFrom(self.written[*path, (position, attribute.name)])

    def _add_missing(self, graph: onnx.GraphProto, source: onnx.GraphProto, prefix: str) -> None:
        """Add constants that were folded into the nodes of the flat model, and are still read by others."""
        defined = {*(i.name for i in graph.input), *(t.name for t in graph.initializer)}
        defined.update(t.values.name for t in graph.sparse_initializer)
        defined.update(name for node in graph.node for name in node.output)
        results = [output.name for output in graph.output]
        wanted = dict.fromkeys((*results, *(name for node in graph.node for name in tensors_read(node))))
        given = {tensor.name: tensor for tensor in source.initializer}
        constants = self.model_of_flat.constants
        for name in wanted:
            if name in defined:
                continue
            if name in given:
                graph.initializer.append(given[name])
            elif prefix + name in constants and name in _defined_here(source):
                tensor = numpy_helper.from_array(constants[prefix + name].array(), name)
                graph.node.insert(0, helper.make_node("Constant", [], [name], value=tensor))

    def _nodes(self, prefix: str) -> Iterator[onnx.NodeProto]:
        for node in self.flat.graph.node:
            if self._prefix(next(name for name in node.output if name)) == prefix:
                yield node

    def _prefix(self, name: str) -> str:
        """Return the prefix of the body that a tensor of the flat model belongs to, "" for the main graph."""
        return next((prefix for prefix in self._prefixes if name.startswith(prefix)), "")

    def _bare(self, name: str) -> str:
        return name[len(self._prefix(name)) :]

    def _inside(self, name: str) -> str:
        """Return what a tensor of the flat model is called in its body; new ones get names that nothing has."""
        if name in self._known or not name:
            return self._bare(name)
        if name not in self._local:
            stem = local = self._bare(name)
            count = 0
            while local in self._taken:
                count += 1
                local = f"{stem}/{count}"
            self._taken.add(local)
            self._local[name] = local
        return self._local[name]

    def _source(self, path: _Path) -> onnx.GraphProto:
        assert isinstance(self.unrolled.model.proto, onnx.ModelProto)
        graph = self.unrolled.model.proto.graph
        for position, name in path:
            graph = next(a.g for a in graph.node[position].attribute if a.name == name)
        return graph


def _defined_here(graph: onnx.GraphProto) -> set[str]:
    return {*(t.name for t in graph.initializer), *(name for node in graph.node for name in node.output)}


def _defined(graph: onnx.GraphProto) -> Iterator[str]:
    """The tensors that a graph and its subgraphs define."""
    yield from (info.name for info in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    for node in graph.node:
        yield from node.output
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _defined(attribute.g)
