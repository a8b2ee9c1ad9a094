"""The primitive graph: immutable, in topological order, one value for each primitive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from korch_cli.core.primitive import Constant, Input, Op
from korch_cli.core.types import TensorType


@dataclass(frozen=True, slots=True)
class Value:
    """What a primitive computes, or a source (Input, Constant).

    Attributes:
        id: position in the graph's `values`; operands have smaller ids.
        name: the ONNX tensor name for what an operator outputs, a unique derived name for what lies between.
        type: element type and shape.
        op: the primitive, or Input or Constant.
        args: ids of the operands.
        operator: index in `Model.operators` of the operator it came from, -1 for sources.
    """

    id: int
    name: str
    type: TensorType
    op: Op
    args: tuple[int, ...] = ()
    operator: int = -1

    @property
    def is_source(self) -> bool:
        """Whether it exists before any kernel runs."""
        return isinstance(self.op, Input | Constant)


@dataclass(frozen=True)
class PrimitiveGraph:
    """Values in topological order.

    Attributes:
        values: every value, at the index that is its id.
        outputs: ids of the graph's outputs, in order; may repeat, may be sources.
        operator_outputs: for each operator index, the ids of its outputs in order (-1 for an omitted one).
        refusals: for each operator that stayed opaque, the sentence that says why.
        alternatives: for each value that is another way to compute what an earlier value is, the id of that one. Values
            that are equal in this way form a class. Operands and outputs name its first value, and stand for any of it;
            all values of a class come before every reader, so that no way to compute a value begins with the value.
    """

    values: tuple[Value, ...]
    outputs: tuple[int, ...]
    operator_outputs: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    refusals: Mapping[int, str] = field(default_factory=dict)
    alternatives: Mapping[int, int] = field(default_factory=dict)

    def first(self, v: int) -> int:
        """The value that stands for the class of `v`: itself, unless it is an alternative."""
        return self.alternatives.get(v, v)

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """For each value, the ids of the values that read it, ascending and without repeats."""
        users: list[list[int]] = [[] for _ in self.values]
        for value in self.values:
            for arg in dict.fromkeys(value.args):
                users[arg].append(value.id)
        return tuple(map(tuple, users))

    @cached_property
    def by_operator(self) -> Mapping[int, tuple[int, ...]]:
        """For each operator index, the ids of the primitives that came from it, ascending."""
        found: dict[int, list[int]] = {}
        for value in self.primitives():
            found.setdefault(value.operator, []).append(value.id)
        return {operator: tuple(ids) for operator, ids in found.items()}

    def inputs(self) -> Iterator[Value]:
        """The values given from outside, in order."""
        return (v for v in self.values if isinstance(v.op, Input))

    def primitives(self) -> Iterator[Value]:
        """Every value that some kernel must compute, in topological order."""
        return (v for v in self.values if not v.is_source)

    def args(self, value: Value) -> tuple[Value, ...]:
        """The operands of `value`."""
        return tuple(self.values[a] for a in value.args)
