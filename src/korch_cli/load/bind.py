"""Symbolic dimensions of the inputs become numbers."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from korch_cli.core.errors import UsageError
from korch_cli.core.model import Bindings

_NAMELESS = ("", "?", "-1", "None", "unk__0")


def fed_inputs(proto: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs that have to be fed: those without an initializer of the same name."""
    initialized = {tensor.name for tensor in proto.graph.initializer}
    return [i for i in proto.graph.input if i.name not in initialized]


def bind(proto: onnx.ModelProto, bindings: Bindings) -> list[str]:
    """Write the bound dimensions into the inputs of `proto`; return a sentence for each.

    Raises:
        UsageError: a dimension stays unbound, or a binding names something that is not there or contradicts the model.
    """
    inputs = {i.name: i for i in fed_inputs(proto)}
    _check_known(inputs, bindings)
    notes = []
    unbound: dict[str, list[str]] = {}
    for name, info in inputs.items():
        if not info.type.HasField("tensor_type"):
            continue
        if not info.type.tensor_type.HasField("shape"):
            if name not in bindings.shapes:
                unbound.setdefault(name, []).append("its shape")
                continue
            info.type.tensor_type.shape.SetInParent()
            for _ in bindings.shapes[name]:
                info.type.tensor_type.shape.dim.add()
        before = shape_text(info)
        missing = _bind_input(info, bindings)
        if missing:
            unbound[name] = missing
        elif shape_text(info) != before:
            notes.append(f"Input {name!r} has the shape {shape_text(info)}.")
    if unbound:
        raise _unbound_error(inputs, unbound)
    return notes


def shape_text(info: onnx.ValueInfoProto) -> str:
    """Return a shape as on the command line, unnamed dimensions as '?'."""
    dims = info.type.tensor_type.shape.dim
    return "x".join(str(d.dim_value) if is_static(d) else symbol(d) or "?" for d in dims)


def is_static(dim: onnx.TensorShapeProto.Dimension) -> bool:
    """Whether a dimension is a number."""
    return dim.HasField("dim_value") and dim.dim_value >= 0


def symbol(dim: onnx.TensorShapeProto.Dimension) -> str:
    """Return the name of a symbolic dimension, "" for one without."""
    return dim.dim_param if dim.HasField("dim_param") and dim.dim_param not in _NAMELESS else ""


def _bind_input(info: onnx.ValueInfoProto, bindings: Bindings) -> list[str]:
    """Bind one input; return the dimensions that stay unbound."""
    dims = info.type.tensor_type.shape.dim
    shape = bindings.shapes.get(info.name)
    if shape is not None and len(shape) != len(dims):
        raise UsageError(f"the shape has {len(shape)} dimensions, but the input has {len(dims)}", where=info.name)
    missing = []
    for axis, dim in enumerate(dims):
        wanted = shape[axis] if shape is not None else bindings.dims.get(symbol(dim)) if symbol(dim) else None
        if is_static(dim):
            if wanted is not None and wanted != dim.dim_value:
                raise UsageError(f"dimension {axis} is {dim.dim_value} in the model, not {wanted}", where=info.name)
        elif wanted is None:
            missing.append(symbol(dim) or f"dimension {axis}, which has no name")
        else:
            by_name = bindings.dims.get(symbol(dim), wanted)
            if by_name != wanted:
                raise UsageError(f"--dim says {symbol(dim)}={by_name}, but --shape {wanted}", where=info.name)
            dim.dim_value = wanted
    return missing


def _check_known(inputs: dict[str, onnx.ValueInfoProto], bindings: Bindings) -> None:
    symbols = sorted({symbol(d) for i in inputs.values() for d in i.type.tensor_type.shape.dim if symbol(d)})
    for name in bindings.shapes:
        if name not in inputs:
            raise UsageError(f"the model has no input {name!r}", hint=f"its inputs are: {_listed(inputs)}")
    for name in bindings.dims:
        if name not in symbols:
            hint = (
                f"its named dimensions are: {_listed(symbols)}"
                if symbols
                else "it has no named dimensions; use --shape"
            )
            raise UsageError(f"the model has no dimension {name!r}", hint=hint)


def _unbound_error(inputs: dict[str, onnx.ValueInfoProto], unbound: dict[str, list[str]]) -> UsageError:
    flags: dict[str, None] = {}
    for name, missing in unbound.items():
        named = [symbol(d) for d in inputs[name].type.tensor_type.shape.dim if symbol(d)]
        if missing == ["its shape"]:
            flags[f"--shape {name}=1x3x224x224"] = None
        elif all(m in named for m in missing):
            flags.update((f"--dim {m}=1", None) for m in missing)
        else:
            dims = inputs[name].type.tensor_type.shape.dim
            example = "x".join(str(d.dim_value) if is_static(d) else "N" for d in dims)
            flags[f"--shape {name}={example}"] = None
    listed = "; ".join(f"{name}: {', '.join(missing)}" for name, missing in unbound.items())
    return UsageError(
        f"these dimensions have no value yet: {listed}",
        hint="korch optimises for one shape; give each a number, for example: " + " ".join(flags),
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
