"""A random graph under construction: every node is run as it is added, so that types and shapes are the runtime's."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from korch_cli.core.types import Array, DType, broadcast_shapes
from tests.fuzz.running import Session, dtype_of, node_model, reads

_T = TypeVar("_T")

FLOATS = (DType.F32, DType.F16, DType.F64)
SIGNED = (DType.I8, DType.I16, DType.I32, DType.I64)
UNSIGNED = (DType.U8, DType.U16, DType.U32, DType.U64)
INTEGERS = (*SIGNED, *UNSIGNED)
NUMBERS = (*FLOATS, *INTEGERS)
ANY = (*NUMBERS, DType.BF16, DType.BOOL)
MOST_ELEMENTS = 2048
_EXTENTS = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 33)
_LARGEST = 1e4
"""Numbers that a node may compute from ordinary inputs: beyond it everything ends in infinities."""
_NAMES = ("v{}", "/layer.{}/Op_output_0", "{}", "a b*/{}", 'q"{}\\', "v{}/é", "x__{}")


class Unfit(Exception):  # noqa: N818 - the row does not apply here, which is no error
    """A row finds nothing in the graph that it could be applied to, or the runtime does not take the node."""


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of the graph and what it is on ordinary inputs."""

    name: str
    array: Array

    @property
    def dtype(self) -> DType:
        """The element type."""
        return dtype_of(self.array)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return tuple(self.array.shape)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return self.array.ndim


@dataclass(frozen=True)
class Call:
    """What a row wants to add: inputs (None for an omitted one), attributes, and how many outputs."""

    inputs: Sequence[Tensor | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1


class Sketch:
    """Collects nodes, inputs and initializers; rows draw from it.

    Attributes:
        opset: version of the default domain.
        tensors: what further nodes may read.
        feeds: the ordinary inputs.
        plain: inputs that mean shapes or positions, which special values make no sense for.
    """

    def __init__(self, draw: st.DrawFn, opset: int) -> None:
        self._draw = draw
        self.opset = opset
        self.tensors: list[Tensor] = []
        self.feeds: dict[str, Array] = {}
        self.plain: set[str] = set()
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, Array] = {}
        self.domains = {"": opset}
        self._count = 0
        self._naming = self.choose(_NAMES) if self.chance(50) else _NAMES[0]
        self.shape = self._base_shape()

    # --- choices ---

    def choose(self, options: Sequence[_T]) -> _T:
        """Draw one of `options`; Unfit if there is none."""
        if not options:
            raise Unfit
        return self._draw(st.sampled_from(options))

    def integer(self, low: int, high: int) -> int:
        """Draw a number from `low` to `high`, both included."""
        return self._draw(st.integers(low, high))

    def chance(self, percent: int) -> bool:
        """Draw whether something happens that does in so many of a hundred cases."""
        return self._draw(st.integers(0, 99)) >= 100 - percent

    def permutation(self, rank: int) -> list[int]:
        """Draw an order of the axes."""
        return list(self._draw(st.permutations(range(rank))))

    def subset(self, options: Sequence[_T], least: int = 1) -> list[_T]:
        """Draw some of `options`, in their order."""
        if len(options) < least:
            raise Unfit
        kept = self._draw(st.sets(st.integers(0, len(options) - 1), min_size=least)) if options else set()
        return [options[i] for i in sorted(kept)]

    def axis(self, tensor: Tensor, signed: bool = True) -> int:
        """Draw an axis, counted from the end at times if `signed`."""
        axis = self.integer(0, tensor.rank - 1) if tensor.rank else self.choose(())
        return axis - tensor.rank if signed and self.chance(30) else axis

    # --- tensors ---

    def pick(
        self,
        dtypes: Sequence[DType] = FLOATS,
        ranks: Sequence[int] = range(9),
        test: Callable[[Tensor], bool] = lambda _: True,
    ) -> Tensor:
        """Draw a tensor of these types and ranks for which `test` holds, of the later ones rather."""
        fit = [t for t in self.tensors if t.dtype in dtypes and t.rank in ranks and test(t)]
        return self.choose(fit[-4:] if self.chance(70) else fit)

    def partner(self, tensor: Tensor, dtypes: Sequence[DType] = ()) -> Tensor:
        """Draw an operand that broadcasts with `tensor`, of the same type, or of one of `dtypes`."""
        wanted = tuple(dtypes) or (tensor.dtype,)
        fit = [t for t in self.tensors if t.dtype in wanted and _joint(t.shape, tensor.shape) <= MOST_ELEMENTS]
        if fit and self.chance(60):
            return self.choose(fit)
        shape = tuple(e if self.chance(65) else 1 for e in tensor.shape)[self.integer(0, tensor.rank) :]
        shape = () if self.chance(20) else shape
        return self.number(self.choose(wanted), shape) if self.chance(60) else self.input(self.choose(wanted), shape)

    def input(self, dtype: DType, shape: tuple[int, ...]) -> Tensor:
        """Add an input of the graph."""
        name = self._name()
        self.feeds[name] = ordinary(name, dtype, shape, positive=self.chance(25))
        self.tensors.append(Tensor(name, self.feeds[name]))
        return self.tensors[-1]

    def number(self, dtype: DType, shape: tuple[int, ...], positive: bool = False) -> Tensor:
        """Add an initializer with random elements; round ones at times if it is a scalar."""
        name = self._name()
        array = ordinary(name, dtype, shape, positive=positive or self.chance(25))
        if not shape and self.chance(50):
            array = np.array(self.choose((0, 1, 2, 3, 0.5, -1, 6)) if not positive else 2).astype(dtype.numpy)
        return self.fixed(array, name)

    def fixed(self, array: Array, name: str | None = None) -> Tensor:
        """Add an initializer, or a node `Constant`."""
        name = name or self._name()
        if self.chance(20) and array.dtype != DType.BF16.numpy:
            tensor = numpy_helper.from_array(np.asarray(array))
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.initializers[name] = array
        return Tensor(name, array)

    def positions(self, *numbers: int, dtype: DType = DType.I64) -> Tensor:
        """Add a vector that means axes or extents; rarely as an input, so that shapes are not known."""
        return self.table(np.array(numbers, dtype.numpy), given_percent=4)

    def table(self, array: Array, given_percent: int) -> Tensor:
        """Add an array that means positions, in so many of a hundred cases as an input."""
        if not self.chance(given_percent):
            return self.fixed(array)
        name = self._name()
        self.feeds[name] = array
        self.plain.add(name)
        return Tensor(name, array)

    # --- nodes ---

    def add(self, op_type: str, domain: str, call: Call) -> None:
        """Append a node and run it.

        Raises:
            Unfit: the runtime refuses it, or what it computes is too large.
        """
        inputs = ["" if t is None else t.name for t in call.inputs]
        outputs = [self._name() for _ in range(call.outputs)]
        name = self._name() if self.chance(50) else ""
        attributes = {k: v for k, v in call.attributes.items() if v != []}
        node = helper.make_node(op_type, inputs, outputs, name=name, domain=domain, **attributes)
        if domain:
            self.domains[domain] = 1
        known = {t.name: t.array for t in (*self.tensors, *call.inputs) if t is not None}
        fed = {n: known[n] for n in reads(node) if n not in self.initializers}
        fixed = [numpy_helper.from_array(self.initializers[n], n) for n in reads(node) if n in self.initializers]
        try:
            results = Session(node_model(node, fed, fixed, self.model([]))).run(fed)
        except Exception as error:
            raise Unfit(str(error)) from error
        if not all(map(_moderate, results)):
            raise Unfit
        self.nodes.append(node)
        self.tensors += [Tensor(n, array) for n, array in zip(outputs, results, strict=True)]

    def model(self, outputs: Sequence[str]) -> onnx.ModelProto:
        """Return the model with these outputs, whose types are not stated."""
        graph = helper.make_graph(
            self.nodes,
            "graph",
            [helper.make_tensor_value_info(n, dtype_of(a).onnx, a.shape) for n, a in self.feeds.items()],
            [onnx.ValueInfoProto(name=n) for n in outputs],
            [numpy_helper.from_array(a, n) for n, a in self.initializers.items()],
        )
        opsets = [helper.make_opsetid(domain, version) for domain, version in self.domains.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def _name(self) -> str:
        self._count += 1
        return self._naming.format(self._count)

    def _base_shape(self) -> tuple[int, ...]:
        extents: list[int] = []
        for _ in range(self.choose((0, 1, 2, 2, 3, 3, 4, 4, 5))):
            room = MOST_ELEMENTS // int(np.prod([1, *extents], dtype=np.int64))
            extents.append(self.choose([e for e in _EXTENTS if e <= max(1, room)]))
        if extents and self.chance(5):
            extents[self.integer(0, len(extents) - 1)] = 0
        return tuple(extents)


def ordinary(name: str, dtype: DType, shape: tuple[int, ...], *, positive: bool = False) -> Array:
    """Return numbers that most operators make sense of; the same for the same name."""
    rng = np.random.default_rng(zlib.crc32(f"{name} {dtype.text}".encode()))
    if dtype is DType.BOOL:
        return np.asarray(rng.integers(0, 2, shape), bool)
    if dtype.is_integer:
        return np.asarray(rng.integers(1 if positive or dtype in UNSIGNED else -6, 8, shape)).astype(dtype.numpy)
    drawn = rng.random(shape) * 2 + 0.25 if positive else rng.standard_normal(shape) * 2
    return np.asarray(drawn).astype(dtype.numpy)


def _joint(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Return how many elements two shapes have together, too many if they do not broadcast."""
    try:
        return int(np.prod(broadcast_shapes(a, b), dtype=np.int64))
    except ValueError:
        return MOST_ELEMENTS + 1


def _moderate(array: Array) -> bool:
    """Whether a result is worth computing with."""
    if array.size > 2 * MOST_ELEMENTS or DType.from_numpy(array.dtype) in (None, DType.STRING):
        return False
    if not dtype_of(array).is_float:
        return True
    numbers = array.astype(np.float64)
    return bool(np.isfinite(numbers).all() and (np.abs(numbers) <= _LARGEST).all())
