"""What ONNX Runtime's own kernels would cost on a GPU, by the same roofline as generated ones.

ONNX Runtime's graph for CUDA can be seen only where there is a GPU. What it makes of a model for any processor, without
the layouts of CPUs, is close to it, and says which operators it runs as one kernel. Each such kernel is taken to use
the whole GPU, to read its operands once and to write its results once: kinder than what is assumed of ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from korch_cli.candidates import vendor_candidates
from korch_cli.core.elementwise import FUNCTIONS
from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.kernel import Candidate, CandidateKind
from korch_cli.core.machine import VendorProfile
from korch_cli.core.plan import Priced
from korch_cli.core.primitive import Constant, Elementwise, Linear, Reduce, Reshape, WindowReduce
from korch_cli.core.types import DType
from korch_cli.load import vendor_profile
from korch_cli.measure import rewritten_model
from korch_cli.measure.cuda import Roofline, Work
from korch_cli.pipeline.prepare import Runnable
from korch_cli.pipeline.ways import Ways, cheapest

_VIEW_US = 0.0
"""A reshape is a second name for the same memory."""


def estimated_ways(
    ways: Ways, runnables: Mapping[str, Runnable], roofline: Roofline, folder: Path
) -> tuple[Priced, ...]:
    """Return ONNX Runtime's kernels for all ways to write a model, each once, with estimated prices.

    Args:
        ways: of writing the model.
        runnables: the model of each way as a file, by the way's name.
        roofline: of the GPU.
        folder: for temporary files.

    Raises:
        ModelError: ONNX Runtime does not load the model.
    """
    found: list[Priced] = []
    for at, way in enumerate(ways.members):
        seen = vendor_profile(rewritten_model(runnables[way.name].path, folder), {}, 0.0)
        for priced in vendor_candidates(way.model, way.graph, seen, VendorProfile((), 0.0)):
            price_us = vendor_us(way.graph, priced.candidate, roofline)
            found.append(Priced(ways.common(at, priced.candidate), price_us))
    return cheapest(found)


def vendor_us(graph: PrimitiveGraph, candidate: Candidate, roofline: Roofline) -> float:
    """Return the estimated time of a kernel of ONNX Runtime in microseconds."""
    assert candidate.kind is CandidateKind.VENDOR, "what is for any processor converts no layouts"
    values = [graph.values[v] for v in candidate.body]
    if values and all(isinstance(value.op, Reshape) for value in values):
        return _VIEW_US
    return roofline.work_us(_work(graph, candidate, values))


def _work(graph: PrimitiveGraph, candidate: Candidate, values: list[Value]) -> Work:
    read = {port.value for port in candidate.reads}
    # Weights are read like any other operand; a literal is a part of the code.
    read |= {a for value in values for a in value.args if _is_weight(graph.values[a])}
    moved = sum(graph.values[v].type.size_bytes for v in (*read, *(port.value for port in candidate.writes)))
    products = [value for value in values if isinstance(value.op, Linear)]
    return Work(
        bytes_moved=moved,
        flops=sum(_flops(graph, value) for value in values),
        product_flops=sum(_product_flops(graph, value) for value in products),
        half=all(value.type.dtype in (DType.F16, DType.BF16) for value in products),
    )


def _is_weight(value: Value) -> bool:
    return isinstance(value.op, Constant) and value.type.elements > 1


def _flops(graph: PrimitiveGraph, value: Value) -> float:
    match value.op:
        case Elementwise(function):
            return float(value.type.elements * FUNCTIONS[function].flops)
        case Reduce():
            return float(graph.values[value.args[0]].type.elements)
        case WindowReduce(window=window):
            return float(value.type.elements * math.prod(window))
    return 0.0


def _product_flops(graph: PrimitiveGraph, value: Value) -> float:
    """Two operations for each element of the result and each product that it sums."""
    assert isinstance(value.op, Linear)
    first, second = (graph.values[a].type for a in value.args[:2])
    if value.op.kind == "matmul":
        return 2.0 * value.type.elements * first.shape[-1]
    if value.op.kind == "conv":
        # The weights are M x C/group x kernel: what one element of the result sums is the last of these.
        return 2.0 * value.type.elements * math.prod(second.shape[1:])
    # A transposed convolution's weights are C x M/group x kernel, and each element of the operand meets all but C.
    return 2.0 * first.elements * math.prod(second.shape[1:])
