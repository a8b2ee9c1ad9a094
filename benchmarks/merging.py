"""Time products that share an operand, one by one and merged into one whose result is split, in ONNX Runtime.

The shapes are those of the models. Both forms run on one thread, in turns in one process; times are processor time,
which other work on the machine disturbs least. Prints a table.

    python benchmarks/merging.py
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
from onnx import helper

_ROUNDS, _RUNS = 60, 5
_PROVIDER = "CPUExecutionProvider"


@dataclass(frozen=True, slots=True)
class Products:
    """Products that share an operand.

    Attributes:
        place: where models have them.
        operator: MatMul, or Conv of width 1 with a SiLU behind it.
        operand: shape of what they share.
        width: columns or output channels of each.
        count: how many there are.
    """

    place: str
    operator: str
    operand: tuple[int, ...]
    width: int
    count: int


PLACES = (
    Products("bert_base, query, key and value", "MatMul", (128, 768), 768, 3),
    Products("minilm, query, key and value", "MatMul", (128, 384), 384, 3),
    Products("segformer_b0, key and value", "MatMul", (256, 32), 32, 2),
    Products("segformer_b0, last stage", "MatMul", (256, 256), 256, 3),
    Products("yolox_nano, halves of a stage", "Conv", (1, 64, 52, 52), 32, 2),
    Products("yolox_nano, halves of a deep stage", "Conv", (1, 128, 26, 26), 64, 2),
    Products("yolov4, halves of a stage", "Conv", (1, 128, 104, 104), 64, 2),
)


def main() -> None:
    """Print the table."""
    print("| where | apart, ms | merged, ms | apart / merged |\n| --- | --: | --: | --: |")
    for products in PLACES:
        apart, merged = _times(products)
        print(f"| {products.place} | {apart * 1e3:.3f} | {merged * 1e3:.3f} | {apart / merged:.2f} |")


def _times(products: Products) -> tuple[float, float]:
    """Seconds of one run of each form: the lower fifth of all rounds."""
    feed = {"x": np.random.default_rng(0).standard_normal(products.operand, np.float32)}
    sessions = [_session(products, is_merged) for is_merged in (False, True)]
    first, second = (session.run(None, feed) for session in sessions)
    for left, right in zip(first, second, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-4)
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(_ROUNDS):
        for session, times in zip(sessions, spent, strict=True):
            began = time.thread_time()
            for _ in range(_RUNS):
                session.run(None, feed)
            times.append((time.thread_time() - began) / _RUNS)
    return float(np.percentile(spent[0], 20)), float(np.percentile(spent[1], 20))


def _session(products: Products, is_merged: bool) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    text = _model(products, is_merged).SerializeToString()
    return onnxruntime.InferenceSession(text, options, providers=[_PROVIDER])


def _model(products: Products, is_merged: bool) -> onnx.ModelProto:
    """The products with an elementwise operator behind each result, as models have it."""
    is_product = products.operator == "MatMul"
    depth = products.operand[-1 if is_product else 1]
    shape = (depth, products.width) if is_product else (products.width, depth, 1, 1)
    draw = np.random.default_rng(1)
    weights = [draw.standard_normal(shape, np.float32) / depth**0.5 for _ in range(products.count)]
    parts = [f"p{i}" for i in range(products.count)]
    axis = 1
    if is_merged:
        weights = [np.concatenate(weights, axis if is_product else 0)]
        nodes = [
            helper.make_node(products.operator, ["x", "w0"], ["whole"]),
            helper.make_node("Split", ["whole"], parts, axis=axis, num_outputs=products.count),
        ]
    else:
        nodes = [helper.make_node(products.operator, ["x", f"w{i}"], [part]) for i, part in enumerate(parts)]
    for part in parts:
        nodes.append(helper.make_node("Sigmoid", [part], [f"{part}_gate"]))
        nodes.append(helper.make_node("Mul", [part, f"{part}_gate"], [f"{part}_out"]))
    result = [*products.operand]
    result[axis] = products.width
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, products.operand)],
        [helper.make_tensor_value_info(f"{part}_out", onnx.TensorProto.FLOAT, result) for part in parts],
        [onnx.numpy_helper.from_array(weight, f"w{i}") for i, weight in enumerate(weights)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


if __name__ == "__main__":
    main()
