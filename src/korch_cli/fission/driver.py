"""From a model to its primitive graph."""

from __future__ import annotations

from collections.abc import Mapping

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.model import Model, Operator
from korch_cli.core.primitive import Constant, Input, Opaque
from korch_cli.core.types import UNKNOWN, DType, TensorType
from korch_cli.fission import families  # noqa: F401 - fills the table
from korch_cli.fission.build import Builder
from korch_cli.fission.registry import find
from korch_cli.fission.view import OperatorView


def fission(model: Model) -> PrimitiveGraph:
    """Split every operator that the table has a function for into primitives; the others stay opaque.

    A tensor of the model is the value of the same name. One without a static type has the type `UNKNOWN`. Constants
    appear only where a value reads them; outputs of an operator that nothing reads may have no value.
    """
    return _Fission(model).run()


class _Contradiction(Refusal):
    """An operator's definition gives another type than the model, from which nothing more can be concluded."""


class _Fission:
    """One run over one model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        made = [name for operator in model.operators for name in operator.outputs]
        read = [name for operator in model.operators for name in (*operator.inputs, *operator.captures)]
        self._used = {*read, *model.outputs}
        self._build = Builder({*made, *read, *model.inputs, *model.outputs, *model.constants})
        self._ids: dict[str, int] = {}
        self._refusals: dict[int, str] = {}
        self._doubted: set[str] = set()

    def run(self) -> PrimitiveGraph:
        for name in self._model.inputs:
            self._resolve(name)
        for operator in self._model.operators:
            if not all(name in self._model.constants for name in operator.outputs if name):
                self._operator(operator)
        outputs = tuple(self._resolve(name).id for name in self._model.outputs)
        ids = {o.index: tuple(self._ids.get(name, -1) for name in o.outputs) for o in self._model.operators}
        return _pruned(self._build.values, outputs, ids, self._refusals)

    def _operator(self, operator: Operator) -> None:
        for name in (*operator.inputs, *operator.captures):
            # What no primitive needs is still read where the operator runs as it is.
            if name and name not in self._model.constants:
                self._resolve(name)
        mark = self._build.begin(operator.index, next(name for name in operator.outputs if name))
        try:
            results = self._split(operator)
        except Refusal as refusal:
            # Values that were made before the refusal are read by nothing, and fall away in the end.
            doubtful = isinstance(refusal, _Contradiction) or self._doubted.intersection(operator.inputs)
            if doubtful or self._doubted.intersection(operator.captures):
                self._doubted.update(name for name in operator.outputs if name)
            self._refusals[operator.index] = refusal.sentence
            self._keep(operator)
            return
        for value in self._build.finish(mark, results):
            self._ids[value.name] = value.id

    def _split(self, operator: Operator) -> dict[str, Value]:
        function = find(operator.domain, operator.op_type, operator.version)
        if operator.captures:
            raise Refusal("it has a subgraph")
        for name in (*operator.inputs, *operator.outputs):
            if name:
                self._check_type(name)
        view = OperatorView(
            operator,
            self._resolve,
            self._model.constants.get,
            tuple(self._model.types.get(name) for name in operator.outputs),
            tuple(name in self._used for name in operator.outputs),
        )
        returned = function(view, self._build)
        view.check_consumed()
        return self._named(operator, returned if isinstance(returned, tuple) else (returned,))

    def _named(self, operator: Operator, returned: tuple[Value | None, ...]) -> dict[str, Value]:
        results: dict[str, Value] = {}
        for index, name in enumerate(operator.outputs):
            value = returned[index] if index < len(returned) else None
            if not name or name in self._model.constants or (value is None and name not in self._used):
                continue
            if value is None:
                raise Refusal(f"output {index} ({name!r}) is not understood")
            if value.type != self._type(name):
                raise _Contradiction(f"output {index} would be {value.type}, but the model says {self._type(name)}")
            results[name] = value
        return results

    def _keep(self, operator: Operator) -> None:
        """Keep an operator as it is: one opaque value for each output."""
        read = dict.fromkeys(name for name in (*operator.inputs, *operator.captures) if name)
        args = tuple(dict.fromkeys(self._resolve(name).id for name in read))
        for index, name in enumerate(operator.outputs):
            if name and name not in self._model.constants:
                typed = self._type(name) or UNKNOWN
                self._ids[name] = self._build.opaque(name, typed, Opaque(operator.index, index), args).id

    def _check_type(self, name: str) -> None:
        typed = self._type(name)
        if typed is None:
            raise Refusal(f"the element type or shape of {name!r} is not known before the model runs")
        if typed.dtype is DType.STRING:
            raise Refusal(f"{name!r} holds strings")

    def _type(self, name: str) -> TensorType | None:
        if name in self._doubted:
            return None
        constant = self._model.constants.get(name)
        return TensorType(constant.dtype, constant.shape) if constant else self._model.types.get(name)

    def _resolve(self, name: str) -> Value:
        """Return the value of a tensor; what is neither computed nor constant is given from outside."""
        if name not in self._ids:
            op = self._model.constants.get(name) or Input()
            self._ids[name] = self._build.source(name, self._type(name) or UNKNOWN, op).id
        return self._build.values[self._ids[name]]


def _pruned(
    values: list[Value], outputs: tuple[int, ...], ids: Mapping[int, tuple[int, ...]], refusals: Mapping[int, str]
) -> PrimitiveGraph:
    """Return the graph without what nothing reads: constants that were folded, values that a function left over."""
    live = {*outputs, *(v for group in ids.values() for v in group if v >= 0)}
    kept = {v for v in live if not isinstance(values[v].op, Constant)} | set(outputs)
    kept.update(v.id for v in values if isinstance(v.op, Input))
    for value in reversed(values):
        if value.id in kept:
            kept.update(value.args)
    new = {old: position for position, old in enumerate(sorted(kept))}
    new[-1] = -1
    renumbered = tuple(
        Value(new[v.id], v.name, v.type, v.op, tuple(new[a] for a in v.args), v.operator) for v in values if v.id in new
    )
    return PrimitiveGraph(
        renumbered,
        tuple(new[v] for v in outputs),
        {operator: tuple(new.get(v, -1) for v in group) for operator, group in ids.items()},
        refusals,
    )
