"""Which of its own operators the installed ONNX Runtime runs, and rightly: asked with one node each, and remembered."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx

from korch_cli.algebra.surgery import CONTRIB
from korch_cli.core.types import Array, DType

_OPSET = 13
_IR_VERSION = 7


@dataclass(frozen=True, slots=True)
class _Question:
    """One node, and what it has to compute, in float64.

    Attributes:
        inputs: shapes by name; an operand that is absent is "".
        attributes: of the node.
        answer: computes the result.
    """

    inputs: Mapping[str, tuple[int, ...]]
    attributes: Mapping[str, Any]
    answer: Callable[..., Array]


@cache
def accepted(op_type: str, dtype: DType) -> bool:
    """Whether ONNX Runtime, if it is installed, runs an operator of its own domain and computes what it should."""
    question = _QUESTIONS.get(op_type)
    if question is None:
        return False
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(shape).astype(dtype.numpy) for name, shape in question.inputs.items()}
    expected = question.answer(*(array.astype(np.float64) for array in arrays.values()))
    try:
        found = _run(op_type, question, arrays, dtype)
    except Exception:  # of which each version of ONNX Runtime has its own
        return False
    return all(np.allclose(array, expected, rtol=1e-3, atol=1e-4) for array in found)


def _run(op_type: str, question: _Question, arrays: Mapping[str, Array], dtype: DType) -> list[Array]:
    import onnxruntime as ort

    node = onnx.helper.make_node(op_type, list(question.inputs), ["y"], domain=CONTRIB, **question.attributes)
    inputs = [onnx.helper.make_tensor_value_info(name, dtype.onnx, array.shape) for name, array in arrays.items()]
    output = onnx.helper.make_tensor_value_info("y", dtype.onnx, None)
    graph = onnx.helper.make_graph([node], "question", inputs, [output])
    opsets = [onnx.helper.make_opsetid("", _OPSET), onnx.helper.make_opsetid(CONTRIB, 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION).SerializeToString()
    results = []
    for level in (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL):
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        results.append(np.asarray(session.run(None, dict(arrays))[0]))
    return results


def _gelu(x: Array) -> Array:
    return np.asarray(x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))))


def _attend(q: Array, k: Array, v: Array, *, heads: int = 2, scale: float = 0.3) -> Array:
    q, k, v = (a.reshape(*a.shape[:2], heads, -1).transpose(0, 2, 1, 3) for a in (q, k, v))
    weights = np.exp(scale * q @ k.swapaxes(-1, -2))
    mixed = weights / weights.sum(-1, keepdims=True) @ v
    return np.asarray(mixed.transpose(0, 2, 1, 3).reshape(q.shape[0], q.shape[2], -1))


_QUESTIONS = {
    "Gelu": _Question({"x": (3, 5)}, {}, _gelu),
    "MultiHeadAttention": _Question(
        {"q": (2, 5, 8), "k": (2, 7, 8), "v": (2, 7, 6)}, {"num_heads": 2, "scale": 0.3}, _attend
    ),
}
