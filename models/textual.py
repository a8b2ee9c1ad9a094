"""Small graphs as text: graphs/*.onnxtxt, in the syntax that onnx's parser reads."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

GRAPHS = Path(__file__).with_name("graphs")
WEIGHT = "w_"
"""What the names of weights begin with. The text has them among the inputs; the model has random numbers for them."""


def read(name: str) -> onnx.ModelProto:
    """Return the model of graphs/<name>.onnxtxt, with weights that depend on nothing but their names and shapes.

    A weight of several axes is scaled such that what is multiplied with it keeps its size.
    """
    model = onnx.parser.parse_model((GRAPHS / f"{name}.onnxtxt").read_text(encoding="utf-8"))
    graph = model.graph
    weights = [value for value in graph.input if value.name.startswith(WEIGHT)]
    for value in weights:
        graph.input.remove(value)
        shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        graph.initializer.append(numpy_helper.from_array(_drawn(value.name, shape), value.name))
    onnx.checker.check_model(model)
    return model


def _drawn(name: str, shape: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    seed = int.from_bytes(hashlib.sha256(f"{name} {shape}".encode()).digest()[:8], "little")
    drawn = np.random.default_rng(seed).standard_normal(shape)
    # Of a product's weights the first axis is summed over, of a convolution's all but the first.
    summed = shape[0] if len(shape) == 2 else int(np.prod(shape[1:]))
    scaled = 1.0 + 0.1 * drawn if len(shape) == 1 else drawn / np.sqrt(summed)
    return scaled.astype(np.float32)
