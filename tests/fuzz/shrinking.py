"""From a random model that fails to a small one that still does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import onnx

from korch_cli.core.types import Array
from tests.fuzz.graphs import Network
from tests.fuzz.oracle import Nodewise, NotJudged
from tests.fuzz.running import dtype_of, reads, value_info


def shrink(network: Network, fails: Callable[[Network], bool], seconds: float) -> Network:
    """Return the smallest model that is found within about `seconds` and for which `fails` holds.

    It keeps one set of inputs if one does it, fewer outputs, and fewer nodes: a node goes if its result can be an
    input, or if an operand can be the output instead.
    """
    deadline = time.monotonic() + seconds
    shrunk = True
    while shrunk:
        shrunk = False
        for candidate in _smaller(network):
            if time.monotonic() > deadline:
                return network
            if fails(candidate):
                network, shrunk = candidate, True
                break
    return network


def _smaller(network: Network) -> Iterator[Network]:
    """Yield smaller models, those that lose most first."""
    if len(network.feeds) > 1:
        for kind, feeds in network.feeds.items():
            yield Network(network.model, {kind: feeds})
    try:
        values = {kind: Nodewise(network.model).values(f) for kind, f in network.feeds.items()}
    except NotJudged:
        return
    outputs = [info.name for info in network.model.graph.output]
    if len(outputs) > 1:
        yield from (_with(network, [name], set(), values) for name in outputs)
        yield from (_with(network, [n for n in outputs if n != name], set(), values) for name in outputs)
    computed = {name: node for node in network.model.graph.node for name in node.output}
    if len(outputs) == 1 and outputs[0] in computed:
        operands = [name for name in reads(computed[outputs[0]]) if name in computed]
        yield from (_with(network, [name], set(), values) for name in operands)
    for name, node in computed.items():
        if name not in outputs and node.op_type != "Constant":
            yield _with(network, outputs, {name}, values)


def _with(network: Network, outputs: list[str], cut: set[str], values: Mapping[str, Mapping[str, Array]]) -> Network:
    """Return the model with these outputs, where the tensors `cut` are given instead of computed."""
    model = onnx.ModelProto()
    model.CopyFrom(network.model)
    graph = model.graph
    stated = {info.name: info for info in network.model.graph.output}
    needed = set(outputs)
    kept: list[onnx.NodeProto] = []
    for node in reversed(network.model.graph.node):
        if needed & set(node.output) - cut:
            needed.update(reads(node))
            kept.append(node)
    some = next(iter(values.values()))
    known = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    inputs = [info for info in graph.input if info.name in needed]
    inputs += [value_info(name, some[name]) for name in sorted(cut & needed - known)]
    initializers = [tensor for tensor in graph.initializer if tensor.name in needed]
    fixed = {tensor.name for tensor in initializers}
    for part in (graph.node, graph.output, graph.input, graph.initializer):
        del part[:]
    graph.node.extend(reversed(kept))
    graph.input.extend(inputs)
    graph.initializer.extend(initializers)
    for name in outputs:
        graph.output.append(stated.get(name, onnx.ValueInfoProto(name=name)))
        graph.output[-1].type.tensor_type.elem_type = dtype_of(some[name]).onnx
    fed = [info.name for info in inputs if info.name not in fixed]
    return Network(model, {kind: {n: found[n] for n in fed} for kind, found in values.items()})
