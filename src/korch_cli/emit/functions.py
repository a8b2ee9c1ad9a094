"""Model-local functions: what a custom operator computes, for whoever runs the model without its library."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
from onnx import helper

from korch_cli.core.errors import Refusal
from korch_cli.core.kernel import KernelBody
from korch_cli.core.types import DType, TensorType
from korch_cli.emit.clamps import find_clamps
from korch_cli.emit.primitives import OLDEST_OPSET, FunctionBody

FUNCTION_IR_VERSION = 8
"""The first IR version with model-local functions."""
_SHORT_FLOATS = 13
"""The opset from which operators take bf16."""


def kernel_function(body: KernelBody, name: str, domain: str, opset: int) -> onnx.FunctionProto:
    """Return a function that computes a body with standard operators.

    Its inputs and outputs are in the order of the kernel's. It depends on the arguments alone, so that every
    place that shares a kernel shares its function.

    Raises:
        Refusal: standard operators of this opset cannot say it.
    """
    if opset < OLDEST_OPSET:
        raise Refusal(f"Opset {opset} is older than {OLDEST_OPSET}, the oldest that functions are written for.")
    graph = body.graph
    if opset < _SHORT_FLOATS and any(value.type.dtype is DType.BF16 for value in graph.values):
        raise Refusal(f"Opset {opset} has no bf16.")
    names = {value.id: f"in{i}" for i, value in enumerate(graph.inputs())}
    names.update((value.id, f"v{value.id}") for value in graph.primitives())
    content = FunctionBody(graph, opset, names)
    clamps = find_clamps(graph)
    inside = {clamp.inner for clamp in clamps.values()}
    for value in graph.primitives():
        if value.id in clamps:
            content.clamp(value, clamps[value.id])
        elif value.id not in inside:
            content.add(value)
    return helper.make_function(
        domain,
        name,
        [names[value.id] for value in graph.inputs()],
        [names[v] for v in graph.outputs],
        content.nodes,
        [helper.make_opsetid("", opset)],
    )


def can_be_function(body: KernelBody, opset: int) -> str | None:
    """Return why a body has no function at this opset, or None."""
    try:
        kernel_function(body, "f", "d", opset)
    except Refusal as refusal:
        return refusal.sentence
    return None


def tensor_info(name: str, typed: TensorType) -> onnx.ValueInfoProto:
    """Return a tensor's name and static type."""
    return helper.make_tensor_value_info(name, typed.dtype.onnx, typed.shape)


def probe_model(
    body: KernelBody, kernel_name: str, domain: str, *, opset: int, replicas: int
) -> tuple[onnx.ModelProto, tuple[tuple[str, TensorType], ...]]:
    """Return a model that runs a kernel `replicas` times, and the names and types of its inputs.

    Each replica has operands and results of its own, or ONNX Runtime would merge them. Without the kernel's library the
    model is what the kernel is checked and timed against.

    Raises:
        Refusal: standard operators of this opset cannot say it.
    """
    graph = body.graph
    inputs: list[tuple[str, TensorType]] = []
    outputs: list[onnx.ValueInfoProto] = []
    nodes = []
    for r in range(replicas):
        read = [(f"in{i}_{r}", value.type) for i, value in enumerate(graph.inputs())]
        written = [(f"out{i}_{r}", graph.values[v].type) for i, v in enumerate(graph.outputs)]
        nodes.append(
            helper.make_node(
                kernel_name, [n for n, _ in read], [n for n, _ in written], name=f"replica{r}", domain=domain
            )
        )
        inputs += read
        outputs += [tensor_info(name, typed) for name, typed in written]
    proto = assembled_model(
        helper.make_graph(nodes, "probe", [tensor_info(*i) for i in inputs], outputs),
        [kernel_function(body, kernel_name, domain, opset)],
        [helper.make_opsetid("", opset), helper.make_opsetid(domain, 1)],
    )
    return proto, tuple(inputs)


def empty_model() -> onnx.ModelProto:
    """Return a model that does nothing: its time is what every run of any model takes."""
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "empty", [x], [y])
    return assembled_model(graph, [], [helper.make_opsetid("", OLDEST_OPSET)])


def assembled_model(
    graph: onnx.GraphProto, functions: Iterable[onnx.FunctionProto], opsets: Iterable[onnx.OperatorSetIdProto]
) -> onnx.ModelProto:
    """Return a model of the oldest IR version that has functions."""
    return helper.make_model(
        graph,
        functions=list(functions),
        opset_imports=list(opsets),
        ir_version=FUNCTION_IR_VERSION,
        producer_name="korch",
    )
