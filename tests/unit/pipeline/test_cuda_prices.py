"""What ONNX Runtime's own kernels are estimated to take on a GPU: traffic and arithmetic, counted one by one."""

from __future__ import annotations

from itertools import product

import pytest

from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.text import parse_graph
from korch_cli.measure.cuda import Roofline, Work, named_gpu
from korch_cli.pipeline.cuda.prices import vendor_us

GPU = Roofline(named_gpu("A100-40GB"))
PADDING = '"output_padding":[0,0],'
ATTRIBUTES = '{{"after":[1,1],"before":[1,1],"dilations":[1,1],"group":{group},{more}"strides":[{stride},{stride}]}}'


def price(graph: PrimitiveGraph) -> float:
    """Of everything in a graph as one kernel."""
    body = tuple(value.id for value in graph.primitives())
    reads = tuple(Port(value.id) for value in graph.inputs())
    return vendor_us(graph, Candidate(CandidateKind.VENDOR, body, reads, tuple(map(Port, graph.outputs)), "d"), GPU)


def of(*lines: str) -> PrimitiveGraph:
    return parse_graph("\n".join(lines))


def test_operands_weights_and_results_count_once_and_literals_not_at_all() -> None:
    graph = of(
        '%0 "x" f32[1000,64] = input',
        '%1 "w" f32[64] = const',
        '%2 "c" f32[] = literal 2.0',
        '%3 "a" f32[1000,64] = elementwise mul (%0, %1) @0',
        '%4 "y" f32[1000,64] = elementwise add (%3, %2) @0',
        "outputs (%4)",
    )
    assert price(graph) == pytest.approx(GPU.work_us(Work(4 * (64_000 + 64 + 64_000), flops=128_000)))


@pytest.mark.parametrize(("dtype", "size"), [("f32", 4), ("f16", 2)])
def test_a_product_counts_two_operations_for_each_pair(dtype: str, size: int) -> None:
    graph = of(
        f'%0 "a" {dtype}[8,512,384] = input',
        f'%1 "b" {dtype}[384,640] = input',
        f'%2 "c" {dtype}[8,512,640] = linear matmul attributes={{}} (%0, %1) @0',
        "outputs (%2)",
    )
    pairs = 8 * 512 * 640 * 384
    moved = size * (8 * 512 * 384 + 384 * 640 + 8 * 512 * 640)
    assert price(graph) == pytest.approx(GPU.work_us(Work(moved, product_flops=2.0 * pairs, half=size == 2)))


@pytest.mark.parametrize("group", [1, 2, 4])
def test_a_convolution_and_a_transposed_one_count_what_they_multiply(group: int) -> None:
    inputs, outputs, extent = 4, 8, 9
    # Without padding's zeros left out, as libraries compute them too: every window position counts.
    forward = sum(1 for _ in product(range(outputs), range(inputs // group), range(extent * extent), range(9)))
    conv = of(
        f'%0 "x" f32[1,{inputs},{extent},{extent}] = input',
        f'%1 "w" f32[{outputs},{inputs // group},3,3] = const',
        f'%2 "y" f32[1,{outputs},{extent},{extent}] = linear conv '
        f"attributes={ATTRIBUTES.format(group=group, more='', stride=1)} (%0, %1) @0",
        "outputs (%2)",
    )
    moved = 4 * (inputs * 81 + outputs * inputs // group * 9 + outputs * 81)
    assert price(conv) == pytest.approx(GPU.work_us(Work(moved, product_flops=2.0 * forward)))
    wide = 2 * extent - 1
    backward = sum(1 for _ in product(range(inputs), range(outputs // group), range(extent * extent), range(9)))
    transposed = of(
        f'%0 "x" f32[1,{inputs},{extent},{extent}] = input',
        f'%1 "w" f32[{inputs},{outputs // group},3,3] = const',
        f'%2 "y" f32[1,{outputs},{wide},{wide}] = linear conv_transpose '
        f"attributes={ATTRIBUTES.format(group=group, more=PADDING, stride=2)} (%0, %1) @0",
        "outputs (%2)",
    )
    moved = 4 * (inputs * 81 + inputs * outputs // group * 9 + outputs * wide * wide)
    assert price(transposed) == pytest.approx(GPU.work_us(Work(moved, product_flops=2.0 * backward)))


def test_a_reshape_is_free_and_a_transpose_is_not() -> None:
    reshape = of('%0 "x" f32[8,16] = input', '%1 "y" f32[128] = reshape (%0) @0', "outputs (%1)")
    assert price(reshape) == 0.0
    moved = of('%0 "x" f32[8,16] = input', '%1 "y" f32[16,8] = transpose perm=[1,0] (%0) @0', "outputs (%1)")
    assert price(moved) == pytest.approx(GPU.work_us(Work(2 * 4 * 128)))
