"""One node computed from constants, with onnx's reference evaluator, where it is sure to agree with ONNX Runtime."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from korch_cli.core.types import Array, DType

FIRST_OPSET = 7
"""Before it arithmetic broadcast by attributes, of which the reference evaluator knows nothing."""
SHAPE_READERS = frozenset({"Shape", "Size"})
"""What these compute follows from the type of their input alone."""
# fmt: off
FOLDABLE = SHAPE_READERS | frozenset(
    {
        "Abs", "Add", "And", "Cast", "Ceil", "Clip", "Compress", "Concat", "ConstantOfShape", "Cos", "CumSum",
        "Div", "Equal", "Exp", "Expand", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Greater",
        "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg", "NonZero",
        "Not", "Or", "Pad", "Pow", "Range", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin",
        "ReduceProd", "ReduceSum", "Relu", "Reshape", "Round", "ScatterElements", "ScatterND", "Sign", "Sin",
        "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where",
        "Xor",
    }
)
# fmt: on
"""Deterministic operators that shape arithmetic, masks and position tables are made of.

Quantization is not among them, for ONNX Runtime recognises its patterns; random operators never can be.
"""


def evaluate(
    node: onnx.NodeProto, feeds: Mapping[str, Array], opsets: Sequence[onnx.OperatorSetIdProto]
) -> dict[str, Array] | None:
    """Return the outputs of a node by name, or None where the evaluator fails or might differ from ONNX Runtime."""
    if not _is_portable(node, [feeds[name] for name in node.input if name]):
        return None
    names = [name for name in node.output if name]
    inputs = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    graph = onnx.helper.make_graph([node], "fold", inputs, [onnx.ValueInfoProto(name=name) for name in names])
    try:
        # An overflow, a division by zero or an invalid conversion: its result is the business of who runs the model.
        with np.errstate(over="raise", divide="raise", invalid="raise", under="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=list(opsets)))
            arrays = evaluator.run(names, dict(feeds))
    except Exception:
        # The node stays in the model, whatever the reason: it may still run where it stands.
        return None
    if not all(isinstance(array, np.ndarray | np.generic) for array in arrays):
        return None
    return {name: np.asarray(array) for name, array in zip(names, arrays, strict=True)}


def _is_portable(node: onnx.NodeProto, arrays: list[Array]) -> bool:
    """Whether numpy and C++ agree on these operands."""
    if node.op_type in ("Div", "Mod") and arrays[0].dtype.kind in "iu":
        # Truncation and flooring differ below zero, and releases of onnx differ in which they do.
        return bool((arrays[0] >= 0).all() and (arrays[1] > 0).all())
    if node.op_type == "Cast" and arrays[0].dtype.kind not in "iub":
        target = DType.from_onnx(next((a.i for a in node.attribute if a.name == "to"), 0))
        if target is not None and target.is_integer:
            limits, values = np.iinfo(target.numpy), arrays[0].astype(np.float64)
            return bool(((values >= limits.min) & (values < float(limits.max))).all())
    return True
