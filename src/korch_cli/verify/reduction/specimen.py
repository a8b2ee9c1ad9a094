"""Parts of a model as models of their own.

Any set of nodes can be one: what a node reads and none of the set makes becomes an input, or an initializer where its
value is known; what a node outside would have read becomes an output.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from korch_cli.core.primitive import Constant
from korch_cli.core.types import DType, TensorType

FILLINGS = ("zeros", "ones", "random")
"""What can stand in the place of a weight's elements, the simplest first."""
_FIRST_IR_WITH_DEFAULTS = 4
"""Before this IR version every initializer is listed as an input too."""
_LEAST_WEIGHT_ELEMENTS = 9
"""Smaller tensors are parameters (axes, sizes, an epsilon) rather than weights."""
_LARGEST_FILLED_BYTES = 256 << 20
"""Larger weights keep their elements: they may lie in a file of their own, and made-up ones would not."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A part of a model.

    Attributes:
        nodes: those that stay, ascending.
        unread: inputs and initializers that stay although no node of the whole model reads them.
        hidden: tensors that would be outputs, and are not.
        frozen: tensors that would be inputs, and are initializers full of zeros.
        filled: weights whose elements are made up, each with one of FILLINGS.
    """

    nodes: tuple[int, ...]
    unread: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()
    frozen: frozenset[str] = frozenset()
    filled: frozenset[tuple[str, str]] = frozenset()


class Specimen:
    """A model that parts are cut out of.

    Args:
        proto: the whole model, an `onnx.ModelProto` with sorted nodes; it is left as it is.
        types: types (`onnx.TypeProto`) of what nodes make, as far as they are known; dimensions may be symbolic.
        static: static types; they count more.
        constants: what some nodes make, where it is known without running the model.
        seed: of made-up elements.
    """

    def __init__(
        self,
        proto: object,
        types: Mapping[str, object],
        static: Mapping[str, TensorType],
        constants: Mapping[str, Constant],
        seed: int,
    ) -> None:
        assert isinstance(proto, onnx.ModelProto)
        self.proto, self._seed = proto, seed
        graph = proto.graph
        self.nodes: tuple[onnx.NodeProto, ...] = tuple(graph.node)
        self._maker = {name: i for i, node in enumerate(self.nodes) for name in node.output if name}
        self._constants = constants
        self._infos = _known_infos(types, static, constants)
        self._given = {info.name: info for info in graph.input}
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        sparse = {tensor.values.name for tensor in graph.sparse_initializer}
        self._sources = self._given.keys() | self._initializers.keys() | sparse
        known = self._maker.keys() | self._sources
        self.reads = tuple(tuple(dict.fromkeys(n for n in mentioned(node) if n in known)) for node in self.nodes)
        self._readers: dict[str, list[int]] = {}
        for i, names in enumerate(self.reads):
            for name in names:
                self._readers.setdefault(name, []).append(i)
        self._final = {info.name: info for info in graph.output}

    def whole(self) -> Cut:
        """Return the cut that leaves out nothing."""
        unread = self._sources - self._readers.keys() - self._final.keys()
        return Cut(tuple(range(len(self.nodes))), unread=frozenset(unread))

    def ancestors(self, node: int) -> frozenset[int]:
        """Return a node and all nodes that it depends on."""
        found = {node}
        for i in range(node, -1, -1):
            if i in found:
                found.update(self._maker[name] for name in self.reads[i] if name in self._maker)
        return frozenset(found)

    def closed(self, nodes: Iterable[int]) -> tuple[int, ...]:
        """Add the nodes that make what others read and what can be neither an input nor an initializer."""
        kept = set(nodes)
        for i in range(len(self.nodes) - 1, -1, -1):
            if i in kept:
                kept.update(self._maker[n] for n in self.reads[i] if n in self._maker and n not in self._infos)
        return tuple(sorted(kept))

    def new_inputs(self, cut: Cut) -> tuple[str, ...]:
        """Return the inputs of a cut that the whole model makes itself, in the order in which they are read."""
        made = {name for i in cut.nodes for name in self.nodes[i].output}
        read = dict.fromkeys(name for i in cut.nodes for name in self.reads[i])
        missing = (n for n in read if n not in made and n in self._maker)
        return tuple(n for n in missing if n not in self._constants and n not in cut.frozen)

    def integers(self, names: Iterable[str]) -> frozenset[str]:
        """Return those tensors of integers or booleans with a static shape: indices and sizes, whose values matter."""
        found = ((name, self._infos[name].type.tensor_type) for name in names)
        return frozenset(name for name, t in found if _is_static(t) and not _is_float(t.elem_type))

    def outputs(self, cut: Cut) -> tuple[str, ...]:
        """Return the outputs of a cut: those of the whole model that are there, and what nodes outside would read."""
        kept = set(cut.nodes)
        made = dict.fromkeys(name for i in cut.nodes for name in self.nodes[i].output if name)
        final = [name for name in self._final if name in made or name in self._sources]
        cut_off = [n for n in made if n in self._infos and not kept.issuperset(self._readers.get(n, ()))]
        return tuple(name for name in dict.fromkeys((*final, *cut_off)) if name not in cut.hidden)

    def weights(self, cut: Cut) -> tuple[str, ...]:
        """Return the initializers of a cut whose elements could be made up."""
        made = {name for i in cut.nodes for name in self.nodes[i].output}
        read = dict.fromkeys(name for i in cut.nodes for name in self.reads[i] if name not in made)
        return tuple(name for name in read if self._is_weight(name))

    def _is_weight(self, name: str) -> bool:
        tensor, constant = self._initializers.get(name), self._constants.get(name)
        if tensor is not None:
            dtype, shape = DType.from_onnx(tensor.data_type), tuple(tensor.dims)
        elif constant is not None:
            dtype, shape = constant.dtype, constant.shape
        else:
            return False
        elements = math.prod(shape)
        if dtype is None or not dtype.is_float or elements < _LEAST_WEIGHT_ELEMENTS:
            return False
        return bool(elements * dtype.size_bytes <= _LARGEST_FILLED_BYTES)

    def build(self, cut: Cut) -> onnx.ModelProto | None:
        """Return a cut as a model whose external data, if it has any, lies where the whole model's does.

        None if it has no nodes, no outputs, or an input of which the type is not known.
        """
        outputs = self.outputs(cut)
        if not cut.nodes or not outputs or set(self.closed(cut.nodes)) != set(cut.nodes):
            return None
        whole, result = self.proto, onnx.ModelProto()
        result.ir_version = whole.ir_version
        result.producer_name, result.producer_version = whole.producer_name, whole.producer_version
        result.opset_import.extend(whole.opset_import)
        graph = result.graph
        graph.name = whole.graph.name or "graph"
        graph.node.extend(self.nodes[i] for i in cut.nodes)
        result.functions.extend(_called_functions(whole, graph.node))
        for part in (*graph.node, *result.functions):
            part.ClearField("doc_string")
        made = {name for node in graph.node for name in node.output if name}
        graph.output.extend(self._final.get(name) or self._infos[name] for name in outputs)
        graph.value_info.extend(i for i in whole.graph.value_info if i.name in made and i.name not in outputs)
        self._add_sources(graph, cut, made, whole.ir_version < _FIRST_IR_WITH_DEFAULTS)
        annotated = made | {t.name for t in graph.initializer} | {i.name for i in graph.input}
        annotations = (a for a in whole.graph.quantization_annotation if a.tensor_name in annotated)
        graph.quantization_annotation.extend(annotations)
        return result

    def _add_sources(self, graph: onnx.GraphProto, cut: Cut, made: set[str], list_initializers: bool) -> None:
        """Add what the nodes read and do not make: inputs, and initializers."""
        read = dict.fromkeys(name for i in cut.nodes for name in self.reads[i] if name not in made)
        read |= dict.fromkeys(name for name in self.outputs(cut) if name not in made)
        needed = read.keys() | cut.unread
        filled = dict(cut.filled)
        graph.input.extend(info for name, info in self._given.items() if name in needed)
        graph.input.extend(self._infos[name] for name in self.new_inputs(cut))
        whole = self.proto.graph
        for tensor in whole.initializer:
            if tensor.name in needed:
                graph.initializer.append(_filled(tensor, filled.get(tensor.name), self._seed))
        graph.sparse_initializer.extend(t for t in whole.sparse_initializer if t.values.name in needed)
        for name in read:
            if name in self._maker and (name in self._constants or name in cut.frozen):
                tensor = _filled(self._value(name), filled.get(name), self._seed)
                graph.initializer.append(tensor)
                if list_initializers:
                    graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, tuple(tensor.dims)))

    def _value(self, name: str) -> onnx.TensorProto:
        """Return a known tensor, or zeros in the place of one that is not."""
        if name in self._constants:
            return numpy_helper.from_array(self._constants[name].array(), name)
        tensor = self._infos[name].type.tensor_type
        zeros = np.zeros([d.dim_value for d in tensor.shape.dim], helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        return numpy_helper.from_array(zeros, name)


def mentioned(node: onnx.NodeProto) -> Iterator[str]:
    """The tensors that a node may read: its operands, and every name in its subgraphs, their own included."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield from (output.name for output in graph.output)
            for inner in graph.node:
                yield from mentioned(inner)


def _known_infos(
    types: Mapping[str, object], static: Mapping[str, TensorType], constants: Mapping[str, Constant]
) -> dict[str, onnx.ValueInfoProto]:
    """Return the tensors that can be an input or an output, with their types."""
    found = {}
    for name, typed in types.items():
        assert isinstance(typed, onnx.TypeProto)
        if typed.HasField("tensor_type") and typed.tensor_type.elem_type and typed.tensor_type.HasField("shape"):
            found[name] = helper.make_value_info(name, typed)
    for name, fixed in static.items():
        found[name] = helper.make_tensor_value_info(name, fixed.dtype.onnx, fixed.shape)
    for name, constant in constants.items():
        found[name] = helper.make_tensor_value_info(name, constant.dtype.onnx, constant.shape)
    return found


def _is_static(tensor: onnx.TypeProto.Tensor) -> bool:
    return all(dim.HasField("dim_value") for dim in tensor.shape.dim)


def _is_float(elem_type: int) -> bool:
    dtype = DType.from_onnx(elem_type)
    return dtype is None or dtype.is_float or dtype is DType.STRING


def _filled(tensor: onnx.TensorProto, filling: str | None, seed: int) -> onnx.TensorProto:
    """Return a tensor, or one of the same name and type whose elements are made up."""
    if filling is None:
        return tensor
    dtype = DType.from_onnx(tensor.data_type)
    assert dtype is not None
    shape = tuple(tensor.dims)
    if filling == "random":
        # Divided so that sums over a whole filter stay near one.
        fan = max(1.0, float(math.prod(shape[1:])))
        values = np.random.default_rng([seed, zlib.crc32(tensor.name.encode())]).standard_normal(shape) / fan**0.5
    else:
        values = np.full(shape, 0.0 if filling == "zeros" else 1.0)
    return onnx.TensorProto(
        name=tensor.name, data_type=tensor.data_type, dims=shape, raw_data=values.astype(dtype.numpy).tobytes()
    )


def _called_functions(whole: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> list[onnx.FunctionProto]:
    """Return the model-local functions that nodes call, directly or through others, in the file's order."""
    functions = {(f.domain, f.name): f for f in whole.functions}
    open_calls = {call for node in nodes for call in _calls(node)}
    called: set[tuple[str, str]] = set()
    while open_calls:
        call = open_calls.pop()
        if call in functions and call not in called:
            called.add(call)
            open_calls.update(inner for node in functions[call].node for inner in _calls(node))
    return [function for name, function in functions.items() if name in called]


def _calls(node: onnx.NodeProto) -> Iterator[tuple[str, str]]:
    yield node.domain, node.op_type
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            for inner in graph.node:
                yield from _calls(inner)
