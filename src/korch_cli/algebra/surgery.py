"""A model's main graph while its nodes are replaced, and who reads what in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from korch_cli.core.model import Model
from korch_cli.core.types import Array

_FIRST_IR_WITH_DEFAULTS = 4


class Surgery:
    """The nodes of a copy of a model; a node keeps its place, so that the order stays one in which they can run."""

    def __init__(self, model: Model) -> None:
        assert isinstance(model.proto, onnx.ModelProto)
        self.model = model
        self.types = model.types
        self._proto = onnx.ModelProto()
        self._proto.CopyFrom(model.proto)
        self._nodes: list[list[onnx.NodeProto]] = [[node] for node in self._proto.graph.node]
        self._new: dict[str, Array] = {}
        self._seen = {*model.outputs, *(name for operator in model.operators for name in operator.captures)}
        self._names = {*model.constants, *_names(self._proto.graph)}
        self._readers: dict[str, list[tuple[int, int]]] = {}
        self._index()

    def nodes(self) -> Iterator[tuple[tuple[int, int], onnx.NodeProto]]:
        """Every node with the place that it is known by until something is replaced there."""
        for i, group in enumerate(self._nodes):
            for j, node in enumerate(group):
                yield (i, j), node

    def node(self, place: tuple[int, int]) -> onnx.NodeProto:
        """Return the node in a place."""
        return self._nodes[place[0]][place[1]]

    def holds(self, place: tuple[int, int], node: onnx.NodeProto) -> bool:
        """Whether a node is still where it was."""
        group = self._nodes[place[0]]
        return place[1] < len(group) and group[place[1]] is node

    def constant(self, name: str) -> Array | None:
        """Return the elements of a constant, None for any other tensor."""
        if name in self._new:
            return self._new[name]
        constant = self.model.constants.get(name)
        return None if constant is None else constant.array()

    def readers(self, name: str) -> list[tuple[int, int]]:
        """Return the places of the nodes that read a tensor, none if something other than a node sees it."""
        return [] if name in self._seen else self._readers.get(name, [])

    def only_reader(self, name: str) -> tuple[int, int] | None:
        """Return the place of the one node that reads a tensor, None if there are others."""
        readers = self.readers(name)
        return readers[0] if len(readers) == 1 else None

    def alike(self, before: str, after: str) -> bool:
        """Whether two tensors have the same element type and shape."""
        return before in self.types and self.types[before] == self.types.get(after)

    def fresh(self, stem: str) -> str:
        """Return a name for a new tensor."""
        name, count = f"{stem}/folded", 0
        while name in self._names:
            count += 1
            name = f"{stem}/folded{count}"
        self._names.add(name)
        return name

    def replace_constant(self, old: str, array: Array) -> str:
        """Return the name of a new constant for the one node that reads `old`; others keep `old`."""
        stem = old.split("/folded", 1)[0] if old in self._new else old
        self._new.pop(old, None)
        name = self.fresh(stem)
        self._new[name] = np.ascontiguousarray(array)
        return name

    def replace(self, places: Sequence[tuple[int, int]], at: tuple[int, int], nodes: Sequence[onnx.NodeProto]) -> None:
        """Remove the nodes in `places` and put `nodes` where the one in `at` was."""
        for i, j in places:
            self._nodes[i] = [node for k, node in enumerate(self._nodes[i]) if k != j or (i, j) == at]
        self._nodes[at[0]] = list(nodes)
        self._index()

    def changed(self) -> None:
        """Note that nodes were changed in place."""
        self._index()

    def result(self) -> onnx.ModelProto:
        """Return the model."""
        graph = self._proto.graph
        copies = []
        for _, node in self.nodes():
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copies.append(copy)
        del graph.node[:]
        graph.node.extend(copies)
        read = {name for node in copies for name in node.input}
        for name, array in self._new.items():
            if name in read:
                tensor = numpy_helper.from_array(array, name)
                graph.initializer.append(tensor)
                if self.model.ir_version < _FIRST_IR_WITH_DEFAULTS:
                    graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, array.shape))
        return self._proto

    def _index(self) -> None:
        self._readers = {}
        for place, node in self.nodes():
            for name in dict.fromkeys(node.input):
                self._readers.setdefault(name, []).append(place)


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    """Every tensor that a graph or its subgraphs name: a subgraph may not use a name of the graph around it anew."""
    yield from (tensor.name for tensor in (*graph.input, *graph.output, *graph.initializer))
    yield from (tensor.values.name for tensor in graph.sparse_initializer)
    for node in graph.node:
        yield from (*node.input, *node.output)
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _names(inner)
