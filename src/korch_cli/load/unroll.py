"""The bodies of control flow beside the graph that they are in, so that every later stage sees one flat graph.

Shapes decide what can be done. What a body captures has the static type that it has outside. The state of a Loop or
Scan has the type of its initial value if the body, given that type, returns the same one: then every iteration does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import onnx

from korch_cli.core.model import Body, Model, UnrolledModel
from korch_cli.core.randomness import is_random
from korch_cli.core.types import Array, DType, TensorType
from korch_cli.load.branches import take_branches
from korch_cli.load.constants import add_initializer, is_default_domain, lift_constants
from korch_cli.load.describe import describe
from korch_cli.load.fold import fold
from korch_cli.load.infer import static_dims, take_stated
from korch_cli.load.rename import renamed
from korch_cli.load.structure import captured, defined_names, given_names, sorted_nodes, subgraphs

_BODIES = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}
_SCAN_WITHOUT_BATCH = 9
"""Before this opset Scan's operands have a batch axis."""
_MOST_BODIES = 200
"""Models with more bodies than this are left as they are: each of them is searched like a model of its own."""


def unroll(model: Model, without: Set[str] = frozenset()) -> UnrolledModel:
    """Return a loaded model together with the bodies of its control flow, except those with the prefixes `without`.

    An If inside a body whose condition is known gives way to the branch that is taken.
    """
    assert isinstance(model.proto, onnx.ModelProto)
    if not any(list(subgraphs(node)) for node in model.proto.graph.node):
        return UnrolledModel(model, model, ())
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    while True:
        model = describe(proto, model.path, model.notes)
        sites = list(_sites(proto.graph, None, frozenset(), model.opsets.get("", 1), _all_names(proto.graph)))
        if not 0 < len(sites) <= _MOST_BODIES:
            return UnrolledModel(model, model, ())
        flat, bodies = _flattened(model, sites, without)
        if not sum(_take_branches(site, flat) for site in sites):
            break
    if len(flat.operators) == len(model.operators):
        return UnrolledModel(model, model, ())
    return UnrolledModel(model, flat, bodies)


def _take_branches(site: _Site, flat: Model) -> int:
    def value(name: str) -> Array | None:
        owner: _Site | None = site
        while owner is not None and name not in owner.local:
            owner = owner.parent
        constant = flat.constants.get(name if owner is None else owner.prefix + name)
        return None if constant is None else constant.array()

    return take_branches(site.graph, site.outer, value, site.graph.initializer.append)


def _flattened(model: Model, sites: Sequence[_Site], without: Set[str]) -> tuple[Model, tuple[Body, ...]]:
    """Return the flat model, and the bodies in it."""
    types: Mapping[str, TensorType] = model.types
    changing: frozenset[str] = frozenset()
    given: dict[str, TensorType] | None = None
    flat = model
    while True:
        unrolling = _Unrolling(model, types, changing)
        bodies = tuple(unrolling.body(site, leave=site.prefix in without) for site in sites)
        if unrolling.given == given:
            return flat, bodies
        # What is known of outer bodies tells more of the inner ones, until nothing new turns up.
        given = unrolling.given
        flat = unrolling.described()
        types = flat.types
        changing |= {name for site in sites for name in _changing(site, unrolling, types)}


@dataclass(frozen=True, slots=True)
class _Site:
    """A body where it is.

    Attributes:
        prefix: as in `Body`.
        path: as in `Body`.
        node: what it is a part of.
        graph: the body.
        parent: the body around it, None for the main graph.
        local: the tensors that it defines.
        constants: those of them whose values are known.
        outer: the tensors that it may capture.
    """

    prefix: str
    path: tuple[tuple[int, str], ...]
    node: onnx.NodeProto
    graph: onnx.GraphProto
    parent: _Site | None
    local: frozenset[str]
    constants: frozenset[str]
    outer: frozenset[str]


def _sites(
    graph: onnx.GraphProto, parent: _Site | None, outer: frozenset[str], opset: int, taken: set[str]
) -> Iterator[_Site]:
    """The bodies in a graph, outer ones first, but for those that give a tensor a name that is in use outside."""
    visible = outer | defined_names(graph)
    for position, node in enumerate(graph.node):
        if not is_default_domain(node.domain) or (node.op_type == "Scan" and opset < _SCAN_WITHOUT_BATCH):
            continue
        for attribute in node.attribute:
            if attribute.name not in _BODIES.get(node.op_type, ()):
                continue
            inner = attribute.g
            if visible & defined_names(inner):
                continue
            stem = f"{parent.prefix if parent else ''}{node.name or f'{node.op_type}_{position}'}.{attribute.name}"
            site = _Site(
                prefix=_unused(stem, taken),
                path=((*parent.path, (position, attribute.name)) if parent else ((position, attribute.name),)),
                node=node,
                graph=inner,
                parent=parent,
                local=defined_names(inner),
                constants=frozenset(_constants(inner)),
                outer=visible,
            )
            yield site
            yield from _sites(inner, site, visible, opset, taken)


def _constants(graph: onnx.GraphProto) -> Iterator[str]:
    inputs = {info.name for info in graph.input}
    yield from (tensor.name for tensor in graph.initializer if tensor.name not in inputs)
    for node in graph.node:
        if node.op_type == "Constant" and is_default_domain(node.domain) and not _is_sparse(node):
            yield node.output[0]


def _is_sparse(node: onnx.NodeProto) -> bool:
    return any(attribute.name == "sparse_value" for attribute in node.attribute)


def _unused(stem: str, taken: set[str]) -> str:
    """Return a prefix with which no name begins that is in use."""
    prefix, count = f"{stem}/", 0
    while any(name.startswith(prefix) for name in taken):
        count += 1
        prefix = f"{stem}.{count}/"
    taken.add(prefix)
    return prefix


def _all_names(graph: onnx.GraphProto) -> set[str]:
    names = given_names(graph) | {name for node in graph.node for name in (node.name, *node.output)}
    return names.union(*(_all_names(inner) for node in graph.node for inner in subgraphs(node)))


class _Unrolling:
    """One attempt: the flat model that follows from what is known of the types."""

    def __init__(self, model: Model, types: Mapping[str, TensorType], changing: frozenset[str]) -> None:
        assert isinstance(model.proto, onnx.ModelProto)
        self.given: dict[str, TensorType] = {}
        self._model, self._types, self._changing = model, types, changing
        self._available: dict[str, set[str]] = {}
        self._proto = onnx.ModelProto()
        self._proto.CopyFrom(model.proto)

    def described(self) -> Model:
        """Return the flat model, with constants folded and types inferred."""
        for name, typed in self.given.items():
            self._proto.graph.input.append(onnx.helper.make_tensor_value_info(name, typed.dtype.onnx, typed.shape))
        lift_constants(self._proto)
        fold(self._proto, take_stated(self._proto), self._model.path.parent)
        return describe(self._proto, self._model.path, self._model.notes)

    def body(self, site: _Site, *, leave: bool) -> Body:
        """Add a body's nodes, as far as what they read has a static type; its parent has been added before."""
        known = self._available.setdefault(site.prefix, set())
        if leave:
            return Body(site.prefix, site.path, frozenset(range(len(site.graph.node))))
        for name, typed in self.formals(site).items():
            if typed is not None and site.prefix + name not in self._changing:
                self.given[site.prefix + name] = typed
                known.add(name)
        for tensor in site.graph.initializer:
            if tensor.name in site.constants:
                copy = onnx.TensorProto()
                copy.CopyFrom(tensor)
                copy.name = site.prefix + tensor.name
                add_initializer(self._proto, copy)
                known.add(tensor.name)
        left, made = self._add_nodes(site, known)
        asked = {output.name for output in site.graph.output}
        asked |= {name for node in left for name in _reads(node)}
        wanted = sorted(asked & made)
        self._proto.graph.output.extend(onnx.ValueInfoProto(name=site.prefix + name) for name in wanted)
        positions = frozenset(i for i, node in enumerate(site.graph.node) if any(node is other for other in left))
        return Body(site.prefix, site.path, positions)

    def formals(self, site: _Site) -> dict[str, TensorType | None]:
        """Return what a body is given in each iteration, with its type where that is known."""
        names = [info.name for info in site.graph.input]
        if site.node.op_type == "Loop":
            operands = [self._outer_type(site.parent, name) for name in site.node.input[2:]]
            first = [
                _counter(info, dtype) for info, dtype in zip(site.graph.input, (DType.I64, DType.BOOL), strict=False)
            ]
            return dict(zip(names, (*first, *operands), strict=False))
        if site.node.op_type == "Scan":
            operands = [self._outer_type(site.parent, name) for name in site.node.input]
            return dict(zip(names, _scanned(site.node, operands), strict=False))
        return {}

    def _add_nodes(self, site: _Site, known: set[str]) -> tuple[list[onnx.NodeProto], set[str]]:
        """Add what can be added; return the nodes that cannot, and the tensors that the others make."""
        left: list[onnx.NodeProto] = []
        made: set[str] = set()
        for node in sorted_nodes(site.graph):
            names = {name: self._resolved(site, name) for name in _reads(node)}
            random = is_random(node.op_type, node.domain)
            if random or node.op_type in ("Loop", "Scan") or None in names.values():
                left.append(node)
                continue
            results = {name: site.prefix + name for name in node.output if name}
            self._proto.graph.node.append(renamed(node, {n: new for n, new in names.items() if new} | results))
            if node.name:
                self._proto.graph.node[-1].name = site.prefix + node.name
            made.update(results)
            known |= made
        return left, made

    def _resolved(self, site: _Site, name: str) -> str | None:
        """Return what a body's operand is called in the flat model, None if it is not there."""
        if name in site.local:
            return site.prefix + name if name in self._available[site.prefix] else None
        owner = site.parent
        while owner is not None and name not in owner.local:
            owner = owner.parent
        if owner is None and name in self._model.constants:
            return name
        if owner is not None and name in owner.constants:
            return owner.prefix + name
        typed = self._outer_type(site.parent, name)
        if typed is None:
            return None
        self.given[site.prefix + name] = typed
        return site.prefix + name

    def _outer_type(self, site: _Site | None, name: str) -> TensorType | None:
        """Return the type that a name has inside a body, or in the main graph."""
        while site is not None and name not in site.local:
            site = site.parent
        typed = self._types.get(name if site is None else site.prefix + name)
        return None if typed is None or typed.dtype is DType.STRING else typed


def _changing(site: _Site, unrolling: _Unrolling, types: Mapping[str, TensorType]) -> Iterator[str]:
    """The states of a loop that the body may return with another type than it was given."""
    names = [info.name for info in site.graph.input]
    if site.node.op_type == "Loop":
        states = list(zip(names[2:], (info.name for info in site.graph.output[1:]), strict=False))
    elif site.node.op_type == "Scan":
        scanned = _scan_inputs(site.node)
        states = list(zip(names[: len(names) - scanned], (info.name for info in site.graph.output), strict=False))
    else:
        return
    formals = unrolling.formals(site)
    for state, returned in states:
        if site.prefix + state not in unrolling.given:
            continue
        owner: _Site | None = site
        while owner is not None and returned not in owner.local:
            owner = owner.parent
        found = types.get(returned if owner is None else owner.prefix + returned)
        if found is None or found != formals.get(state):
            yield site.prefix + state


def _counter(info: onnx.ValueInfoProto, dtype: DType) -> TensorType:
    """The iteration number or the condition: a scalar, or what the body says if that is a vector of one."""
    return TensorType(dtype, (1,) if static_dims(info) == (1,) else ())


def _scan_inputs(node: onnx.NodeProto) -> int:
    return next((a.i for a in node.attribute if a.name == "num_scan_inputs"), 0)


def _scanned(node: onnx.NodeProto, operands: Iterable[TensorType | None]) -> Iterator[TensorType | None]:
    """The types of what a Scan gives to its body: states, and then slices of the scanned operands."""
    operands = list(operands)
    count = _scan_inputs(node)
    axes = next((list(a.ints) for a in node.attribute if a.name == "scan_input_axes"), [0] * count)
    yield from operands[: len(operands) - count]
    for typed, axis in zip(operands[len(operands) - count :], axes, strict=False):
        if typed is None or not -typed.rank <= axis < typed.rank:
            yield None
        else:
            shape = list(typed.shape)
            del shape[axis]
            yield TensorType(typed.dtype, tuple(shape))


def _reads(node: onnx.NodeProto) -> set[str]:
    return {name for name in (*node.input, *captured(node)) if name}
