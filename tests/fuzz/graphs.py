"""The strategy that builds random models, with an ordinary set of inputs and one with special values."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.printer
from hypothesis import reject
from hypothesis import strategies as st

from korch_cli.core.types import Array, DType
from tests.fuzz import rows_elementwise, rows_layout, rows_opaque, rows_reduction  # noqa: F401 - fill the table
from tests.fuzz.operators import NEWEST, OLDEST, Row, rows
from tests.fuzz.running import dtype_of, float_limits, reads
from tests.fuzz.sketch import Sketch, Unfit

_ATTEMPTS = 4
"""Operators that are tried for each node; what does not fit the graph is drawn anew."""
_FREQUENT = tuple(f":{name}" for name in ("Add", "Mul", "Sub", "Div", "Transpose", "Reshape", "ReduceSum", "Concat"))
_FEW_OPSETS = (7, 8, 9, 10)
_INPUTS = (
    (DType.F32,) * 12
    + (DType.F16, DType.F16, DType.F64, DType.F64, DType.BOOL, DType.BOOL, DType.I64, DType.I64, DType.I32, DType.BF16)
    + (DType.I8, DType.U8, DType.I16, DType.U16, DType.U32, DType.U64)
)


@dataclass(frozen=True)
class Network:
    """A model and its sets of inputs: "ordinary" ones, and ones with "special" values."""

    model: onnx.ModelProto
    feeds: Mapping[str, Mapping[str, Array]]

    @property
    def text(self) -> str:
        """The model as text."""
        return str(onnx.printer.to_text(self.model))


@st.composite
def networks(draw: st.DrawFn, most_nodes: int = 12) -> Network:
    """Draw a model of up to `most_nodes` nodes; every one of them runs in ONNX Runtime."""
    opset = draw(st.one_of(st.integers(11, NEWEST), st.integers(OLDEST, NEWEST), st.sampled_from(_FEW_OPSETS)))
    s = Sketch(draw, opset)
    dtype = s.choose(_INPUTS)
    for _ in range(s.integer(1, 3)):
        shape = s.shape
        if s.chance(30):
            shape = tuple(e if s.chance(70) else 1 for e in s.shape)[s.integer(0, len(s.shape)) :]
        s.input(dtype if s.chance(60) else s.choose(_INPUTS), shape)
    table = _by_name(rows(opset))
    names = sorted(table)
    for _ in range(s.integer(1, most_nodes)):
        _grow(s, table, names)
    if all(node.op_type == "Constant" for node in s.nodes):
        reject()
    model = _finished(s)
    return Network(model, {"ordinary": s.feeds, "special": _special(s)})


def _by_name(fit: Sequence[Row]) -> Mapping[str, list[Row]]:
    table: dict[str, list[Row]] = {}
    for row in fit:
        table.setdefault(f"{row.domain}:{row.op_type}", []).append(row)
    return table


def _grow(s: Sketch, table: Mapping[str, list[Row]], names: Sequence[str]) -> None:
    """Add a node, or none if nothing that is drawn fits."""
    for _ in range(_ATTEMPTS):
        row = s.choose(table[s.choose(_FREQUENT if s.chance(20) else names)])
        kept = len(s.nodes), dict(s.feeds), dict(s.initializers), list(s.tensors), dict(s.domains)
        try:
            s.add(row.op_type, row.domain, row.make(s))
        except Unfit:
            del s.nodes[kept[0] :]
            s.feeds, s.initializers, s.tensors, s.domains = kept[1:]
        else:
            return


def _finished(s: Sketch) -> onnx.ModelProto:
    """Return the model: what nothing reads is an output, and at times what something reads as well."""
    read = {name for node in s.nodes for name in reads(node)}
    made = [t for t in s.tensors if t.name not in s.feeds]
    outputs = [t for t in made if t.name not in read or s.chance(15)]
    outputs = [outputs[i] for i in s.permutation(len(outputs))]
    model = s.model([t.name for t in outputs])
    inferred = onnx.shape_inference.infer_shapes(model)
    stated = {info.name: info for info in inferred.graph.output}
    for info, tensor in zip(model.graph.output, outputs, strict=True):
        if s.chance(80) and stated[info.name].HasField("type"):
            info.CopyFrom(stated[info.name])
        info.type.tensor_type.elem_type = tensor.dtype.onnx
    _loosen(s, model)
    _dress(s, model)
    return model


def _loosen(s: Sketch, model: onnx.ModelProto) -> None:
    """Leave extents of inputs open at times, with a name or without."""
    if not s.chance(10):
        return
    del model.graph.value_info[:]
    for info in model.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            if s.chance(40):
                extent = dim.dim_value
                dim.ClearField("dim_value")
                if s.chance(70):
                    dim.dim_param = f"extent{extent}"
    for info in model.graph.output:
        info.type.tensor_type.ClearField("shape")


def _dress(s: Sketch, model: onnx.ModelProto) -> None:
    """Draw the IR version, and initializers that are listed as inputs too, as IR 3 wants and later ones allow."""
    model.ir_version = s.choose((8, 8, 8, 4, 9, 10)) if s.opset > OLDEST + 2 else s.choose((3, 4, 8))
    for tensor in model.graph.initializer:
        if model.ir_version < 4 or s.chance(2):
            info = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            model.graph.input.append(info)


def _special(s: Sketch) -> dict[str, Array]:
    """Return the inputs with some elements replaced by values at which functions are undefined, end, or change."""
    kinds = s.subset(("nan", "infinity", "zero", "tiny", "huge"))
    return {n: a if n in s.plain else _sprinkled(n, a, kinds) for n, a in s.feeds.items()}


def _sprinkled(name: str, array: Array, kinds: Sequence[str]) -> Array:
    dtype = dtype_of(array)
    if dtype is DType.BOOL or not array.size:
        return array
    rng = np.random.default_rng(zlib.crc32(f"{name} {kinds}".encode()))
    values = np.array([v for kind in kinds for v in _values(kind, dtype)], dtype.numpy)
    flat = array.reshape(-1).copy()
    places = rng.choice(flat.size, max(1, flat.size // 6), replace=False)
    flat[places] = rng.choice(values, len(places)) if len(values) else flat[places]
    return flat.reshape(array.shape)


def _values(kind: str, dtype: DType) -> tuple[float, ...]:
    """Return the special values of one kind, both signs of each."""
    if not dtype.is_float:
        ends = np.iinfo(dtype.numpy)
        return {"zero": (0,), "tiny": (1,), "huge": (int(ends.min), int(ends.max))}.get(kind, ())
    limits = float_limits(dtype)
    positive = {
        "nan": (float("nan"),),
        "infinity": (float("inf"),),
        "zero": (0.0,),
        "tiny": (limits.tiny, limits.least, limits.tiny / 4),
        "huge": (limits.most, limits.most / 3),
    }[kind]
    return (*positive, *(-v for v in positive))
