"""How large a model is, and what it consists of."""

from __future__ import annotations

import onnx

from korch_cli.core.record import PartRecord


def measure_part(proto: object) -> PartRecord:
    """Return the size of a model (an `onnx.ModelProto`), external data included."""
    assert isinstance(proto, onnx.ModelProto)
    graph = proto.graph
    initialized = {tensor.name for tensor in graph.initializer}
    external = (t for t in graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL)
    lengths = (e.value for tensor in external for e in tensor.external_data if e.key == "length")
    return PartRecord(
        nodes=len(graph.node),
        inputs=sum(info.name not in initialized for info in graph.input),
        outputs=len(graph.output),
        weights=len(graph.initializer) + len(graph.sparse_initializer),
        size_bytes=proto.ByteSize() + sum(int(length) for length in lengths if length.isdecimal()),
    )


def operator_types(proto: object) -> tuple[str, ...]:
    """Return the type of each node of a model's graph, with its domain unless that is ONNX's own."""
    assert isinstance(proto, onnx.ModelProto)
    return tuple(f"{n.domain}::{n.op_type}" if n.domain else n.op_type for n in proto.graph.node)
