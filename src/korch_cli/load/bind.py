"""Symbolic dimensions of the inputs become numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx

from korch_cli.core.errors import UsageError
from korch_cli.core.model import Bindings
from korch_cli.load.constants import fed_inputs, overridable

_NAMELESS = ("", "?", "-1")
_IMAGE_RANK, _IMAGE_EXTENT = 4, 224


def bind(proto: onnx.ModelProto, bindings: Bindings) -> list[str]:
    """Write the bound dimensions into the inputs of `proto`; return a sentence for each input that changed.

    A dimension that `--shape` gives a number to has it in every input that names it, unless two shapes disagree.

    Raises:
        UsageError: a dimension stays unbound, or a binding names something that is not there or contradicts the model.
    """
    inputs = {info.name: info for info in fed_inputs(proto) if info.type.HasField("tensor_type")}
    _check_known(inputs, bindings)
    _check_shapes(inputs, bindings)
    extents = {**_implied(inputs, bindings), **bindings.dims}
    notes = []
    unbound: dict[str, list[str]] = {}
    for name, info in inputs.items():
        tensor = info.type.tensor_type
        if not tensor.HasField("shape"):
            if name not in bindings.shapes:
                unbound[name] = ["its rank and shape"]
                continue
            tensor.shape.SetInParent()
            tensor.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in bindings.shapes[name])
            changed = True
        else:
            changed = not all(map(is_static, tensor.shape.dim))
        missing = _bind_input(info, bindings.shapes.get(name), extents)
        if missing:
            unbound[name] = missing
        elif changed:
            bound = "x".join(str(dim.dim_value) for dim in tensor.shape.dim) or "a scalar"
            notes.append(f"Input {name!r} was bound to {bound}.")
    if unbound:
        raise _unbound_error(inputs, unbound, extents)
    _bind_defaults(proto)
    return notes


def is_static(dim: onnx.TensorShapeProto.Dimension) -> bool:
    """Whether a dimension of an input is a number; exporters write 0 and -1 for those that are not."""
    return dim.HasField("dim_value") and dim.dim_value > 0


def symbol(dim: onnx.TensorShapeProto.Dimension) -> str:
    """Return the name of a symbolic dimension, "" for one without."""
    return dim.dim_param if dim.HasField("dim_param") and dim.dim_param not in _NAMELESS else ""


def _bind_input(info: onnx.ValueInfoProto, shape: tuple[int, ...] | None, extents: Mapping[str, int]) -> list[str]:
    """Bind one input; return the dimensions that stay unbound."""
    missing = []
    for axis, dim in enumerate(info.type.tensor_type.shape.dim):
        extent = shape[axis] if shape is not None else extents.get(symbol(dim))
        if is_static(dim):
            continue
        if extent is None:
            missing.append(repr(symbol(dim)) if symbol(dim) else f"axis {axis}, which has no name")
        else:
            dim.dim_value = extent
    return missing


def _bind_defaults(proto: onnx.ModelProto) -> None:
    """Give inputs with a default value, which need not be fed, the shape of that value."""
    replaceable = overridable(proto)
    shapes = {tensor.name: tuple(tensor.dims) for tensor in proto.graph.initializer if tensor.name in replaceable}
    for info in proto.graph.input:
        if info.name in shapes and info.type.HasField("tensor_type"):
            info.type.tensor_type.shape.ClearField("dim")
            info.type.tensor_type.shape.SetInParent()
            for extent in shapes[info.name]:
                info.type.tensor_type.shape.dim.add().dim_value = extent


def _implied(inputs: Mapping[str, onnx.ValueInfoProto], bindings: Bindings) -> dict[str, int]:
    """Return the named dimensions to which the shapes give one number, and no two."""
    found: dict[str, set[int]] = {}
    for name, shape in bindings.shapes.items():
        for dim, extent in zip(inputs[name].type.tensor_type.shape.dim, shape, strict=False):
            if symbol(dim):
                found.setdefault(symbol(dim), set()).add(extent)
    return {name: next(iter(extents)) for name, extents in found.items() if len(extents) == 1}


def _check_known(inputs: Mapping[str, onnx.ValueInfoProto], bindings: Bindings) -> None:
    for name in bindings.shapes:
        if name not in inputs:
            raise UsageError(f"the model has no input {name!r}", hint=f"its inputs are: {_listed(inputs)}")
    symbols = dict.fromkeys(symbol(d) for i in inputs.values() for d in i.type.tensor_type.shape.dim if symbol(d))
    for name, extent in bindings.dims.items():
        if name not in symbols:
            known = f"its named dimensions are: {_listed(symbols)}"
            hint = known if symbols else "none of its dimensions has a name; use --shape"
            raise UsageError(f"the model has no dimension {name!r}", hint=hint)
        if extent < 0:
            raise UsageError(f"dimension {name!r} cannot be {extent}")


def _check_shapes(inputs: Mapping[str, onnx.ValueInfoProto], bindings: Bindings) -> None:
    for name, shape in bindings.shapes.items():
        info = inputs[name]
        dims = info.type.tensor_type.shape.dim
        declared = f"the model declares {_shape_text(info)}"
        if any(extent < 0 for extent in shape):
            raise UsageError(f"the shape given for {name!r} has a negative dimension", where=name)
        if not info.type.tensor_type.HasField("shape"):
            continue
        if len(shape) != len(dims):
            message = f"the shape given for {name!r} has {len(shape)} dimensions, but the input has {len(dims)}"
            raise UsageError(message, where=name, hint=declared)
        for axis, (dim, extent) in enumerate(zip(dims, shape, strict=True)):
            if is_static(dim) and extent != dim.dim_value:
                said = f"the shape given for {name!r} says {extent} for axis {axis}"
                message = f"{said}, but the model fixes it at {dim.dim_value}"
                raise UsageError(message, where=name, hint=declared)
            if bindings.dims.get(symbol(dim), extent) != extent:
                said = f"the shape given for {name!r} says {extent} for {symbol(dim)!r}"
                message = f"{said}, but --dim {bindings.dims[symbol(dim)]}"
                raise UsageError(message, where=name)


def _unbound_error(
    inputs: Mapping[str, onnx.ValueInfoProto], unbound: Mapping[str, list[str]], extents: Mapping[str, int]
) -> UsageError:
    flags: dict[str, None] = {}
    for name in unbound:
        tensor = inputs[name].type.tensor_type
        open_dims = [dim for dim in tensor.shape.dim if not is_static(dim)]
        if open_dims and all(map(symbol, open_dims)):
            flags.update((f"--dim {symbol(dim)}=1", None) for dim in open_dims if symbol(dim) not in extents)
        else:
            flags[f"--shape {name}={_example(tensor, extents)}"] = None
    listed = "; ".join(f"{name}: {', '.join(missing)}" for name, missing in unbound.items())
    return UsageError(
        f"these dimensions of the inputs have no value: {listed}",
        hint="korch optimizes for fixed shapes; give each a number, for example: " + " ".join(flags),
    )


def _example(tensor: onnx.TypeProto.Tensor, extents: Mapping[str, int]) -> str:
    dims = tensor.shape.dim
    if not tensor.HasField("shape"):
        return "1x3x224x224"
    guesses = [_IMAGE_EXTENT if len(dims) == _IMAGE_RANK and axis > 1 else 1 for axis in range(len(dims))]
    chosen = [d.dim_value if is_static(d) else extents.get(symbol(d), g) for d, g in zip(dims, guesses, strict=True)]
    return "x".join(map(str, chosen))


def _shape_text(info: onnx.ValueInfoProto) -> str:
    """Return a shape as on the command line, unnamed dimensions as '?'."""
    dims = info.type.tensor_type.shape.dim
    return "x".join(str(d.dim_value) if is_static(d) else symbol(d) or "?" for d in dims)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
