"""Generates CUDA kernels, runs them on the CPU, and compares them with the primitives' meaning in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from korch_cli.codegen import generate_cuda
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.interpreter import evaluate
from korch_cli.core.kernel import KernelBody
from korch_cli.core.launch import CudaKernel
from korch_cli.core.types import Array, DType
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
        reference = reference_of(graph)
        for order in orders:
            compare_with(reference, kernel, library, order)
    return [kernel for _, kernel in kernels]


@dataclass(frozen=True, slots=True)
class Reference:
    """A body on random operands.

    Attributes:
        graph: the body.
        operands: of its inputs, in order.
        expected: what the primitives make of them, in float64.
    """

    graph: PrimitiveGraph
    operands: tuple[Array, ...]
    expected: tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How near results came to a reference.

    Attributes:
        elements: that were compared.
        worst: the largest error, as a share of what is allowed there.
    """

    elements: int
    worst: float


def reference_of(graph: PrimitiveGraph) -> Reference:
    """Draw operands for a body and compute its results by the primitives' meaning."""
    rng = np.random.default_rng(0)
    feeds = {value.id: draw_operand(value.type, rng) for value in graph.inputs()}
    # Sixteen bits are rounded after each primitive, which is no error of a kernel.
    narrow = any(value.type.dtype in (DType.F16, DType.BF16) for value in graph.values)
    found = evaluate(graph, feeds, widen=not narrow)
    expected = (np.asarray(found[v], np.float64).reshape(graph.values[v].type.shape) for v in graph.outputs)
    return Reference(graph, tuple(feeds.values()), tuple(expected))


def compare(graph: PrimitiveGraph, kernel: CudaKernel, library: Path, order: str = "forward") -> Agreement:
    """Run a kernel of `graph` on random operands and compare its results with the reference."""
    return compare_with(reference_of(graph), kernel, library, order)


def compare_with(reference: Reference, kernel: CudaKernel, library: Path, order: str = "forward") -> Agreement:
    """Run a kernel of the reference's body, and compare.

    Raises:
        AssertionError: the kernel computes something else.
        FaultError: a sanitizer complains.
    """
    types = [reference.graph.values[v].type for v in reference.graph.outputs]
    results = execute(library, kernel, reference.operands, types, order)
    elements, worst = 0, 0.0
    for typed, result, want in zip(types, results, reference.expected, strict=True):
        got = result.astype(np.float64)
        scale = max(1.0, float(np.abs(want[np.isfinite(want)]).max(initial=0.0)))
        epsilon = EPSILONS.get(typed.dtype, 0.0)
        atol = epsilon / 10 * scale
        np.testing.assert_allclose(got, want, rtol=epsilon, atol=atol, err_msg=f"{order}\n{kernel.source}")
        elements += got.size
        finite = np.isfinite(want)
        error, allowed = np.abs(got[finite] - want[finite]), atol + epsilon * np.abs(want[finite])
        worst = max(worst, float(np.divide(error, allowed, where=allowed > 0, out=error).max(initial=0.0)))
    return Agreement(elements, worst)
