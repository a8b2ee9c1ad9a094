from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from korch_cli.verify import find_guilty

DOMAIN = "korch.test"


@pytest.mark.parametrize("external", [True, False])
def test_weights_in_a_file_of_their_own_are_operands_too(tmp_path: Path, library: Path, external: bool) -> None:
    weights = [
        numpy_helper.from_array(np.arange(4, dtype=np.float32), "w"),
        numpy_helper.from_array(np.ones((400, 4), np.float32), "big"),
    ]
    nodes = [
        helper.make_node("wrong", ["w"], ["t"], name="first", domain=DOMAIN),
        helper.make_node("right", ["x"], ["u"], name="second", domain=DOMAIN),
        helper.make_node("Add", ["t", "big"], ["v"]),
        helper.make_node("Add", ["u", "v"], ["y"]),
    ]
    double = [helper.make_node("Add", ["i", "i"], ["o"])]
    functions = [
        helper.make_function(DOMAIN, name, ["i"], ["o"], double, [helper.make_opsetid("", 17)])
        for name in ("right", "wrong")
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4,))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (400, 4))]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=9)
    path = tmp_path / "m.onnx"
    onnx.save_model(model, path, save_as_external_data=external, location="m.data", size_threshold=0)
    feeds = [{"x": np.ones(4, np.float32)}]
    found = find_guilty(path, library, DOMAIN, feeds, rtol=1e-4, atol=1e-5, threads=1)
    assert [name for name, _ in found] == ["wrong"]
    assert "'first'" in found[0][1]
    assert sorted(p.name for p in tmp_path.glob("*m.*")) == (["m.data", "m.onnx"] if external else ["m.onnx"])
