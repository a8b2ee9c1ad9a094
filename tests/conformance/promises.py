"""What a caller relies on beside the values: names, order, types, dimensions, versions, metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

_FUNCTION_IR_VERSION = 8
"""The first that has functions, and so the oldest of a model with kernels."""


def broken_promise(
    before: onnx.ModelProto, after: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], answers: Sequence[Any]
) -> str | None:
    """Return a sentence on what a caller relies on and is not kept, None if all is.

    Args:
        before: the model that was optimised.
        after: what came out.
        shapes: what the inputs are fed, by name; open dimensions were bound to that.
        answers: what the model answers, whose shapes are to be the stated ones; nothing where that is not known.
    """
    for kind, old, new in (("inputs", _fed(before), _fed(after)), ("outputs", before.graph.output, after.graph.output)):
        names = [info.name for info in old], [info.name for info in new]
        if names[0] != names[1]:
            return f"the {kind} {names[0]} became {names[1]}"
        for a, b in zip(old, new, strict=True):
            if _without_shape(a.type) != _without_shape(b.type):
                return f"the element type of {a.name} changed"
    for a, b in zip(_fed(before), _fed(after), strict=True):
        if a.name in shapes and a.type.HasField("tensor_type") and _dims(b) != list(shapes[a.name]):
            return f"the dimensions {_dims(a)} of {a.name} became {_dims(b)}"
    for a, b, value in zip(before.graph.output, after.graph.output, answers, strict=bool(answers)):
        if isinstance(value, np.ndarray) and (sentence := _misstated(a, b, value)):
            return sentence
    return _changed_frame(before, after)


def _changed_frame(before: onnx.ModelProto, after: onnx.ModelProto) -> str | None:
    opsets = {_domain(entry.domain): entry.version for entry in after.opset_import}
    for entry in before.opset_import:
        if opsets.get(_domain(entry.domain)) != entry.version:
            return f"the opset {entry.domain or 'ai.onnx'} {entry.version} is not imported any more"
    version = max(before.ir_version, _FUNCTION_IR_VERSION) if after.functions else before.ir_version
    if after.ir_version != version:
        return f"the IR version {before.ir_version} became {after.ir_version}"
    if [(p.key, p.value) for p in before.metadata_props] != [(p.key, p.value) for p in after.metadata_props]:
        return "the metadata changed"
    for name in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        if getattr(before, name) != getattr(after, name):
            return f"the {name} changed"
    return None


def _misstated(before: onnx.ValueInfoProto, after: onnx.ValueInfoProto, value: np.ndarray[Any, Any]) -> str | None:
    """Return how the stated dimensions of an output are wrong that were right, or absent, before."""
    stated = _dims(after)
    if stated is None:
        return None if _dims(before) is None else f"the rank of {after.name} is not stated any more"
    right = len(stated) == value.ndim and all(
        not isinstance(d, int) or d == e for d, e in zip(stated, value.shape, strict=True)
    )
    if right or stated == _dims(before):
        return None
    return f"{after.name} is stated to be {stated}, but it is {list(value.shape)}"


def _fed(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    initialized = {tensor.name for tensor in model.graph.initializer}
    return [info for info in model.graph.input if info.name not in initialized]


def _without_shape(typed: onnx.TypeProto) -> bytes:
    bare = onnx.TypeProto()
    bare.CopyFrom(typed)
    if bare.HasField("tensor_type"):
        bare.tensor_type.ClearField("shape")
    content: bytes = bare.SerializeToString(deterministic=True)
    return content


def _dims(info: onnx.ValueInfoProto) -> list[int | str] | None:
    if not info.type.HasField("tensor_type") or not info.type.tensor_type.HasField("shape"):
        return None
    return [d.dim_value if d.HasField("dim_value") else d.dim_param for d in info.type.tensor_type.shape.dim]


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain
