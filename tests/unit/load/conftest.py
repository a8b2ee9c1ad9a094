"""Tiny models, written to files and loaded, and ONNX Runtime to compare with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from korch_cli.core.model import Bindings, Model
from korch_cli.core.types import Array
from korch_cli.load import load

Build = Callable[..., onnx.ModelProto]
Loader = Callable[..., Model]
Runner = Callable[[object, Mapping[str, Array]], list[Array]]


@pytest.fixture
def build() -> Build:
    """A model of nodes; `inputs` and `outputs` map names to shapes (float32) or to (element type, shape)."""

    def value_info(name: str, given: Any) -> onnx.ValueInfoProto:
        elem_type, shape = given if isinstance(given, tuple) else (onnx.TensorProto.FLOAT, given)
        return helper.make_tensor_value_info(name, elem_type, shape)

    def model(
        nodes: Sequence[onnx.NodeProto],
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        weights: Mapping[str, Array] | None = None,
        opset: int = 17,
        ir_version: int = 8,
        **rest: Any,
    ) -> onnx.ModelProto:
        graph = helper.make_graph(
            nodes,
            "graph",
            [value_info(*item) for item in inputs.items()],
            [value_info(*item) for item in outputs.items()],
            [onnx.numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
        )
        imports = [helper.make_opsetid("", opset), *rest.pop("imports", [])]
        return helper.make_model(graph, opset_imports=imports, ir_version=ir_version, **rest)

    return model


@pytest.fixture
def loaded(tmp_path: Path) -> Loader:
    """Write a model to a file and load it."""

    def write_and_load(
        proto: onnx.ModelProto,
        dims: Mapping[str, int] | None = None,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> Model:
        path = tmp_path / "model.onnx"
        path.write_bytes(proto.SerializeToString())
        return load(path, Bindings(dims or {}, shapes or {}))

    return write_and_load


@pytest.fixture
def run() -> Runner:
    """What ONNX Runtime, without optimizations, computes."""

    def in_session(proto: Any, feeds: Mapping[str, Array]) -> list[Array]:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return [np.asarray(array) for array in session.run(None, dict(feeds))]

    return in_session
