"""What a model file holds, before anything is done with it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx

from korch_cli.core.inspection import ExternalFile, FileRecord
from korch_cli.core.kernel import DOMAIN_PREFIX
from korch_cli.load.constants import is_default_domain
from korch_cli.load.read import read_model
from korch_cli.load.tensor import all_tensors, external_entries, tensor_bytes


def describe_file(path: Path) -> FileRecord:
    """Return what is in a model file; data in other files is not read.

    Raises:
        UsageError: there is no such file, or it cannot be opened.
        ModelError: as `read_model`.
    """
    proto = read_model(path)
    tensors = [tensor for tensor, _ in all_tensors(proto.graph)]
    sizes = [_stored_bytes(tensor) for tensor in tensors]
    external: dict[str, list[int]] = {}
    for tensor, size in zip(tensors, sizes, strict=True):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            external.setdefault(external_entries(tensor).get("location", ""), []).append(size)
    kernels: dict[str, Counter[str]] = {}
    for node in proto.graph.node:
        if node.domain.startswith(DOMAIN_PREFIX):
            kernels.setdefault(node.domain, Counter())[node.op_type] += 1
    return FileRecord(
        producer=f"{proto.producer_name} {proto.producer_version}".strip(),
        ir_version=proto.ir_version,
        opsets={"ai.onnx" if is_default_domain(o.domain) else o.domain: o.version for o in proto.opset_import},
        nodes=len(proto.graph.node),
        functions=len(proto.functions),
        tensors=len(tensors),
        size_bytes=sum(sizes),
        external=tuple(ExternalFile(name, len(found), sum(found)) for name, found in sorted(external.items())),
        kernels={domain: dict(found) for domain, found in sorted(kernels.items())},
    )


def _stored_bytes(tensor: onnx.TensorProto) -> int:
    """Return the size of a tensor's elements; of a type that korch does not know, what the file says it takes."""
    known = tensor_bytes(tensor)
    if known is not None:
        return known
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        length = external_entries(tensor).get("length", "")
        return int(length) if length.isdecimal() else 0
    return len(tensor.raw_data) or tensor.ByteSize()
