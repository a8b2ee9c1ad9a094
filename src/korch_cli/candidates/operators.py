"""Every ONNX operator as a candidate of its own: fission never loses the vendor's kernel."""

from __future__ import annotations

from korch_cli.core.errors import KorchError
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.model import Model, Operator
from korch_cli.core.primitive import Constant


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
