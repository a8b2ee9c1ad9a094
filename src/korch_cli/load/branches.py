"""If on a condition that is known before the model runs: the branch takes its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set

import onnx

from korch_cli.core.types import Array
from korch_cli.load.constants import is_default_domain, replace_nodes
from korch_cli.load.rename import renamed
from korch_cli.load.structure import defined_names, given_names, subgraphs


def take_branches(
    graph: onnx.GraphProto,
    outer: Set[str],
    value: Callable[[str], Array | None],
    add: Callable[[onnx.TensorProto], object],
) -> int:
    """Replace every If on a known condition by the nodes of the branch that is taken; return how many there were.

    A branch that gives a tensor a name which is in use outside stays: runtimes do not agree on what that means.

    Args:
        graph: where to look, not in its subgraphs; its nodes stay in an order in which they can run.
        outer: the tensors that the graph may capture.
        value: gives the elements of a tensor that is known before the model runs, None for any other.
        add: adds an initializer to the graph.
    """
    count = 0
    nodes: list[onnx.NodeProto] = []
    taken: set[str] | None = None
    visible = outer | defined_names(graph)
    for node in graph.node:
        branch = _branch(node, value)
        if branch is None or defined_names(branch) & visible:
            nodes.append(node)
            continue
        count += 1
        taken = set(_names(graph)) if taken is None else taken
        nodes += _inlined(node, branch, taken, add)
    if count:
        replace_nodes(graph, nodes)
    return count


def _branch(node: onnx.NodeProto, value: Callable[[str], Array | None]) -> onnx.GraphProto | None:
    condition = value(node.input[0]) if node.op_type == "If" and is_default_domain(node.domain) else None
    if condition is None or condition.size != 1:
        return None
    wanted = "then_branch" if condition.reshape(()) else "else_branch"
    branch: onnx.GraphProto | None = next(
        (attribute.g for attribute in node.attribute if attribute.name == wanted), None
    )
    if branch is None or branch.input or branch.sparse_initializer or len(branch.output) < len(node.output):
        return None
    return branch


def _inlined(
    node: onnx.NodeProto, branch: onnx.GraphProto, taken: set[str], add: Callable[[onnx.TensorProto], object]
) -> Iterator[onnx.NodeProto]:
    made = {name for inner in branch.node for name in inner.output if name}
    names: dict[str, str] = {}
    copies: list[tuple[str, str]] = []
    for result, given in zip(node.output, branch.output, strict=False):
        if given.name in made and given.name not in names and result:
            names[given.name] = result
        elif result:
            copies.append((given.name, result))
    stem = node.name or node.output[0]
    for name in sorted((given_names(branch) | made) - names.keys()):
        names[name] = _unused(f"{stem}/{name}", taken)
    for tensor in branch.initializer:
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        copy.name = names[tensor.name]
        add(copy)
    for inner in branch.node:
        copy_of = renamed(inner, names)
        copy_of.name = f"{stem}/{inner.name}" if inner.name else ""
        yield copy_of
    for name, result in copies:
        yield onnx.helper.make_node("Identity", [names.get(name, name)], [result])


def _unused(name: str, taken: set[str]) -> str:
    wanted, count = name, 0
    while wanted in taken:
        count += 1
        wanted = f"{name}/{count}"
    taken.add(wanted)
    return wanted


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    """Every tensor that a graph or its subgraphs define."""
    yield from given_names(graph)
    for node in graph.node:
        yield from node.output
        for inner in subgraphs(node):
            yield from _names(inner)
