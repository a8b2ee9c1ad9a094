"""The output model: vendor kernels as the nodes they were, generated ones as custom nodes with functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import onnx
from onnx import helper, numpy_helper

from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate, CandidateKind, KernelBody
from korch_cli.core.launch import GeneratedKernel
from korch_cli.core.model import Model
from korch_cli.core.plan import Plan
from korch_cli.emit.functions import FUNCTION_IR_VERSION, kernel_function, tensor_info
from korch_cli.emit.writing import Writing, tensors_read

DEFAULT_OPSET = 17
"""Imported where a model has no operator of the default domain, for the functions."""
_FIRST_IR_WITH_DEFAULTS = 4
"""Before this IR version every initializer is a graph input too, and no caller may replace it."""


def build_model(
    model: Model,
    graph: PrimitiveGraph,
    plan: Plan,
    bodies: Mapping[Candidate, KernelBody],
    kernels: Mapping[str, GeneratedKernel],
    domain: str,
) -> onnx.ModelProto:
    """Return the model that runs a plan; equal arguments give equal models.

    Args:
        model: what was optimised; its protobuf is left as it is.
        graph: its primitives, whose values have the names of the model's tensors.
        plan: kernels in order.
        bodies: the generated candidates of the plan, cut out of `graph`.
        kernels: the kernel for each digest of the plan.
        domain: of the custom operators.

    Raises:
        Refusal: a body has no function at the model's opset.
    """
    assert isinstance(model.proto, onnx.ModelProto)
    writing = Writing(model, graph, model.proto)
    used: dict[str, KernelBody] = {}
    opset = model.opsets.get("", DEFAULT_OPSET)
    for priced in plan.kernels:
        candidate = priced.candidate
        if candidate.kind is CandidateKind.VENDOR:
            for operator in candidate.operators:
                writing.original(operator)
            if not candidate.operators:
                writing.primitive(candidate.body[0], opset)
        elif candidate.kind is CandidateKind.GENERATED:
            name = kernels[candidate.digest].name
            used.setdefault(name, bodies[candidate])
            writing.kernel(bodies[candidate], name, domain)
    writing.outputs()
    functions = [kernel_function(body, name, domain, opset) for name, body in sorted(used.items())]
    return _assembled(writing, functions, domain, opset)


def _assembled(writing: Writing, functions: list[onnx.FunctionProto], domain: str, opset: int) -> onnx.ModelProto:
    result = onnx.ModelProto()
    result.CopyFrom(writing.source)
    del result.graph.node[:]
    result.graph.node.extend(writing.nodes)
    _replace_initializers(result, writing)
    _replace_value_info(result.graph, writing)
    standard = any(node.domain in ("", "ai.onnx") for node in result.graph.node) or functions
    if standard and not any(imported.domain in ("", "ai.onnx") for imported in result.opset_import):
        result.opset_import.append(helper.make_opsetid("", opset))
    if not functions:
        return result
    if result.ir_version < _FIRST_IR_WITH_DEFAULTS:
        # From here on an initializer that is an input could be replaced, and would be no constant any more.
        initialized = {tensor.name for tensor in result.graph.initializer}
        _keep(result.graph.input, [info.name not in initialized for info in result.graph.input])
    result.ir_version = max(result.ir_version, FUNCTION_IR_VERSION)
    result.functions.extend(functions)
    result.opset_import.append(helper.make_opsetid(domain, 1))
    return result


def _replace_initializers(result: onnx.ModelProto, writing: Writing) -> None:
    """Keep the initializers that something reads or that a caller may replace; add those that are not in the file."""
    graph = result.graph
    read = dict.fromkeys(name for node in writing.nodes for name in tensors_read(node))
    read |= dict.fromkeys(output.name for output in graph.output)
    old_format = result.ir_version < _FIRST_IR_WITH_DEFAULTS
    inputs = {info.name for info in graph.input}
    dropped = {t.name for t in graph.initializer if t.name not in read and (old_format or t.name not in inputs)}
    _keep(graph.initializer, [tensor.name not in dropped for tensor in graph.initializer])
    _keep(graph.input, [info.name not in dropped for info in graph.input])
    given = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer} | inputs
    constants = writing.constants()
    for name in read:
        if name in given or name in writing.written or name not in constants:
            continue
        tensor = numpy_helper.from_array(constants[name].array(), name)
        graph.initializer.append(tensor)
        if old_format:
            graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, tuple(tensor.dims)))


def _replace_value_info(graph: onnx.GraphProto, writing: Writing) -> None:
    """State the type of everything that a kernel writes, and of nothing else.

    ONNX Runtime takes what a model states for true, and kernels rely on what ONNX Runtime says of their operands. About
    other tensors it says what it infers; where it infers nothing, kernels look at their operands in every run.
    """
    outputs = {output.name for output in graph.output}
    del graph.value_info[:]
    graph.value_info.extend(tensor_info(name, typed) for name, typed in writing.types.items() if name not in outputs)


def _keep(field: Any, wanted: Iterable[bool]) -> None:
    """Remove the elements of a repeated field for which `wanted` is false; the others are not copied."""
    for i, keep in reversed(list(enumerate(wanted))):
        if not keep:
            del field[i]
