"""The structure of a graph: what nodes read, in which order they can run, whether every name is defined once."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Set

import onnx

from korch_cli.core.errors import ModelError


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def captured(node: onnx.NodeProto) -> tuple[str, ...]:
    """Return the outer tensors that a node's subgraphs read, at any depth, each once."""
    seen: dict[str, None] = {}
    for graph in subgraphs(node):
        local = given_names(graph) | {name for inner in graph.node for name in inner.output}
        reads = [name for inner in graph.node for name in (*inner.input, *captured(inner))]
        seen.update((name, None) for name in (*reads, *(o.name for o in graph.output)) if name and name not in local)
    return tuple(seen)


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """The tensors that a node needs, those of its subgraphs included; a name may repeat."""
    yield from (name for name in node.input if name)
    yield from captured(node)


def given_names(graph: onnx.GraphProto) -> set[str]:
    """Return the tensors of a graph that no node makes: inputs and initializers."""
    sparse = {tensor.values.name for tensor in graph.sparse_initializer}
    return {i.name for i in graph.input} | {t.name for t in graph.initializer} | sparse


def defined_names(graph: onnx.GraphProto) -> frozenset[str]:
    """Return the tensors that a graph defines, those of its subgraphs aside."""
    return frozenset(given_names(graph) | {name for node in graph.node for name in node.output if name})


def label(node: onnx.NodeProto) -> str:
    """Return what a message calls a node: its type, and its name or else its first output."""
    return f"{node.op_type} {node.name or '-> ' + next(iter(node.output), 'nothing')}"


def sorted_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the nodes in the topological order that is nearest to the file's.

    Raises:
        ModelError: nodes wait for each other; it names one of them.
    """
    writer = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    waits = [{writer[name] for name in reads(node) if name in writer} for node in graph.node]
    readers: list[list[int]] = [[] for _ in waits]
    for i, earlier in enumerate(waits):
        for j in earlier:
            readers[j].append(i)
    open_count = [len(earlier) for earlier in waits]
    ready = [i for i, count in enumerate(open_count) if not count]
    order: list[int] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for reader in readers[i]:
            open_count[reader] -= 1
            if not open_count[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(waits):
        raise _loop_error(graph, waits, set(range(len(waits))) - set(order))
    return [graph.node[i] for i in order]


def check_structure(graph: onnx.GraphProto, outer: Set[str] = frozenset()) -> None:
    """Check a graph and its subgraphs; `outer` holds the names that a subgraph may capture.

    Raises:
        ModelError: a tensor is defined twice, or read and not defined, or nodes form a loop.
    """
    _check_unique([i.name for i in graph.input], "graph input")
    _check_unique([t.name for t in graph.initializer], "initializer")
    defined = dict.fromkeys(given_names(graph), "the graph's inputs and initializers")
    for node in graph.node:
        for name in node.output:
            if name and name in defined:
                where = f"{defined[name]}; {label(node)}"
                raise ModelError(f"tensor {name!r} is defined twice", where=where)
            defined[name] = label(node)
    visible = defined.keys() | outer
    for node in graph.node:
        for name in node.input:
            if name and name not in visible:
                raise ModelError(f"nothing defines the tensor {name!r}, which this node reads", where=label(node))
        for graph_inside in subgraphs(node):
            check_structure(graph_inside, visible)
    for output in graph.output:
        if output.name not in visible:
            raise ModelError(f"nothing defines the graph's output {output.name!r}", where=graph.name or None)
    sorted_nodes(graph)


def _check_unique(names: list[str], kind: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ModelError(f"tensor {name!r} is defined twice", where=kind)
        seen.add(name)


def _loop_error(graph: onnx.GraphProto, waits: list[set[int]], stuck: set[int]) -> ModelError:
    # Every stuck node waits for a stuck one, so that walking back ends in the loop itself.
    i = min(stuck)
    seen: set[int] = set()
    while i not in seen:
        seen.add(i)
        i = min(waits[i] & stuck)
    node = graph.node[i]
    return ModelError(f"the graph has a loop through tensor {node.output[0]!r}", where=label(node))
