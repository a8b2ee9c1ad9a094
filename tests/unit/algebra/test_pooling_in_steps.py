"""Maxima over windows of any shape, taken in steps, are the maxima that numpy finds in the windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from korch_cli.algebra import simplify
from korch_cli.algebra.families import entered
from korch_cli.core.model import Bindings
from korch_cli.core.types import Array
from korch_cli.load import load

RULES = [rule for rule in entered() if rule.apply.__name__ == "pool_in_steps"]


def pool(before: list[int], after: list[int], result: str, **more: Any) -> onnx.NodeProto:
    extents = [a + b + 1 for a, b in zip(before, after, strict=True)]
    return helper.make_node("MaxPool", ["x"], [result], kernel_shape=extents, pads=[*before, *after], **more)


def written(folder: Path, nodes: list[onnx.NodeProto], shape: tuple[int, ...]) -> Path:
    outputs = [helper.make_tensor_value_info(node.output[0], 1, None) for node in nodes]
    graph = helper.make_graph(nodes, "pools", [helper.make_tensor_value_info("x", 1, shape)], outputs)
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def largest(x: Array, before: list[int], after: list[int]) -> Array:
    result = np.empty_like(x)
    for at in np.ndindex(x.shape[2:]):
        window = tuple(slice(max(0, i - b), i + a + 1) for i, b, a in zip(at, before, after, strict=True))
        result[:, :, *at] = x[:, :, *window].max(axis=tuple(range(2, x.ndim)))
    return result


@pytest.mark.parametrize("seed", range(12))
def test_windows_of_any_shape(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    shape = (1, 2, *(int(n) for n in rng.integers(1, 9, rank)))
    before, after, windows = [0] * rank, [0] * rank, []
    for _ in range(3):
        before, after = (
            [int(b + g) for b, g in zip(side, rng.integers(0, 3, rank), strict=True)] for side in (before, after)
        )
        after[0] += 1
        windows.append((before, after))
    nodes = [pool(b, a, f"y{i}") for i, (b, a) in enumerate(windows)]
    found = simplify(load(written(tmp_path, nodes, shape), Bindings({}, {})), chosen=RULES)
    assert found is not None
    assert isinstance(found.proto, onnx.ModelProto)
    assert [list(node.input) for node in found.proto.graph.node] == [["x"], ["y0"], ["y1"]]
    x = rng.standard_normal(shape).astype(np.float32)
    session = onnxruntime.InferenceSession(found.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for result, (b, a) in zip(session.run(None, {"x": x}), windows, strict=True):
        np.testing.assert_array_equal(result, largest(x, b, a))


@pytest.mark.parametrize(
    "other",
    [
        pool([2, 0], [2, 2], "y"),
        pool([1, 1], [1, 1], "y"),
        pool([2, 2], [2, 2], "y", strides=[2, 1]),
        pool([1, 1], [1, 1], "y", dilations=[2, 2]),
        helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[5, 5], pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[5, 5], auto_pad="SAME_UPPER"),
    ],
    ids=["reaches less far", "the same", "moves by two", "leaves out", "shrinks", "padding not written"],
)
def test_what_is_left_alone(tmp_path: Path, other: onnx.NodeProto) -> None:
    nodes = [pool([1, 1], [1, 1], "first"), other]
    assert simplify(load(written(tmp_path, nodes, (1, 2, 7, 7)), Bindings({}, {})), chosen=RULES) is None
