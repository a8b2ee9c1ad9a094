"""Candy, a network of fast neural style transfer, with random weights and only `onnx.helper`.

Three convolutions down to a quarter of the size, five residual blocks, two enlargements with convolutions, and a
convolution to three channels; every convolution is padded by reflection and but for the last one followed by instance
normalisation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

_EXTENT = 224
_SEED = 20
_RESIDUAL_BLOCKS = 5
_OPSET = 17


class _Network:
    """Nodes and weights, layer after layer; a layer takes the name of its input and returns that of its output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(_SEED)

    def node(self, op_type: str, inputs: list[str], **attributes: Any) -> str:
        name = f"{op_type.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        return name

    def weight(self, array: np.ndarray) -> str:
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def conv(self, x: str, channels_in: int, channels_out: int, kernel: int, stride: int = 1) -> str:
        border = kernel // 2
        pads = self.weight(np.array([0, 0, border, border, 0, 0, border, border], np.int64))
        x = self.node("Pad", [x, pads], mode="reflect")
        spread = (channels_in * kernel * kernel) ** -0.5
        filters = self._random.normal(0, spread, (channels_out, channels_in, kernel, kernel)).astype(np.float32)
        bias = self._random.uniform(-0.1, 0.1, channels_out).astype(np.float32)
        sizes = {"kernel_shape": [kernel, kernel], "strides": [stride, stride]}
        return self.node("Conv", [x, self.weight(filters), self.weight(bias)], **sizes)

    def norm(self, x: str, channels: int) -> str:
        scale = self._random.uniform(0.8, 1.2, channels).astype(np.float32)
        shift = self._random.uniform(-0.2, 0.2, channels).astype(np.float32)
        return self.node("InstanceNormalization", [x, self.weight(scale), self.weight(shift)], epsilon=1e-5)

    def relu(self, x: str) -> str:
        return self.node("Relu", [x])

    def residual(self, x: str, channels: int) -> str:
        inner = self.relu(self.norm(self.conv(x, channels, channels, 3), channels))
        return self.node("Add", [self.norm(self.conv(inner, channels, channels, 3), channels), x])

    def enlarge(self, x: str) -> str:
        scales = self.weight(np.array([1, 1, 2, 2], np.float32))
        mode = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self.node("Resize", [x, "", scales], **mode)


def build() -> onnx.ModelProto:
    """Return the model; its input and its output are images, 1x3x224x224."""
    net = _Network()
    x = "image"
    for channels_in, channels_out, kernel, stride in ((3, 32, 9, 1), (32, 64, 3, 2), (64, 128, 3, 2)):
        x = net.relu(net.norm(net.conv(x, channels_in, channels_out, kernel, stride), channels_out))
    for _ in range(_RESIDUAL_BLOCKS):
        x = net.residual(x, 128)
    for channels_in, channels_out in ((128, 64), (64, 32)):
        x = net.relu(net.norm(net.conv(net.enlarge(x), channels_in, channels_out, 3), channels_out))
    net.conv(x, 32, 3, 9)
    net.nodes[-1].output[0] = "styled"

    image = (1, 3, _EXTENT, _EXTENT)
    inputs = [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, image)]
    outputs = [helper.make_tensor_value_info("styled", onnx.TensorProto.FLOAT, image)]
    graph = helper.make_graph(net.nodes, "candy", inputs, outputs, net.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model
