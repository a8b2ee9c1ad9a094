"""What a fission function sees of its operator; it remembers what was asked for, so that nothing is overlooked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.core.model import Operator
from korch_cli.core.primitive import Constant
from korch_cli.core.types import Array, TensorType


class OperatorView:
    """One operator's inputs, attributes and outputs.

    Every accessor marks what it returns as understood; `check_consumed` refuses what is left. Absent optional inputs
    are None, absent attributes take the default that is given.
    """

    def __init__(
        self,
        operator: Operator,
        resolve: Callable[[str], Value],
        constant: Callable[[str], Constant | None],
        outputs: tuple[TensorType | None, ...],
        used: tuple[bool, ...],
    ) -> None:
        """See through `operator`.

        Args:
            operator: the operator.
            resolve: from a tensor's name to its value in the graph that is being built.
            constant: from a tensor's name to its data, if it is known before the model runs.
            outputs: the model's type for each output.
            used: whether anything reads each output.
        """
        self.operator = operator
        self._resolve, self._constant = resolve, constant
        self._outputs, self._used = outputs, used
        self._left_attributes = set(operator.attributes)
        self._left_inputs = {i for i, name in enumerate(operator.inputs) if name}

    @property
    def op_type(self) -> str:
        """The operator's type, for functions that several operators share."""
        return self.operator.op_type

    @property
    def version(self) -> int:
        """The opset version that the model imports."""
        return self.operator.version

    def has_attribute(self, name: str) -> bool:
        """Whether this attribute is given; does not consume it."""
        return name in self.operator.attributes

    def has_input(self, index: int) -> bool:
        """Whether this input is given; does not consume it."""
        return index < len(self.operator.inputs) and bool(self.operator.inputs[index])

    def input(self, index: int) -> Value:
        """Return a required input. Raises Refusal."""
        value = self.optional(index)
        if value is None:
            raise Refusal(f"input {index} is missing")
        return value

    def optional(self, index: int) -> Value | None:
        """Return an optional input, or None."""
        if not self.has_input(index):
            return None
        self._left_inputs.discard(index)
        return self._resolve(self.operator.inputs[index])

    def inputs(self) -> tuple[Value, ...]:
        """Return all inputs of a variadic operator. Raises Refusal where there is none, or one is omitted."""
        if not self.operator.inputs:
            raise Refusal("there are no inputs")
        return tuple(self.input(i) for i in range(len(self.operator.inputs)))

    def is_constant(self, index: int) -> bool:
        """Whether this input's data is known; does not consume it."""
        return self.has_input(index) and self._constant(self.operator.inputs[index]) is not None

    def constant(self, index: int) -> Array | None:
        """Return the data of an optional input that has to be known; None if it is absent. Raises Refusal."""
        if not self.has_input(index):
            return None
        name = self.operator.inputs[index]
        constant = self._constant(name)
        if constant is None:
            raise Refusal(f"input {index} ({name!r}) is not constant")
        self._left_inputs.discard(index)
        return constant.array()

    def constant_integers(self, index: int) -> tuple[int, ...] | None:
        """Return the elements of an optional constant integer input of any shape, or None. Raises Refusal."""
        data = self.constant(index)
        return None if data is None else tuple(int(i) for i in data.reshape(-1))

    def integer(self, name: str, default: int) -> int:
        """Return an integer attribute. Raises Refusal where it is of another kind."""
        return int(self._attribute(name, default, int))

    def number(self, name: str, default: float) -> float:
        """Return a floating-point attribute; like those in a file, a default is rounded to float32. Raises Refusal."""
        return float(np.float32(self._attribute(name, default, float, int)))

    def text(self, name: str, default: str) -> str:
        """Return a string attribute. Raises Refusal."""
        found = self._attribute(name, default, str, bytes)
        return found.decode(errors="replace") if isinstance(found, bytes) else str(found)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Return an attribute that is a list of integers, or None. Raises Refusal."""
        found = self._attribute(name, None, tuple, list)
        return None if found is None else tuple(int(i) for i in found)

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """Return an attribute that is a list of numbers, or None. Raises Refusal."""
        found = self._attribute(name, None, tuple, list)
        return None if found is None else tuple(float(i) for i in found)

    def tensor(self, name: str) -> Array | None:
        """Return an attribute that is a tensor, or None. Raises Refusal."""
        found = self._attribute(name, None, np.ndarray)
        return None if found is None else np.asarray(found)

    def ignore(self, *names: str) -> None:
        """Mark attributes as understood that do not change the outputs."""
        self._left_attributes.difference_update(names)

    def ignore_input(self, index: int) -> None:
        """Mark an input as understood whose value does not change the outputs."""
        self._left_inputs.discard(index)

    def axis(self, name: str, default: int, rank: int, *, negative: bool = True) -> int:
        """Return an axis attribute, counted from the front of `rank` axes. Raises Refusal where there is none."""
        axis = self.integer(name, default)
        if axis < 0 and not negative:
            raise Refusal(f"a negative {name} has no meaning at opset {self.version}")
        return normalized(axis, rank)

    def output(self, index: int) -> TensorType:
        """Return the model's type of an output. Raises Refusal."""
        found = self._outputs[index] if index < len(self._outputs) else None
        if found is None:
            raise Refusal(f"output {index} is missing")
        return found

    def wants(self, index: int) -> bool:
        """Whether anything reads this output."""
        return index < len(self._used) and self._used[index]

    def check_consumed(self) -> None:
        """Refuse if an attribute or an input was never asked for.

        Raises:
            Refusal: naming the first one.
        """
        for name in sorted(self._left_attributes):
            raise Refusal(f"attribute {name!r} is not understood")
        for index in sorted(self._left_inputs):
            raise Refusal(f"input {index} ({self.operator.inputs[index]!r}) is not understood")

    def _attribute(self, name: str, default: Any, *kinds: type) -> Any:
        self._left_attributes.discard(name)
        found = self.operator.attributes.get(name)
        if found is None:
            return default
        if not isinstance(found, kinds):
            raise Refusal(f"attribute {name!r} is of an unexpected kind")
        return found


def normalized(axis: int, rank: int) -> int:
    """Return `axis` counted from the front. Raises Refusal where there is no such axis."""
    if not -rank <= axis < rank:
        raise Refusal(f"there is no axis {axis} in a tensor of rank {rank}")
    return axis % rank


def distinct_axes(axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Return `axes` counted from the front, in the order given. Raises Refusal for a bad or repeated one."""
    found = tuple(normalized(axis, rank) for axis in axes)
    if len(set(found)) != len(found):
        raise Refusal(f"the axes {axes} repeat one")
    return found
