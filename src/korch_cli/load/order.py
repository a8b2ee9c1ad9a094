"""Nodes in an order in which they can run, in subgraphs too: ONNX Runtime sorts the main graph alone."""

from __future__ import annotations

import onnx

from korch_cli.load.constants import replace_nodes
from korch_cli.load.structure import sorted_nodes, subgraphs


def sort(graph: onnx.GraphProto) -> None:
    """Put the nodes of a graph and of its subgraphs in an order in which they can run.

    Raises:
        ModelError: nodes wait for each other.
    """
    for node in graph.node:
        for inside in subgraphs(node):
            sort(inside)
    replace_nodes(graph, sorted_nodes(graph))
