"""Models in which some tensors are fed that were computed."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from korch_cli.core.types import TensorType
from korch_cli.emit.functions import tensor_info


def with_given(proto: object, tensors: Mapping[str, TensorType]) -> onnx.ModelProto:
    """Return a copy of a model with `tensors` as further inputs, and without the nodes that compute them.

    What random operators draw is given, so that two models can be compared.
    """
    assert isinstance(proto, onnx.ModelProto)
    result = onnx.ModelProto()
    result.CopyFrom(proto)
    graph = result.graph
    for i in reversed(range(len(graph.node))):
        if tensors.keys() & set(graph.node[i].output):
            del graph.node[i]
    graph.input.extend(tensor_info(name, typed) for name, typed in tensors.items())
    return result
