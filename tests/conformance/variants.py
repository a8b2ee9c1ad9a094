"""The forms in which a case is optimised: as it is, with inputs turned into initializers, with symbolic dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from korch_cli.core.model import Bindings
from tests.conformance.cases import Case

_FIRST_IR_WITH_DEFAULTS = 4
"""Before this IR version an initializer has to be a graph input."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A case in one form.

    Attributes:
        case: id of the case.
        variant: name of the form.
        model: the model, serialized.
        oracle: the same with whatever dimensions the case has, for ONNX Runtime, which cannot load some cases without.
        feeds: what it is fed, by input.
        bindings: what gives every input that can have one a static shape.
        expected: what the case has to answer.
        rtol: relative tolerance.
        atol: absolute tolerance.
    """

    case: str
    variant: str
    model: bytes
    oracle: bytes
    feeds: dict[str, Any]
    bindings: Bindings
    expected: tuple[Any, ...]
    rtol: float
    atol: float

    @property
    def key(self) -> str:
        """The case and the variant in one, as expectations name them."""
        return f"{self.case} @ {self.variant}"


def trials(case: Case, variants: Sequence[str]) -> Iterator[Trial]:
    """A case in each of the named forms that it has: not every one has something to freeze or to name."""
    for variant in variants:
        model = onnx.ModelProto.FromString(case.model)
        feeds = dict(case.feeds)
        _correct_declarations(model, feeds)
        stated = model.SerializeToString()
        if VARIANTS[variant](model, feeds):
            bindings = _bindings(model, feeds)
            serialized = model.SerializeToString()
            oracle = stated if variant == "symbolic" else serialized
            yield Trial(case.id, variant, serialized, oracle, feeds, bindings, case.expected, case.rtol, case.atol)


def _as_is(_model: onnx.ModelProto, _feeds: dict[str, Any]) -> bool:
    return True


def _frozen(model: onnx.ModelProto, feeds: dict[str, Any]) -> bool:
    """Freeze what exporters have as constants: every input but the first, and all integers of rank 0 and 1."""
    tensors = {info.name for info in model.graph.input if info.type.HasField("tensor_type")}
    chosen = [
        name
        for position, (name, value) in enumerate(feeds.items())
        if name in tensors and isinstance(value, np.ndarray) and (position > 0 or _says_how(value))
    ]
    graph = model.graph
    for name in chosen:
        graph.initializer.append(numpy_helper.from_array(feeds.pop(name), name))
    if chosen and model.ir_version >= _FIRST_IR_WITH_DEFAULTS:
        _remove_inputs(graph, set(chosen))
    elif chosen:
        # The file's own initializers are inputs too, which from here on would make them replaceable.
        model.ir_version = _FIRST_IR_WITH_DEFAULTS
        _remove_inputs(graph, {tensor.name for tensor in graph.initializer})
    return bool(chosen)


def _symbolic(model: onnx.ModelProto, feeds: dict[str, Any]) -> bool:
    """Take all dimensions away: every other input's have a name each, the rest nothing; those of outputs have names."""
    open_axes = 0
    fed = [info for info in _fed(model) if info.type.HasField("tensor_type") and info.name in feeds]
    for position, info in enumerate(fed):
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            open_axes += 1
            dim.Clear()
            if position % 2 == 0:
                dim.dim_param = f"{info.name}_{axis}"
    for info in model.graph.output:
        if info.type.HasField("tensor_type"):
            for axis, dim in enumerate(info.type.tensor_type.shape.dim):
                dim.dim_param = f"{info.name}_{axis}"
    return open_axes > 0


VARIANTS: dict[str, Callable[[onnx.ModelProto, dict[str, Any]], bool]] = {
    "as-is": _as_is,
    "frozen": _frozen,
    "symbolic": _symbolic,
}


def _says_how(value: np.ndarray[Any, Any]) -> bool:
    """Whether a value is a shape, axes, pads or a count rather than data, as far as one can tell."""
    return np.issubdtype(value.dtype, np.integer) and value.ndim <= 1


def _remove_inputs(graph: onnx.GraphProto, names: set[str]) -> None:
    for index in reversed(range(len(graph.input))):
        if graph.input[index].name in names:
            del graph.input[index]


def _fed(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    initialized = {tensor.name for tensor in model.graph.initializer}
    return [info for info in model.graph.input if info.name not in initialized]


def _correct_declarations(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> None:
    """Let inputs declare the shape that they are fed: a few cases declare [1] and are fed a scalar."""
    for info in _fed(model):
        value = feeds.get(info.name)
        if isinstance(value, np.ndarray) and info.type.HasField("tensor_type") and not _fits(info, value.shape):
            shape = info.type.tensor_type.shape
            shape.ClearField("dim")
            for extent in value.shape:
                shape.dim.add().dim_value = extent


def _fits(info: onnx.ValueInfoProto, shape: tuple[int, ...]) -> bool:
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        return True
    dims = tensor.shape.dim
    return len(dims) == len(shape) and all(
        dim.dim_value in (0, extent) for dim, extent in zip(dims, shape, strict=True)
    )


def _bindings(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Bindings:
    """Return numbers for all named dimensions, and shapes for the inputs with dimensions that have neither."""
    dims: dict[str, int] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for info in _fed(model):
        value = feeds.get(info.name)
        if not info.type.HasField("tensor_type") or not isinstance(value, np.ndarray):
            continue
        tensor = info.type.tensor_type
        declared = tensor.shape.dim
        nameless = any(not d.dim_param and d.dim_value <= 0 for d in declared)
        if nameless or not tensor.HasField("shape"):
            shapes[info.name] = value.shape
        dims.update((d.dim_param, extent) for d, extent in zip(declared, value.shape, strict=False) if d.dim_param)
    return Bindings(dims, shapes)
