"""A model's main graph while its nodes are replaced, and who makes and who reads what in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from korch_cli.core.model import Model
from korch_cli.core.types import Array, DType, TensorType

Place = tuple[int, int]
"""Where a node is: the position of the original node and a number that is never given again."""
Accepts = Callable[[str, DType], bool]
"""Whether an operator outside of the standard domain may be written for an element type."""
_FIRST_IR_WITH_DEFAULTS = 4
CONTRIB = "com.microsoft"


class Surgery:
    """The nodes of a copy of a model; a node keeps its place, so that the order stays one in which they can run.

    Attributes:
        model: as it was.
        types: static types by tensor, those of new tensors too.
        opset: version of the standard domain, 0 if the model does not import it.
        accepts: tells which operators outside of the standard domain may be written.
        reserved: tensors whose makers stay as they are, for ONNX Runtime recognises what they are a part of.
    """

    def __init__(self, model: Model, accepts: Accepts) -> None:
        assert isinstance(model.proto, onnx.ModelProto)
        self.model = model
        self.types: dict[str, TensorType] = dict(model.types)
        self.opset = model.opsets.get("", 0)
        self.accepts = accepts
        self.reserved: set[str] = set()
        self._proto = onnx.ModelProto()
        self._proto.CopyFrom(model.proto)
        self._groups: list[dict[int, onnx.NodeProto]] = [{0: node} for node in self._proto.graph.node]
        self._serial = 1
        self._new: dict[str, Array] = {}
        self._made: list[str] = []
        self._seen = {*model.outputs, *(name for operator in model.operators for name in operator.captures)}
        self._names = {*model.constants, *_names(self._proto.graph)}
        self._readers: dict[str, dict[Place, None]] = {}
        self._makers: dict[str, Place] = {}
        self.changed()

    def nodes(self) -> Iterator[tuple[Place, onnx.NodeProto]]:
        """Every node with the place that it is known by."""
        for i, group in enumerate(self._groups):
            for j, node in group.items():
                yield (i, j), node

    def node(self, place: Place) -> onnx.NodeProto:
        """Return the node in a place."""
        return self._groups[place[0]][place[1]]

    def holds(self, place: Place, node: onnx.NodeProto) -> bool:
        """Whether a node is still where it was."""
        return self._groups[place[0]].get(place[1]) is node

    def constant(self, name: str) -> Array | None:
        """Return the elements of a constant, None for any other tensor."""
        if name in self._new:
            return self._new[name]
        constant = self.model.constants.get(name)
        return None if constant is None else constant.array()

    def is_constant(self, name: str) -> bool:
        """Whether a tensor is constant; its elements are not read."""
        return name in self._new or name in self.model.constants

    def maker(self, name: str) -> Place | None:
        """Return the place of the node that makes a tensor, None if none does."""
        return self._makers.get(name)

    def made_by(self, name: str, *op_types: str, domain: str = "") -> onnx.NodeProto | None:
        """Return the node that makes a tensor if it is of one of these types."""
        place = self._makers.get(name)
        if place is None:
            return None
        node = self.node(place)
        return node if node.op_type in op_types and node.domain == domain else None

    def readers(self, name: str) -> list[Place]:
        """Return the places of the nodes that read a tensor in order, none if something other than a node sees it."""
        return [] if name in self._seen else sorted(self._readers.get(name, ()), key=self._position)

    def only_reader(self, name: str) -> Place | None:
        """Return the place of the one node that reads a tensor, None if there are others."""
        readers = self._readers.get(name, {})
        return next(iter(readers)) if len(readers) == 1 and name not in self._seen else None

    def is_seen(self, name: str) -> bool:
        """Whether something other than a node of the main graph reads a tensor."""
        return name in self._seen

    def alike(self, before: str, after: str) -> bool:
        """Whether two tensors have the same element type and shape."""
        return before in self.types and self.types[before] == self.types.get(after)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the static shape of a tensor, None if it has none."""
        typed = self.types.get(name)
        return None if typed is None else typed.shape

    def fresh(self, stem: str, typed: TensorType | None = None) -> str:
        """Return a name for a new tensor, of a type if it is not a constant."""
        stem = stem.split("/folded", 1)[0]
        name, count = f"{stem}/folded", 0
        while name in self._names:
            count += 1
            name = f"{stem}/folded{count}"
        self._names.add(name)
        if typed is not None:
            self.types[name] = typed
            self._made.append(name)
        return name

    def add_constant(self, stem: str, array: Array) -> str:
        """Return the name of a new constant."""
        name = self.fresh(stem)
        dtype = DType.from_numpy(array.dtype)
        assert dtype is not None
        self._new[name] = np.ascontiguousarray(array).reshape(array.shape)
        self.types[name] = TensorType(dtype, tuple(array.shape))
        return name

    def replace_constant(self, old: str, array: Array) -> str:
        """Return the name of a new constant for the one node that reads `old`; others keep `old`."""
        self._new.pop(old, None)
        return self.add_constant(old, array)

    def replace(self, place: Place, nodes: Sequence[onnx.NodeProto]) -> None:
        """Put nodes where one was; what nobody reads any more goes."""
        old = self._take(place)
        i, group = place[0], {}
        for j, node in self._groups[place[0]].items():
            if j == place[1]:
                for new in nodes:
                    group[self._serial] = new
                    self._serial += 1
            else:
                group[j] = node
        self._groups[i] = group
        for j, node in group.items():
            if any(node is new for new in nodes):
                self._enter((i, j), node)
        for name in old.input:
            self.drop_dead(name)

    def take_over(self, node: onnx.NodeProto, place: Place) -> None:
        """Let a node make what the only reader of its result made, which goes."""
        result = self._take(place).output[0]
        del self._groups[place[0]][place[1]]
        node.output[0] = result
        self.changed()

    def read_instead(self, old: str, new: str) -> None:
        """Let all nodes that read a tensor read another one, which has to be made before the first of them."""
        for place in list(self._readers.pop(old, ())):
            node = self.node(place)
            for i, name in enumerate(node.input):
                if name == old:
                    node.input[i] = new
            self._readers.setdefault(new, {})[place] = None
        self.drop_dead(old)

    def drop_dead(self, name: str) -> None:
        """Remove the node that makes a tensor if nobody reads any of its outputs, and then what it alone read."""
        waiting = [name]
        while waiting:
            place = self._makers.get(waiting.pop())
            if place is None:
                continue
            node = self.node(place)
            if any(self._readers.get(output) or output in self._seen for output in node.output if output):
                continue
            self._take(place)
            del self._groups[place[0]][place[1]]
            waiting.extend(node.input)

    def changed(self) -> None:
        """Note that nodes were changed in place."""
        self._readers, self._makers = {}, {}
        for place, node in self.nodes():
            self._enter(place, node)

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
        self._state_types(copies)
        return self._proto

    def _state_types(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """State what inference may not find, and import the domains that are used."""
        graph = self._proto.graph
        stated = {info.name for info in (*graph.value_info, *graph.output)}
        made = {name for node in nodes for name in node.output}
        for name in self._made:
            if name in made - stated:
                typed = self.types[name]
                graph.value_info.append(onnx.helper.make_tensor_value_info(name, typed.dtype.onnx, typed.shape))
        imported = {entry.domain for entry in self._proto.opset_import}
        if CONTRIB not in imported and any(node.domain == CONTRIB for node in nodes):
            self._proto.opset_import.append(onnx.helper.make_opsetid(CONTRIB, 1))

    def _position(self, place: Place) -> tuple[int, int]:
        return place[0], list(self._groups[place[0]]).index(place[1])

    def _take(self, place: Place) -> onnx.NodeProto:
        node = self.node(place)
        for name in set(node.input):
            self._readers.get(name, {}).pop(place, None)
        for name in node.output:
            if self._makers.get(name) == place:
                del self._makers[name]
        return node

    def _enter(self, place: Place, node: onnx.NodeProto) -> None:
        for name in dict.fromkeys(node.input):
            self._readers.setdefault(name, {})[place] = None
        for name in node.output:
            self._makers[name] = place


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    """Every tensor that a graph or its subgraphs name: a subgraph may not use a name of the graph around it anew."""
    yield from (tensor.name for tensor in (*graph.input, *graph.output, *graph.initializer))
    yield from (tensor.values.name for tensor in graph.sparse_initializer)
    for node in graph.node:
        yield from (*node.input, *node.output)
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _names(inner)
