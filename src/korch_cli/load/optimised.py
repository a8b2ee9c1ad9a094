"""The graph that ONNX Runtime made of a model, with the times that its profiler gave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx

from korch_cli.core.machine import VendorNode, VendorProfile
from korch_cli.load.constants import is_default_domain


def vendor_profile(path: Path, times_us: Mapping[str, float], total_us: float) -> VendorProfile:
    """Return the nodes of a model that ONNX Runtime saved, in order; a node's time includes that of its subgraphs.

    Args:
        path: what ONNX Runtime wrote to its `optimized_model_filepath`.
        times_us: microseconds by node name; nodes that are absent took none.
        total_us: time of a run without the profiler: the nodes' times are scaled so that they add up to it.
    """
    proto = onnx.load_model(str(path), load_external_data=False)
    measured_us = sum(times_us.get(node.name, 0.0) for node in proto.graph.node)
    scale = total_us / measured_us if measured_us > 0 else 0.0
    nodes = tuple(
        VendorNode(
            name=node.name,
            op_type=node.op_type,
            domain="" if is_default_domain(node.domain) else node.domain,
            inputs=tuple(node.input),
            outputs=tuple(node.output),
            time_us=times_us.get(node.name, 0.0) * scale,
        )
        for node in proto.graph.node
    )
    return VendorProfile(nodes, total_us)


def name_nodes(path: Path) -> Path | None:
    """Write a copy in which every node has a name of its own, for the profiler; return None where all have one.

    ONNX Runtime replaces an operator that it has no kernel for, such as Mish, by the operators of its definition,
    which have no names.
    """
    proto = onnx.load_model(str(path), load_external_data=False)
    nodes = list(_nodes(proto.graph))
    taken = {node.name for node in nodes}
    if len(taken) == len(nodes) and "" not in taken:
        return None
    seen: set[str] = set()
    for i, node in enumerate(nodes):
        if not node.name or node.name in seen:
            node.name = next(name for n in range(len(nodes) + 1) if (name := f"?{i}.{n}") not in taken)
        seen.add(node.name)
    named = path.with_name(f"named-{path.name}")
    onnx.save_model(proto, str(named))
    return named


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """All nodes of a graph and of the subgraphs in it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _nodes(body)
