"""The graph that ONNX Runtime made of a model, with a time on every node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from korch_cli.load import name_nodes, vendor_profile

Build = Callable[..., onnx.ModelProto]


@pytest.fixture
def saved(tmp_path: Path, build: Build) -> Path:
    """A model with a convolution, as ONNX Runtime saved it."""
    weights = {"w": np.ones((16, 16, 1, 1), np.float32)}
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="abs", domain="ai.onnx"),
        helper.make_node("Conv", ["a", "w"], ["c"], name="conv"),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Clip", ["r", ""], ["y"], name="clip"),
    ]
    source = build(nodes, {"x": [1, 16, 4, 4]}, {"y": [1, 16, 4, 4]}, weights)
    path = tmp_path / "optimised.onnx"
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(source.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return path


def test_nodes_come_in_the_order_in_which_they_run(saved: Path) -> None:
    profile = vendor_profile(saved, {}, 10.0)
    types = [node.op_type for node in profile.nodes]
    assert types[:2] == ["Abs", "FusedConv"]
    assert [node.domain for node in profile.nodes][:2] == ["", "com.microsoft"]
    known = {"x", "w", ""}
    for node in profile.nodes:
        assert known.issuperset(node.inputs)
        known.update(node.outputs)
    assert "y" in known


def test_times_are_scaled_to_the_total(saved: Path) -> None:
    times = {node.name: 2.0 * n for n, node in enumerate(vendor_profile(saved, {}, 10.0).nodes)}
    first = next(iter(times))
    del times[first]
    profile = vendor_profile(saved, {**times, "of no node": 50.0}, 10.0)
    assert profile.total_us == 10.0
    assert sum(node.time_us for node in profile.nodes) == pytest.approx(10.0)
    assert profile.nodes[0].time_us == 0.0
    assert profile.nodes[1].time_us == pytest.approx(10.0 * 2.0 / sum(times.values()))


def test_without_any_time_every_node_is_free(saved: Path) -> None:
    assert {node.time_us for node in vendor_profile(saved, {}, 10.0).nodes} == {0.0}


def test_nodes_of_subgraphs_are_left_out(tmp_path: Path, build: Build) -> None:
    out = helper.make_tensor_value_info("r", TensorProto.FLOAT, [2])
    branch = helper.make_graph([helper.make_node("Neg", ["x"], ["r"], name="inner")], "branch", [], [out])
    node = helper.make_node("If", ["c"], ["y"], name="outer", then_branch=branch, else_branch=branch)
    path = tmp_path / "saved.onnx"
    onnx.save_model(build([node], {"c": (TensorProto.BOOL, []), "x": [2]}, {"y": [2]}), str(path))
    (only,) = vendor_profile(path, {"inner": 30.0, "outer": 40.0}, 20.0).nodes
    assert (only.name, only.time_us) == ("outer", 20.0)


def test_nodes_without_a_name_get_one_that_nothing_has(tmp_path: Path, build: Build) -> None:
    out = helper.make_tensor_value_info("r", TensorProto.FLOAT, [2])
    branch = helper.make_graph([helper.make_node("Neg", ["x"], ["r"])], "branch", [], [out])
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="a"),
        helper.make_node("Abs", ["a"], ["b"], name="a"),
        helper.make_node("Neg", ["b"], ["d"], name="?2.0"),
        helper.make_node("Neg", ["d"], ["e"]),
        helper.make_node("If", ["c"], ["f"], then_branch=branch, else_branch=branch),
        helper.make_node("Add", ["e", "f"], ["y"]),
    ]
    path = tmp_path / "saved.onnx"
    onnx.save_model(build(nodes, {"c": (TensorProto.BOOL, []), "x": [2]}, {"y": [2]}), str(path))
    named = name_nodes(path)
    assert named is not None
    graph = onnx.load_model(str(named)).graph
    bodies = [attribute.g.node[0].name for attribute in graph.node[4].attribute]
    given = [*(node.name for node in graph.node), *bodies]
    assert given[0] == "a"
    assert given[2] == "?2.0"
    assert len({*given, ""}) == len(given) + 1
    assert name_nodes(named) is None
