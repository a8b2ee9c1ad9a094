"""Several ways to write a model in one graph: what they have in common once, what differs as alternatives.

Tensors that two ways call the same are equal (algebra/union.py sees to that). A primitive of a later way is one of an
earlier way if it is the same operation on the same values; else it is new, and if it computes a tensor that there is
already, it is an alternative of it. What lies inside of an operator has no name that means anything, and is equal to
something else only as the same operation on the same values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush

from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.primitive import Constant, Input, Op, Opaque
from korch_cli.core.types import TensorType

_Key = tuple[Op, TensorType, tuple[int, ...], str | None]


@dataclass(frozen=True, slots=True)
class Union:
    """A graph that holds several others.

    Attributes:
        graph: with alternatives.
        values: for each of the others, the id that each of its values has in `graph`.
    """

    graph: PrimitiveGraph
    values: tuple[tuple[int, ...], ...]


def unite(
    graphs: Sequence[PrimitiveGraph], tensors: Sequence[frozenset[str]], operators: Sequence[Sequence[int]]
) -> Union | None:
    """Return one graph for several ways to compute the same outputs.

    Args:
        graphs: of one way each; they have the same inputs and outputs.
        tensors: for each way, the names of its model's tensors: equal ones in two ways are equal values.
        operators: for each way, the index that each of its operators has in the model of the whole.

    Returns:
        None if one way computes a tensor from a second one, and another way the second from the first, or if they do
        not agree on what type a tensor has.
    """
    uniting = _Uniting()
    for graph, names, indices in zip(graphs, tensors, operators, strict=True):
        uniting.add(graph, names, indices)
    order = uniting.order() if uniting.agree else None
    return None if order is None else uniting.result(order, graphs, operators)


@dataclass(slots=True)
class _Primitive:
    """A primitive before it has an id; operands are classes."""

    value: Value
    op: Op
    args: tuple[int, ...]
    tensor: str | None
    klass: int
    operator: int
    rank: tuple[int, int, int] = (0, 0, 0)


@dataclass(slots=True)
class _Uniting:
    """Primitives by number, in the order in which they were met, and the classes that they belong to."""

    primitives: list[_Primitive] = field(default_factory=list)
    classes: list[list[int]] = field(default_factory=list)
    placed: list[list[int]] = field(default_factory=list)
    agree: bool = True
    _by_tensor: dict[str, int] = field(default_factory=dict)
    _known: dict[_Key, list[int]] = field(default_factory=dict)
    _sources: dict[object, int] = field(default_factory=dict)
    _reserved: set[str] = field(default_factory=set)

    def add(self, graph: PrimitiveGraph, tensors: frozenset[str], operators: Sequence[int]) -> None:
        """Take over the values of one way."""
        way = len(self.placed)
        numbers: list[int] = []
        free = {key: list(found) for key, found in self._known.items()}
        for value in graph.values:
            tensor = value.name if value.name in tensors else None
            args = tuple(self.primitives[numbers[a]].klass for a in value.args)
            op = replace(value.op, operator=operators[value.op.operator]) if isinstance(value.op, Opaque) else value.op
            if value.is_source:
                key = _source(value, tensor)
                number = self._sources.get(key)
                if number is None:
                    number = self._sources[key] = self._new(value, op, (), tensor, -1, way)
            else:
                found = free.get((op, value.type, args, tensor))
                number = found.pop(0) if found else None
                if number is None:
                    number = self._new(value, op, args, tensor, operators[value.operator], way)
                    self._known.setdefault((op, value.type, args, tensor), []).append(number)
            numbers.append(number)
            first = self.primitives[self.classes[self.primitives[number].klass][0]]
            self.agree &= first.value.type == value.type and first.value.is_source == value.is_source
        self.placed.append(numbers)
        self._reserved |= tensors

    def _new(self, value: Value, op: Op, args: tuple[int, ...], tensor: str | None, operator: int, way: int) -> int:
        number = len(self.primitives)
        klass = len(self.classes) if tensor is None else self._by_tensor.setdefault(tensor, len(self.classes))
        if klass == len(self.classes):
            self.classes.append([])
        self.classes[klass].append(number)
        primitive = _Primitive(value, op, args, tensor, klass, operator)
        # New primitives stand behind what they read, and so near to what they are alternatives of.
        latest = max((self.primitives[n].rank[0] for a in args for n in self.classes[a]), default=0)
        primitive.rank = (value.id if way == 0 else latest, way, value.id)
        self.primitives.append(primitive)
        return number

    def order(self) -> list[int] | None:
        """Return the primitives so that each comes behind all ways to compute what it reads; None if that cannot be."""
        readers: dict[int, list[int]] = {}
        missing = []
        for number, primitive in enumerate(self.primitives):
            needed = {n for a in primitive.args for n in self.classes[a]}
            missing.append(len(needed))
            for n in needed:
                readers.setdefault(n, []).append(number)
        ready = [(p.rank, number) for number, p in enumerate(self.primitives) if not missing[number]]
        heapify(ready)
        found: list[int] = []
        while ready:
            _, number = heappop(ready)
            found.append(number)
            for reader in readers.get(number, ()):
                missing[reader] -= 1
                if not missing[reader]:
                    heappush(ready, (self.primitives[reader].rank, reader))
        return found if len(found) == len(self.primitives) else None

    def result(
        self, order: Sequence[int], graphs: Sequence[PrimitiveGraph], operators: Sequence[Sequence[int]]
    ) -> Union:
        """Return the graph of all primitives in this order."""
        ids = {number: v for v, number in enumerate(order)}
        first = [min(ids[number] for number in members) for members in self.classes]
        names = self._names(order)
        values = []
        alternatives = {}
        for v, number in enumerate(order):
            p = self.primitives[number]
            args = tuple(first[a] for a in p.args)
            values.append(Value(v, next(names), p.value.type, p.op, args, p.operator))
            if first[p.klass] != v:
                alternatives[v] = first[p.klass]
        placed = tuple(tuple(ids[number] for number in numbers) for numbers in self.placed)
        outputs = tuple(alternatives.get(placed[0][v], placed[0][v]) for v in graphs[0].outputs)
        made: dict[int, tuple[int, ...]] = {}
        refusals: dict[int, str] = {}
        for graph, indices, own in zip(graphs, operators, placed, strict=True):
            for operator, results in graph.operator_outputs.items():
                mapped = tuple(alternatives.get(own[v], own[v]) if v >= 0 else -1 for v in results)
                made.setdefault(indices[operator], mapped)
            refusals |= {indices[operator]: sentence for operator, sentence in graph.refusals.items()}
        return Union(PrimitiveGraph(tuple(values), outputs, made, refusals, alternatives), placed)

    def _names(self, order: Sequence[int]) -> Iterator[str]:
        """The first way to compute a tensor is called like it; all other names are only kept apart."""
        taken = set(self._reserved)
        named: set[str] = set()
        for number in order:
            primitive = self.primitives[number]
            name = primitive.value.name
            if primitive.tensor is not None and name not in named:
                named.add(name)
                yield name
                continue
            stem, count = name, 0
            while name in taken:
                count += 1
                name = f"{stem}/{count}"
            taken.add(name)
            yield name


def _source(value: Value, tensor: str | None) -> object:
    """Return what tells a source from others: its name, and where that means nothing, what it holds."""
    if tensor is not None or isinstance(value.op, Input):
        return value.name
    assert isinstance(value.op, Constant)
    return value.type, value.op.array().tobytes()
