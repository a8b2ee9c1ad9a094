"""The primitives: the closed set of operations that operators are split into.

The categories are those of the paper (section 3, table 1): elementwise, reduce and broadcast, layout, linear, opaque.
Each primitive has one output, whose type stands beside it in the graph; a primitive's own fields hold only what its
operand and result types do not say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from korch_cli.core.types import Array, DType


class Constant:
    """A value known before the model runs: a weight, or a scalar made by fission.

    The data may live in a file; it is read when asked for and not kept, so that a model's weights never have to fit
    in memory at once. Compared by identity.
    """

    __slots__ = ("_array", "_read", "dtype", "shape")

    def __init__(
        self,
        array: Array | None = None,
        *,
        read: Callable[[], Array] | None = None,
        dtype: DType | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        """Hold `array`, or a function `read()` returning it together with its `dtype` and `shape`."""
        if array is not None:
            found = DType.from_numpy(array.dtype)
            if found is None:
                raise ValueError(f"no element type for numpy's {array.dtype}")
            dtype, shape = found, tuple(array.shape)
        assert dtype is not None
        assert shape is not None
        self._array, self._read = array, read
        self.dtype, self.shape = dtype, shape

    def array(self) -> Array:
        """The elements, read only."""
        if self._array is not None:
            return self._array
        assert self._read is not None
        return self._read()

    @property
    def literal(self) -> float | int | bool | None:
        """The value, if this is a scalar that a person would type: it belongs to the algorithm, not to the weights.

        Such a scalar (an epsilon, the 6 of a hard swish) is printed into kernels; any other constant is an operand, so
        that kernels are shared between layers whose weights differ. Size-1 tensors of any rank count, and so do the
        largest numbers of a type, which stand for no limit.
        """
        if np.prod(self.shape, dtype=np.int64) != 1 or self.dtype is DType.STRING:
            return None
        value = self.array().reshape(())
        if not self.dtype.is_float:
            return value.item()  # type: ignore[no-any-return]
        digits = str(value).strip("-").split("e", maxsplit=1)[0].replace(".", "").strip("0")
        typed = len(digits) <= 6 or not np.isfinite(value) or abs(float(value)) == self.dtype.largest
        return float(value) if typed else None


@dataclass(frozen=True, slots=True)
class Input:
    """A value given from outside the graph."""


@dataclass(frozen=True, slots=True)
class Elementwise:
    """`function` applied element by element to operands that broadcast to the result's shape (numpy's rules).

    `function` is a key of `core.elementwise.FUNCTIONS`. All operands have one element type, except that the first
    operand of `where` is bool and the operand of `cast` is anything.
    """

    function: str


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Repeat the operand to the result's shape (numpy's rules)."""


@dataclass(frozen=True, slots=True)
class Reduce:
    """`function` (sum, mean, max, min, prod) over `axes`, which stay with extent 1.

    float16 and bfloat16 accumulate in float32. `axes` are non-negative and ascending. A NaN in a row makes the
    maximum or minimum NaN.
    """

    function: str
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WindowReduce:
    """`function` (sum, max, mean) over a sliding window of the last `len(window)` axes.

    Positions outside the operand take no part: `mean` divides by the number of positions inside the operand, and
    if `count_padding` by those inside the operand or its declared padding (`before` and `after`, ONNX AveragePool's
    count_include_pad), which excludes what ceil_mode adds.
    """

    function: str
    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    count_padding: bool = False


@dataclass(frozen=True, slots=True)
class Transpose:
    """Result axis i is operand axis `perm[i]`."""

    perm: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reshape:
    """The same elements in row-major order under the result's shape; also the identity."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Result element i of each axis is operand element `starts + i * steps`; steps may be negative, never zero."""

    starts: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pad:
    """The operand at offset `before`, surrounded by `value`; what lies after follows from the result's shape.

    Amounts are non-negative; the other ONNX modes become `Gather` (reflect, edge, wrap) and `Slice` (negative).
    """

    before: tuple[int, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Concat:
    """The operands one after the other along `axis`."""

    axis: int


@dataclass(frozen=True, slots=True)
class Gather:
    """Result element i of `axis` is operand element `indices[i]`: constant gather, nearest resize, reflected padding.

    `indices` are non-negative. The rank does not change.
    """

    axis: int
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Linear:
    """A product that the vendor's libraries compute well.

    `matmul`: operands [..., m, k] and [..., k, n], batch axes broadcast, both of rank >= 2; no attributes.
    `conv`: operands x [n, c, spatial...] and w [m, c/group, window...]; attributes strides, dilations, before, after,
    group as in ONNX Conv.
    `conv_transpose`: operands x [n, c, spatial...] and w [c, m/group, window...]; the same attributes and
    output_padding, as in ONNX ConvTranspose.
    A bias is an Elementwise that follows. `attributes` are sorted by name.
    """

    kind: str
    attributes: tuple[tuple[str, int | tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Opaque:
    """Output number `output` of an ONNX node that stays as it is; `operator` is its index in the model."""

    operator: int
    output: int


Layout = Transpose | Reshape | Slice | Pad | Concat | Gather
Op = Input | Constant | Elementwise | Broadcast | Reduce | WindowReduce | Layout | Linear | Opaque
