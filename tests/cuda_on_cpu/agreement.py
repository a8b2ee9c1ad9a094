"""Generates CUDA kernels, runs them on the CPU, and compares them with the primitives' meaning in float64."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from korch_cli.codegen import generate_cuda
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.interpreter import evaluate
from korch_cli.core.kernel import KernelBody
from korch_cli.core.launch import CudaKernel
from korch_cli.core.types import DType
from tests.cuda_on_cpu.execution import Sanitizer, build, execute
from tests.unit.codegen.drawing import EPSILONS, draw_operand

ORDERS = ("forward", "reverse", "random:1", "warp:2")


def body_of(graph: PrimitiveGraph) -> KernelBody:
    """Return a whole graph as a body."""
    return KernelBody("digest", graph, tuple(value.id for value in graph.inputs()), graph.outputs)


def check_cuda(
    graphs: Sequence[PrimitiveGraph],
    folder: Path,
    sanitizer: Sanitizer = Sanitizer.ADDRESS,
    orders: Sequence[str] = ("forward", "random:1"),
) -> list[CudaKernel]:
    """Generate every kernel of `graphs`, run each one under `sanitizer` in `orders`, and compare; return the kernels.

    Raises:
        AssertionError: a kernel computes something else.
        FaultError: a sanitizer complains.
    """
    kernels = [(graph, kernel) for graph in graphs for kernel in generate_cuda(body_of(graph))]
    library = build([kernel for _, kernel in kernels], folder, sanitizer)
    for graph, kernel in kernels:
        for order in orders:
            compare(graph, kernel, library, order)
    return [kernel for _, kernel in kernels]


def compare(graph: PrimitiveGraph, kernel: CudaKernel, library: Path, order: str = "forward") -> None:
    """Run a kernel of `graph` on random operands and compare its results with the reference."""
    rng = np.random.default_rng(0)
    feeds = {value.id: draw_operand(value.type, rng) for value in graph.inputs()}
    # Sixteen bits are rounded after each primitive, which is no error of a kernel.
    narrow = any(value.type.dtype in (DType.F16, DType.BF16) for value in graph.values)
    expected = evaluate(graph, feeds, widen=not narrow)
    types = [graph.values[v].type for v in graph.outputs]
    results = execute(library, kernel, list(feeds.values()), types, order)
    for v, typed, result in zip(graph.outputs, types, results, strict=True):
        want = np.asarray(expected[v], np.float64).reshape(typed.shape)
        scale = max(1.0, float(np.abs(want[np.isfinite(want)]).max(initial=0.0)))
        epsilon = EPSILONS.get(typed.dtype, 0.0)
        np.testing.assert_allclose(
            result.astype(np.float64),
            want,
            rtol=epsilon,
            atol=epsilon / 10 * scale,
            err_msg=f"{order}\n{kernel.source}",
        )
