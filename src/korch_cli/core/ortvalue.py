"""Arrays as ONNX Runtime takes and gives them, bfloat16 included, which its usual interface has no numpy type for."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from korch_cli.core.types import Array

_BFLOAT16, _BFLOAT16_TENSOR = 16, "tensor(bfloat16)"
"""The element type's number in ONNX, and ONNX Runtime's name of a tensor of it."""


Runner = Callable[[Mapping[str, "Array"]], list[Any]]


def runner(session: Any) -> Runner:
    """Return what runs a session once on arrays by name, and returns its outputs, as arrays where they are tensors."""

    def run(feeds: Mapping[str, Array]) -> list[Any]:
        outputs: list[Any] = session.run(None, feeds)
        return outputs

    def run_values(feeds: Mapping[str, Array]) -> list[Any]:
        values = {name: to_value(array) for name, array in feeds.items()}
        return [_to_array(value) for value in session.run_with_ort_values(names, values)]

    names = [output.name for output in session.get_outputs()]
    ends = (*session.get_inputs(), *session.get_outputs())
    return run_values if any(end.type == _BFLOAT16_TENSOR for end in ends) else run


def to_value(array: Array) -> Any:
    """Return an `onnxruntime.OrtValue` with these elements; strings have none."""
    import numpy as np
    import onnxruntime

    if array.dtype.name != "bfloat16":
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.copy().view(np.uint16), _BFLOAT16)


def _to_array(value: Any) -> Array:
    if value.element_type() != _BFLOAT16:
        array: Array = value.numpy()
        return array
    import ml_dtypes
    import numpy as np

    shape = tuple(value.shape())
    content = ctypes.string_at(value.data_ptr(), 2 * int(np.prod(shape, dtype=np.int64)))
    return np.frombuffer(content, ml_dtypes.bfloat16).reshape(shape)
