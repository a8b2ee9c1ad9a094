"""Element types and tensor types."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
"""A numpy array of any element type and rank."""


class DType(Enum):
    """An element type: its name in korch's text form, and its number in ONNX's TensorProto.DataType."""

    F32 = ("f32", 1)
    U8 = ("u8", 2)
    I8 = ("i8", 3)
    U16 = ("u16", 4)
    I16 = ("i16", 5)
    I32 = ("i32", 6)
    I64 = ("i64", 7)
    STRING = ("string", 8)
    BOOL = ("bool", 9)
    F16 = ("f16", 10)
    F64 = ("f64", 11)
    U32 = ("u32", 12)
    U64 = ("u64", 13)
    BF16 = ("bf16", 16)

    def __init__(self, text: str, onnx: int) -> None:
        self.text = text
        self.onnx = onnx

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy element type."""
        return _NUMPY[self]

    @property
    def size_bytes(self) -> int:
        """Bytes of one element in memory."""
        return _NUMPY[self].itemsize

    @property
    def is_float(self) -> bool:
        """Whether this is a floating-point type."""
        return self in _FLOATS

    @property
    def is_integer(self) -> bool:
        """Whether this is an integer type (bool is not)."""
        return not self.is_float and self not in (DType.BOOL, DType.STRING)

    @property
    def largest(self) -> float:
        """The largest finite number of a floating-point type."""
        return float(ml_dtypes.finfo(_NUMPY[self]).max)  # type: ignore[no-untyped-call]

    @classmethod
    def from_onnx(cls, number: int) -> DType | None:
        """The type with this TensorProto.DataType number, or None where korch has none."""
        return _BY_ONNX.get(number)

    @classmethod
    def from_numpy(cls, dtype: np.dtype[Any]) -> DType | None:
        """The type of a numpy array, or None where korch has none."""
        return _BY_NUMPY.get(np.dtype(dtype))

    @classmethod
    def from_text(cls, text: str) -> DType:
        """The type with this short name. Raises KeyError."""
        return _BY_TEXT[text]


_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.F32: np.dtype(np.float32),
    DType.U8: np.dtype(np.uint8),
    DType.I8: np.dtype(np.int8),
    DType.U16: np.dtype(np.uint16),
    DType.I16: np.dtype(np.int16),
    DType.I32: np.dtype(np.int32),
    DType.I64: np.dtype(np.int64),
    DType.STRING: np.dtype(object),
    DType.BOOL: np.dtype(np.bool_),
    DType.F16: np.dtype(np.float16),
    DType.F64: np.dtype(np.float64),
    DType.U32: np.dtype(np.uint32),
    DType.U64: np.dtype(np.uint64),
    DType.BF16: np.dtype(ml_dtypes.bfloat16),
}
_FLOATS = frozenset({DType.F32, DType.F16, DType.F64, DType.BF16})
_BY_ONNX = {t.onnx: t for t in DType}
_BY_NUMPY = {_NUMPY[t]: t for t in DType}
_BY_TEXT = {t.text: t for t in DType}


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and static shape; every dimension is a known, non-negative integer."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def elements(self) -> int:
        """The number of elements; 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes in memory."""
        return self.elements * self.dtype.size_bytes

    def __str__(self) -> str:
        return f"{self.dtype.text}[{','.join(map(str, self.shape))}]"


UNKNOWN = TensorType(DType.STRING, ())
"""Stands for the type of what has no static one (a sequence, a dynamic shape): only opaque operators touch it."""


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape under numpy's (and ONNX's multidirectional) broadcasting. Raises ValueError."""
    rank = max(map(len, shapes))
    result = []
    for axis in range(rank):
        extents = {s[axis - rank + len(s)] for s in shapes if axis - rank + len(s) >= 0} - {1}
        if len(extents) > 1:
            raise ValueError(f"shapes {shapes} do not broadcast")
        result.append(extents.pop() if extents else 1)
    return tuple(result)
