"""ResNet-50 with random weights: the graph that the onnx package ships, where constants stand for the weights."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

_LIGHT = Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"
_SEED = 50
_IR_VERSION = 8
"""From version 4 on, weights need not be inputs too; the light graph, of version 3, lists them all."""


def build() -> onnx.ModelProto:
    """Return the model: image 1x3x224x224 to the probabilities of 1000 classes."""
    model = onnx.load(_LIGHT)
    graph = model.graph
    roles = {name: (node.op_type, place) for node in graph.node for place, name in enumerate(node.input)}
    known = {tensor.name: tensor for tensor in graph.initializer}
    random = np.random.default_rng(_SEED)
    kept = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = tuple(numpy_helper.to_array(known[node.input[0]]))
        array = _draw(roles[node.output[0]], shape, random).astype(np.float32)
        known[node.output[0]] = numpy_helper.from_array(array, node.output[0])
    used = {name for node in kept for name in node.input}
    fed = [info for info in graph.input if info.name in used and info.name not in known]
    for field, content in (
        (graph.node, [copy.deepcopy(node) for node in kept]),
        (graph.initializer, [copy.deepcopy(tensor) for name, tensor in known.items() if name in used]),
        (graph.input, [copy.deepcopy(info) for info in fed]),
    ):
        del field[:]
        field.extend(content)
    model.ir_version = _IR_VERSION
    onnx.checker.check_model(model, full_check=True)
    return model


def _draw(role: tuple[str, int], shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Return weights for one input of an operator, such that values neither grow nor vanish on their way."""
    match role:
        case ("BatchNormalization", 1 | 4):
            return random.uniform(0.8, 1.2, shape)
        case (_, 1) if len(shape) > 1:
            return random.normal(0, float(np.prod(shape[1:])) ** -0.5, shape)
        case _:
            return random.uniform(-0.1, 0.1, shape)
