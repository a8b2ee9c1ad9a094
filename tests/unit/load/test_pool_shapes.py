"""The extents of what pools with `ceil_mode` compute, at every version of their definition."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from korch_cli.core.model import Bindings
from korch_cli.load import load


@pytest.mark.parametrize("opset", [10, 11, 12, 17, 18, 19, 21, 22])
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
def test_a_pool_that_rounds_up_has_the_shape_that_the_runtime_gives_it(
    op_type: str, opset: int, tmp_path: Path
) -> None:
    if op_type == "LpPool" and opset < 18:
        pytest.skip("LpPool has no ceil_mode before version 18")
    # Pools one after the other: what one gets wrong the next one inherits.
    nodes: list[onnx.NodeProto] = []
    outputs: list[str] = []
    for extent, window, stride, pad in product(range(3, 10), (1, 2, 3), (1, 2, 3, 4), (0, 1)):
        if pad >= window:
            continue
        name = f"y{len(outputs)}"
        attributes: dict[str, Any] = {"kernel_shape": [window], "strides": [stride], "pads": [pad, pad], "ceil_mode": 1}
        nodes.append(helper.make_node(op_type, [f"x{extent}"], [f"{name} inner"], **attributes))
        nodes.append(helper.make_node(op_type, [f"{name} inner"], [f"{name} outer"], kernel_shape=[1], ceil_mode=1))
        nodes.append(helper.make_node("Neg", [f"{name} outer"], [name]))
        outputs.append(name)
    graph = helper.make_graph(
        nodes,
        "pools",
        [helper.make_tensor_value_info(f"x{e}", TensorProto.FLOAT, [1, 1, e]) for e in range(3, 10)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
    )
    path = tmp_path / "pools.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # ONNX Runtime infers the same wrong shapes, and plans its memory by them.
    options.enable_mem_reuse = options.enable_mem_pattern = False
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    found = session.run(outputs, {f"x{e}": np.ones((1, 1, e), np.float32) for e in range(3, 10)})
    types = load(path, Bindings({}, {})).types
    assert {n: types[n].shape for n in outputs} == {n: a.shape for n, a in zip(outputs, found, strict=True)}
