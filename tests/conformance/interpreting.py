"""The check without a compiler: a model's primitive graph, computed in numpy, answers what the model answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.interpreter import evaluate
from korch_cli.core.model import Model
from korch_cli.core.primitive import Constant, Input, Opaque
from korch_cli.core.types import UNKNOWN, Array
from tests.conformance.running import Session

_ABSENT: Array = np.array("", object)
"""Stands for what has no static type; primitives do not touch it."""


def interpret(model: Model, graph: PrimitiveGraph, feeds: Mapping[str, Any]) -> list[Any]:
    """Return the model's outputs; what opaque operators answer comes from ONNX Runtime."""
    opaque = {value.name: value for value in graph.values if isinstance(value.op, Opaque)}
    unknown = {value.id for value in graph.values if value.type is UNKNOWN}
    feeds = {**_defaults(model), **feeds}
    answered = _answers(model, list(opaque), feeds)
    given: dict[int, Array] = {}
    for value in graph.values:
        if value.id in unknown and not isinstance(value.op, Constant):
            given[value.id] = _ABSENT
        elif isinstance(value.op, Input):
            given[value.id] = feeds[value.name]
        elif value.name in opaque:
            given[value.id] = answered[value.name]
    found = evaluate(graph, given)
    results: list[Any] = []
    for name, v in zip(model.outputs, graph.outputs, strict=True):
        value = graph.values[v]
        results.append(answered.get(value.name, feeds.get(name)) if v in unknown else found[v])
    return results


def _defaults(model: Model) -> dict[str, Any]:
    """Return the values of the inputs that need not be fed."""
    assert isinstance(model.proto, onnx.ModelProto)
    inputs = {info.name for info in model.proto.graph.input} - model.constants.keys()
    return {t.name: numpy_helper.to_array(t) for t in model.proto.graph.initializer if t.name in inputs}


def _answers(model: Model, names: list[str], feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ONNX Runtime computes for these tensors of the loaded model."""
    if not names:
        return {}
    assert isinstance(model.proto, onnx.ModelProto)
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    del proto.graph.output[:]
    stated = {info.name: info for info in (*model.proto.graph.value_info, *model.proto.graph.output)}
    proto.graph.output.extend(stated.get(name) or onnx.ValueInfoProto(name=name) for name in names)
    return dict(zip(names, Session(proto.SerializeToString()).run(feeds), strict=True))
