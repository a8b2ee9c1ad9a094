"""Every ONNX operator as a candidate of its own: fission never loses the vendor's kernel. So is each product in one."""

from __future__ import annotations

from korch_cli.core.errors import KorchError
from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.model import Model, Operator
from korch_cli.core.primitive import Constant, Linear, Reshape
from korch_cli.core.types import DType


def single_operators(model: Model, graph: PrimitiveGraph) -> tuple[Candidate, ...]:
    """Return each operator as a whole, run by ONNX Runtime.

    An operator reads its inputs and what its subgraphs capture, constants and omitted inputs aside, and writes those
    of its outputs that are values to compute. One that writes nothing (its outputs are constants, another tensor
    under a second name, or unused) needs no kernel and is left out.

    Raises:
        KorchError: an operator reads a tensor that the graph does not have.
    """
    ids = {value.name: value.id for value in graph.values}
    candidates = []
    for operator in model.operators:
        reads = _reads(operator, model, graph, ids)
        outputs = graph.operator_outputs.get(operator.index, ())
        ids.update((name, v) for name, v in zip(operator.outputs, outputs, strict=False) if name and v >= 0)
        writes = {ids[name]: None for name in operator.outputs if name in ids}
        kept = tuple(Port(v) for v in writes if not graph.values[v].is_source and Port(v) not in reads)
        if kept:
            body = graph.by_operator.get(operator.index, ())
            digest = f"vendor:{operator.index}"
            candidates.append(Candidate(CandidateKind.VENDOR, body, reads, kept, digest, (operator.index,)))
    return tuple(candidates)


_PRODUCTS = {
    "matmul": (DType.F16, DType.F32, DType.F64, DType.I32, DType.I64, DType.U32, DType.U64),
    "conv": (DType.F16, DType.F32),
    "conv_transpose": (DType.F16, DType.F32),
}
"""The element types that ONNX Runtime computes each kind of product of; it converts float16 where it has no kernel."""


def single_nodes(graph: PrimitiveGraph) -> tuple[Candidate, ...]:
    """Return each product or reshape that is only a part of its operator, run by ONNX Runtime as a node of its own."""
    candidates = []
    for value in graph.primitives():
        is_used = bool(graph.users[value.id]) or value.id in graph.outputs
        if is_used and graph.by_operator[value.operator] != (value.id,) and _is_node(value):
            read = dict.fromkeys(Port(a) for a in value.args if not isinstance(graph.values[a].op, Constant))
            body, digest = (value.id,), f"node:{value.id}"
            candidates.append(Candidate(CandidateKind.VENDOR, body, tuple(read), (Port(value.id),), digest))
    return tuple(candidates)


def _is_node(value: Value) -> bool:
    if isinstance(value.op, Linear):
        return value.type.dtype in _PRODUCTS[value.op.kind]
    return isinstance(value.op, Reshape)


def _reads(operator: Operator, model: Model, graph: PrimitiveGraph, ids: dict[str, int]) -> tuple[Port, ...]:
    reads: dict[Port, None] = {}
    for name in (*operator.inputs, *operator.captures):
        if not name or name in model.constants:
            continue
        v = ids.get(name)
        if v is None:
            raise KorchError(f"operator {operator.name} reads {name}, which is no value of the graph", where=name)
        if not isinstance(graph.values[v].op, Constant):
            reads[Port(v)] = None
    return tuple(reads)
