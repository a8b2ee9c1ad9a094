"""What a model has to be fed, and the numbers that its symbolic dimensions stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from korch_cli.core.errors import ModelError, UsageError
from korch_cli.core.model import Bindings
from korch_cli.core.types import DType, TensorType

Dimension = int | str | None
"""A number, the name of a symbolic dimension, or None for one without a name."""

_NAMELESS = ("", "?", "-1")


@dataclass(frozen=True, slots=True)
class _Input:
    name: str
    dtype: DType
    shape: tuple[Dimension, ...] | None


def read_proto(path: Path) -> onnx.ModelProto:
    """Return the model in a file; data in other files is not read.

    Raises:
        UsageError: there is no such file, or it cannot be opened.
        ModelError: it holds no ONNX model.
    """
    try:
        proto = onnx.ModelProto.FromString(path.read_bytes())
    except OSError as error:
        raise UsageError(f"the model cannot be opened: {error.strerror}", where=str(path)) from error
    except DecodeError as error:
        raise ModelError("the file holds no ONNX model", where=str(path)) from error
    if not proto.HasField("graph") or not proto.graph.node:
        raise ModelError("the model has no nodes", where=str(path))
    assert isinstance(proto, onnx.ModelProto)
    return proto


def model_inputs(path: Path) -> tuple[tuple[str, tuple[Dimension, ...] | None, DType], ...]:
    """Return name, declared shape and element type of every input without a default; the shape is None if undeclared.

    Raises:
        UsageError: there is no such file, or it cannot be opened.
        ModelError: it holds no ONNX model, or an input is not a tensor of a type that korch knows.
    """
    return tuple((i.name, i.shape, i.dtype) for i in _declared(path))


def bind_inputs(path: Path, bindings: Bindings) -> tuple[tuple[str, TensorType], ...]:
    """Return the inputs that must be fed with static types, as `--dim` and `--shape` say.

    A dimension that one `--shape` gives a number has that number wherever else its name appears.

    Raises:
        UsageError: there is no such file, a dimension has no number, or a binding does not fit the model.
        ModelError: as `model_inputs`.
    """
    inputs = {i.name: i for i in _declared(path)}
    _check_bindings(inputs, bindings)
    extents = dict(bindings.dims)
    for name, shape in bindings.shapes.items():
        for dimension, extent in zip(inputs[name].shape or (), shape, strict=False):
            if isinstance(dimension, str):
                extents.setdefault(dimension, extent)
    bound: dict[str, tuple[int, ...]] = {}
    for name, declared in inputs.items():
        shape_or_none = bindings.shapes.get(name, _bound(declared.shape, extents))
        if shape_or_none is not None:
            bound[name] = shape_or_none
    unbound = [declared for name, declared in inputs.items() if name not in bound]
    if unbound:
        raise _unbound_error(unbound, extents)
    return tuple((name, TensorType(inputs[name].dtype, shape)) for name, shape in bound.items())


def _declared(path: Path) -> tuple[_Input, ...]:
    graph = read_proto(path).graph
    defaults = {tensor.name for tensor in graph.initializer}
    defaults.update(sparse.values.name for sparse in graph.sparse_initializer)
    return tuple(_input(info) for info in graph.input if info.name not in defaults)


def _input(info: onnx.ValueInfoProto) -> _Input:
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        what = (kind or "value without a type").removesuffix("_type").replace("_", " ")
        raise ModelError(f"an input is a {what}; korch feeds only tensors", where=info.name)
    tensor = info.type.tensor_type
    dtype = DType.from_onnx(tensor.elem_type)
    if dtype is None:
        known = tensor.elem_type in onnx.TensorProto.DataType.values()
        what = onnx.TensorProto.DataType.Name(tensor.elem_type) if known else str(tensor.elem_type)
        raise ModelError(f"an input has the element type {what}, which korch cannot make", where=info.name)
    shape = tuple(map(_dimension, tensor.shape.dim)) if tensor.HasField("shape") else None
    return _Input(info.name, dtype, shape)


def _dimension(dim: onnx.TensorShapeProto.Dimension) -> Dimension:
    """Exporters write 0 and -1 for what is not a number."""
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value > 0 else None
    return None if dim.dim_param in _NAMELESS else dim.dim_param


def _bound(shape: tuple[Dimension, ...] | None, extents: Mapping[str, int]) -> tuple[int, ...] | None:
    if shape is None:
        return None
    numbers = [extents.get(d) if isinstance(d, str) else d for d in shape]
    known = tuple(n for n in numbers if n is not None)
    return known if len(known) == len(shape) else None


def _check_bindings(inputs: Mapping[str, _Input], bindings: Bindings) -> None:
    symbols = {d for i in inputs.values() for d in i.shape or () if isinstance(d, str)}
    for name, extent in bindings.dims.items():
        if name not in symbols:
            known = f"its named dimensions are: {', '.join(sorted(symbols))}" if symbols else "no dimension has a name"
            raise UsageError(f"the model has no dimension {name!r}", hint=known)
        if extent < 1:
            raise UsageError(f"--dim {name}={extent} is not positive")
    for name, shape in bindings.shapes.items():
        if name not in inputs:
            raise UsageError(f"the model has no input {name!r}", hint=f"its inputs are: {', '.join(inputs)}")
        declared = inputs[name].shape
        fits = declared is None or (
            len(declared) == len(shape)
            and all(_agrees(d, extent, bindings.dims) for d, extent in zip(declared, shape, strict=True))
        )
        if not fits or any(extent < 0 for extent in shape):
            written = "x".join(map(str, shape))
            hint = f"the model declares {_text(declared)}"
            raise UsageError(f"the shape {written} given for {name!r} does not fit the model", where=name, hint=hint)


def _agrees(dimension: Dimension, extent: int, dims: Mapping[str, int]) -> bool:
    if isinstance(dimension, str):
        return dims.get(dimension, extent) == extent
    return dimension is None or dimension == extent


def _unbound_error(unbound: list[_Input], extents: Mapping[str, int]) -> UsageError:
    flags: dict[str, None] = {}
    for entry in unbound:
        open_dims = [d for d in entry.shape or (None,) if not isinstance(d, int)]
        if all(isinstance(d, str) for d in open_dims):
            flags.update((f"--dim {d}=1", None) for d in open_dims if d not in extents)
        else:
            example = "x".join(str(d if isinstance(d, int) else 1) for d in entry.shape or (1, 1))
            flags[f"--shape {entry.name}={example}"] = None
    listed = "; ".join(f"{entry.name} is {_text(entry.shape)}" for entry in unbound)
    return UsageError(
        f"these inputs have dimensions without a number: {listed}",
        hint=f"give each one, for example: {' '.join(flags)}",
    )


def _text(shape: tuple[Dimension, ...] | None) -> str:
    if shape is None:
        return "of unknown rank"
    return f"[{', '.join('?' if d is None else str(d) for d in shape)}]"
