"""What an output model must have in common with its source, and how their outputs are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator
from survival_row import Row

_FIRST_IR_WITH_FUNCTIONS = 8
_TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


def run(path: Path, feeds: Mapping[str, Any], library: Path | None, new_ops: Sequence[Any]) -> list[Any]:
    """What ONNX Runtime computes without optimising anything, or onnx's reference with operators of its own."""
    if new_ops:
        with np.errstate(all="ignore"):
            return list(ReferenceEvaluator(str(path), new_ops=list(new_ops)).run(None, dict(feeds)))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if library is not None:
        options.register_custom_ops_library(str(library))
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def assert_same_outputs(
    row: Row, names: Sequence[str], expected: Sequence[Any], found: Sequence[Any], *, kernels: bool
) -> None:
    """Compare what two models computed: types, shapes, elements.

    Where ONNX Runtime is no judge, kernels do what is right; without them it is right, or as ONNX Runtime does it.
    """
    for name, want, got in zip(names, expected, found, strict=True):
        try:
            _assert_same(name, row.instead.get(name, want), got, row.tolerance)
        except AssertionError:
            if kernels or name not in row.instead:
                raise
            _assert_same(name, want, got, row.tolerance)


def assert_same_signature(source: onnx.ModelProto, output: onnx.ModelProto, results: Sequence[Any]) -> None:
    """Inputs and outputs have the same names, order, types and documentation; stated extents are those that come."""
    assert [i.name for i in output.graph.input] == _inputs_to_keep(source, output)
    assert [o.name for o in output.graph.output] == [o.name for o in source.graph.output]
    named = {info.name: info for info in source.graph.input}
    for info in output.graph.input:
        _assert_same_info(named[info.name], info)
    for before, after, result in zip(source.graph.output, output.graph.output, results, strict=True):
        _assert_same_info(before, after)
        if after.type.HasField("tensor_type") and after.type.tensor_type.HasField("shape"):
            dims = after.type.tensor_type.shape.dim
            shape = np.shape(result)
            assert len(dims) == len(shape)
            assert all(not d.HasField("dim_value") or d.dim_value == e for d, e in zip(dims, shape, strict=True))


def assert_same_frame(source: onnx.ModelProto, output: onnx.ModelProto, kernels: int) -> None:
    """Versions, metadata and documentation are as they were, but for what custom operators need."""
    added = _domains(output).keys() - _domains(source).keys()
    assert all(domain.startswith("korch.") or domain == "" for domain in added)
    assert bool(added) == bool(kernels) or "" in added
    for domain, version in _domains(source).items():
        assert _domains(output)[domain] == version
    raised = max(source.ir_version, _FIRST_IR_WITH_FUNCTIONS)
    assert output.ir_version == (raised if kernels else source.ir_version)
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        assert getattr(output, field) == getattr(source, field), field
    assert list(output.metadata_props) == list(source.metadata_props)
    assert list(output.graph.metadata_props) == list(source.graph.metadata_props)
    assert (output.graph.name, output.graph.doc_string) == (source.graph.name, source.graph.doc_string)
    assert list(output.training_info) == list(source.training_info)
    documented = {node.name: node for node in source.graph.node if node.name}
    for node in output.graph.node:
        before = documented.get(node.name)
        if before is not None and before.op_type == node.op_type:
            assert node.doc_string == before.doc_string
            assert list(node.metadata_props) == list(before.metadata_props)


def assert_sound(output: onnx.ModelProto, source: onnx.ModelProto) -> None:
    """Nodes can run in their order, have names of their own, and onnx accepts what it accepted before."""
    names = [node.name for node in output.graph.node]
    assert len(set(names)) == len(names)
    known = {i.name for i in output.graph.input} | {t.name for t in output.graph.initializer}
    known |= {t.values.name for t in output.graph.sparse_initializer} | {""}
    for node in output.graph.node:
        assert set(node.input) <= known
        known |= set(node.output)
    refusal = _refusal(output)
    assert refusal is None or _refusal(source) is not None, refusal


def operators(proto: onnx.ModelProto) -> list[str]:
    """The types of all nodes that are not custom, those in subgraphs included."""
    return [name for node in proto.graph.node for name in _operators(node)]


def _operators(node: onnx.NodeProto) -> list[str]:
    found = [] if node.domain.startswith("korch.") else [node.op_type]
    graphs = [g for a in node.attribute for g in (*a.graphs, *([a.g] if a.HasField("g") else []))]
    return found + [name for graph in graphs for inner in graph.node for name in _operators(inner)]


def _assert_same(name: str, want: Any, got: Any, tolerance: float | None) -> None:
    if want is None or isinstance(want, list):
        assert type(got) is type(want), name
        for i, (a, b) in enumerate(zip(want or (), got or (), strict=True)):
            _assert_same(f"{name}[{i}]", a, b, tolerance)
        return
    want, got = np.asarray(want), np.asarray(got)
    assert got.dtype == want.dtype, name
    assert got.shape == want.shape, name
    bound = _TOLERANCE.get(want.dtype.name)
    if bound is None:
        np.testing.assert_array_equal(got, want, err_msg=name)
        return
    bound = bound if tolerance is None else tolerance
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=bound, atol=bound, err_msg=name)


def _inputs_to_keep(source: onnx.ModelProto, output: onnx.ModelProto) -> list[str]:
    """Return the inputs that have to be left: all; but before IR version 4 weights are inputs only as a formality."""
    if source.ir_version >= 4:
        return [info.name for info in source.graph.input]
    weights = {tensor.name for tensor in source.graph.initializer}
    left = {info.name for info in output.graph.input}
    return [info.name for info in source.graph.input if info.name not in weights or info.name in left]


def _assert_same_info(before: onnx.ValueInfoProto, after: onnx.ValueInfoProto) -> None:
    assert after.doc_string == before.doc_string
    assert list(after.metadata_props) == list(before.metadata_props)
    if not before.type.WhichOneof("value"):
        return
    assert after.type.WhichOneof("value") == before.type.WhichOneof("value")
    if not before.type.HasField("tensor_type"):
        assert after.type == before.type
        return
    old, new = before.type.tensor_type, after.type.tensor_type
    assert old.elem_type == new.elem_type
    assert after.type.denotation == before.type.denotation
    if old.HasField("shape"):
        assert len(new.shape.dim) == len(old.shape.dim)
        for a, b in zip(old.shape.dim, new.shape.dim, strict=True):
            assert a.dim_value < 1 or a.dim_value == b.dim_value
            assert a.denotation == b.denotation


def _domains(proto: onnx.ModelProto) -> dict[str, int]:
    return {"" if o.domain == "ai.onnx" else o.domain: o.version for o in proto.opset_import}


def _refusal(proto: onnx.ModelProto) -> str | None:
    try:
        onnx.checker.check_model(proto)
    except Exception as error:
        return str(error)
    return None
