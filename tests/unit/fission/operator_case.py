"""Models of one operator, and what others say that they compute."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from korch_cli.core.check import check
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.interpreter import evaluate
from korch_cli.core.types import Array, DType
from korch_cli.fission import fission
from korch_cli.fission.registry import LATEST, Row, rows
from korch_cli.load.describe import describe

NEWEST = min(LATEST[""], onnx.defs.onnx_opset_version())
_UNSUPPORTED = (
    onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented,
    onnxruntime.capi.onnxruntime_pybind11_state.Fail,
    onnxruntime.capi.onnxruntime_pybind11_state.InvalidGraph,
)


@dataclass(frozen=True)
class Fixed:
    """An input that is an initializer."""

    array: Array


@dataclass(frozen=True)
class Case:
    """One operator on given inputs (None for an omitted one), meaningful at the opset versions `since` to `until`."""

    op_type: str
    inputs: tuple[Array | Fixed | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""
    since: int = 1
    until: int = NEWEST
    version: int = 0
    tolerance: float | None = None

    @property
    def id(self) -> str:
        """A name that is not an order in a list."""
        shapes = "_".join(_shape(i) for i in self.inputs)
        words = "_".join(f"{k}={v}" for k, v in self.attributes.items() if not isinstance(v, onnx.TensorProto))
        return f"{self.domain}{self.op_type}-{self.version}-{shapes}-{words}".replace(" ", "")

    def feeds(self) -> dict[str, Array]:
        """What is given from outside."""
        return {f"x{i}": given for i, given in enumerate(self.inputs) if isinstance(given, np.ndarray)}

    def proto(self, results: list[Array] | None = None) -> onnx.ModelProto:
        """The model; the types of its outputs are those of `results`."""
        names = ["" if given is None else f"x{i}" for i, given in enumerate(self.inputs)]
        outputs = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(self.op_type, names, outputs, domain=self.domain, **self.attributes)
        fixed = {f"x{i}": given.array for i, given in enumerate(self.inputs) if isinstance(given, Fixed)}
        graph = helper.make_graph(
            [node],
            "graph",
            [value_info(name, array) for name, array in self.feeds().items()],
            [onnx.ValueInfoProto(name=name) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in fixed.items()],
        )
        for info, result in zip(graph.output, results or (), strict=False):
            info.CopyFrom(value_info(info.name, result))
        opsets = [helper.make_opsetid("", 17 if self.domain else self.version)]
        if self.domain:
            opsets.append(helper.make_opsetid(self.domain, self.version))
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def case(
    op_type: str,
    *inputs: Array | Fixed | None,
    outputs: int = 1,
    domain: str = "",
    since: int = 1,
    until: int = NEWEST,
    tolerance: float | None = None,
    **attributes: Any,
) -> Case:
    """Return a case without a version."""
    return Case(op_type, inputs, attributes, outputs, domain, since, until, 0, tolerance)


def versions_of(row: Row) -> tuple[int, ...]:
    """The versions at which a row begins, changes and ends."""
    last = row.until if row.until is not None else LATEST[row.domain]
    found = {row.since, *row.also, last}
    return tuple(sorted(v for v in found if row.domain or v <= NEWEST))


def at_every_version(cases: list[Case]) -> Iterator[Case]:
    """Each case at all versions that its operator's rows name and that it is meaningful for."""
    for each in cases:
        own = [row for row in rows() if (row.domain, row.op_type) == (each.domain, each.op_type)]
        for version in sorted({v for row in own for v in versions_of(row)}):
            if each.since <= version <= each.until:
                yield replace(each, version=version)


def rng(*seed: object) -> np.random.Generator:
    """A generator of its own for each thing that is named."""
    return np.random.default_rng(zlib.crc32(repr(seed).encode()))


def floats(*shape: int, dtype: Any = np.float32, scale: float = 2.0) -> Array:
    """Normally distributed numbers."""
    return np.asarray(rng(shape).standard_normal(shape) * scale).astype(dtype)


def positive(*shape: int, dtype: Any = np.float32) -> Array:
    """Numbers from 0.5 to 2.5."""
    return np.asarray(rng(shape).random(shape) * 2 + 0.5).astype(dtype)


def integers(*shape: int, dtype: Any = np.int64, low: int = -6, high: int = 7) -> Array:
    """Small integers."""
    return np.asarray(rng(shape).integers(low, high, shape)).astype(dtype)


def booleans(*shape: int) -> Array:
    """Both truth values."""
    return np.asarray(rng(shape).integers(0, 2, shape)).astype(bool)


def fixed(*numbers: float, dtype: Any = np.int64) -> Fixed:
    """A constant vector."""
    return Fixed(np.array(numbers, dtype))


def scalar(number: float, dtype: Any = np.float32) -> Fixed:
    """A constant of rank 0."""
    return Fixed(np.array(number, dtype))


def value_info(name: str, array: Array) -> onnx.ValueInfoProto:
    """The type of an array as ONNX writes it."""
    dtype = DType.from_numpy(array.dtype)
    assert dtype is not None
    return helper.make_tensor_value_info(name, dtype.onnx, array.shape)


def run_ort(proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """What ONNX Runtime computes without optimising anything."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, dict(feeds))]


def judged(each: Case) -> list[Array]:
    """What ONNX Runtime computes, or onnx's reference where that has no kernel."""
    proto = each.proto()
    try:
        return run_ort(proto, each.feeds())
    except _UNSUPPORTED:
        # Errors of numpy are part of what the reference computes: a logarithm of zero, say.
        with np.errstate(all="ignore"):
            return [np.asarray(a) for a in ReferenceEvaluator(proto).run(None, each.feeds())]


def split(proto: onnx.ModelProto) -> PrimitiveGraph:
    """Split a model whose types are all stated; the graph is sound.

    The model is described as it is, for loading would fold what has constant inputs.
    """
    graph = fission(describe(proto, Path("model.onnx"), ()))
    check(graph)
    return graph


def interpreted(graph: PrimitiveGraph, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs of a graph, by the interpreter."""
    found = evaluate(graph, {value.id: feeds[value.name] for value in graph.inputs()})
    return [found[v] for v in graph.outputs]


def assert_same(got: Array, expected: Array, tolerance: float | None = None) -> None:
    """Compare type, shape and elements; exactly, where these are not floats."""
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    dtype = DType.from_numpy(got.dtype)
    assert dtype is not None
    if not dtype.is_float:
        np.testing.assert_array_equal(got, expected)
        return
    standard = {DType.F64: 1e-12, DType.F32: 3e-6, DType.F16: 2e-3, DType.BF16: 2e-2}[dtype]
    bound = standard if tolerance is None else tolerance
    np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=bound, atol=bound)


def _shape(given: Array | Fixed | None) -> str:
    if given is None:
        return "none"
    array = given.array if isinstance(given, Fixed) else given
    if isinstance(given, Fixed) and array.size <= 8:
        return "c" + "x".join(map(str, array.reshape(-1).tolist()))
    return f"{array.dtype}" + "x".join(map(str, array.shape))
