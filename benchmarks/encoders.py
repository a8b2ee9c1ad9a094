"""Transformer encoders of any depth, as ONNX: what the orchestration is timed on at scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, checker, helper, numpy_helper, save

_TOKENS, _WIDTH, _HEADS = 128, 256, 4
_INNER = 4 * _WIDTH
_OPSET = 17


def write(path: Path, layers: int) -> None:
    """Write a pre-norm encoder of float32 [1,128,256] with 4 heads; all layers share their weights.

    Normalisation, softmax and GELU are written out as exporters write them, so that fission meets them as they come.
    """
    made = _Encoder()
    value = "x"
    for layer in range(layers):
        value = made.layer(value, f"layer{layer}")
    made.node("Identity", [value], "y", "y")
    shape = [1, _TOKENS, _WIDTH]
    graph = helper.make_graph(
        made.nodes,
        "encoder",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(array, name) for name, array in made.weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)
    checker.check_model(model)
    save(model, path)


class _Encoder:
    """Nodes and weights, as layers are added."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)

        def weight(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
            return random.normal(0, 1 / np.sqrt(shape[0]), shape).astype(np.float32)

        self.nodes: list[NodeProto] = []
        self.weights = {
            **{f"weight_{name}": weight(_WIDTH, _WIDTH) for name in ("query", "key", "value", "out")},
            **{f"bias_{name}": weight(_WIDTH) for name in ("query", "key", "value", "out", "down", "norm")},
            "weight_up": weight(_WIDTH, _INNER),
            "bias_up": weight(_INNER),
            "weight_down": weight(_INNER, _WIDTH),
            "scale_norm": np.abs(weight(_WIDTH)) + 1,
            "split": np.array([1, _TOKENS, _HEADS, _WIDTH // _HEADS]),
            "joined": np.array([1, _TOKENS, _WIDTH]),
            "two": np.array(2, np.float32),
            "epsilon": np.array(1e-5, np.float32),
            "root": np.array((_WIDTH // _HEADS) ** 0.5, np.float32),
            "root_two": np.array(2**0.5, np.float32),
            "one": np.array(1, np.float32),
            "half": np.array(0.5, np.float32),
        }

    def node(self, kind: str, inputs: list[str], output: str, name: str, **attributes: Any) -> str:
        """Add a node of one output; return the output."""
        self.nodes.append(helper.make_node(kind, inputs, [output], name=name, **attributes))
        return output

    def layer(self, x: str, at: str) -> str:
        """Add self-attention and a perceptron, each with its norm and residual."""
        y = self.norm(x, f"{at}/norm1")
        query, key, value = (self.head(y, name, f"{at}/{name}") for name in ("query", "key", "value"))
        turned = self._add("Transpose", [key], f"{at}/turn", perm=[0, 1, 3, 2])
        scores = self._add("Div", [self._add("MatMul", [query, turned], f"{at}/scores"), "root"], f"{at}/scaled")
        weights = self._add("Softmax", [scores], f"{at}/softmax", axis=-1)
        mixed = self._add("MatMul", [weights, value], f"{at}/mixed")
        back = self._add("Transpose", [mixed], f"{at}/back", perm=[0, 2, 1, 3])
        x = self._add("Add", [x, self._linear(self._add("Reshape", [back, "joined"], f"{at}/join"), "out", at)], at)
        up = self._linear(self.norm(x, f"{at}/norm2"), "up", at)
        down = self._linear(self.gelu(up, f"{at}/gelu"), "down", at)
        return self._add("Add", [x, down], f"{at}/end")

    def norm(self, x: str, at: str) -> str:
        """Add layer normalisation, written out."""
        centred = self._add("Sub", [x, self._add("ReduceMean", [x], f"{at}/mean", axes=[-1])], f"{at}/centred")
        square = self._add("Pow", [centred, "two"], f"{at}/square")
        spread = self._add("ReduceMean", [square], f"{at}/variance", axes=[-1])
        root = self._add("Sqrt", [self._add("Add", [spread, "epsilon"], f"{at}/epsilon")], f"{at}/root")
        scaled = self._add("Mul", [self._add("Div", [centred, root], f"{at}/unit"), "scale_norm"], f"{at}/scaled")
        return self._add("Add", [scaled, "bias_norm"], f"{at}/shifted")

    def gelu(self, x: str, at: str) -> str:
        """Add the exact GELU, written out."""
        share = self._add("Erf", [self._add("Div", [x, "root_two"], f"{at}/div")], f"{at}/erf")
        weight = self._add("Add", [share, "one"], f"{at}/one")
        return self._add("Mul", [self._add("Mul", [x, weight], f"{at}/mul"), "half"], f"{at}/half")

    def head(self, x: str, name: str, at: str) -> str:
        """Add a projection, split into heads."""
        split = self._add("Reshape", [self._linear(x, name, at), "split"], f"{at}/split")
        return self._add("Transpose", [split], f"{at}/heads", perm=[0, 2, 1, 3])

    def _linear(self, x: str, name: str, at: str) -> str:
        product = self._add("MatMul", [x, f"weight_{name}"], f"{at}/{name}/product")
        return self._add("Add", [product, f"bias_{name}"], f"{at}/{name}/biased")

    def _add(self, kind: str, inputs: list[str], name: str, **attributes: Any) -> str:
        return self.node(kind, inputs, f"{name}:0", name, **attributes)
