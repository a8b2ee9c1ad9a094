"""CUDA kernels of every schedule and type, at odd sizes, run on the CPU under AddressSanitizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from korch_cli.codegen import cuda_headers, generate_cuda
from korch_cli.codegen.cuda import splitting
from korch_cli.core.errors import Refusal
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.launch import CudaKernel
from tests.cuda_on_cpu.agreement import ORDERS, body_of, check_cuda
from tests.unit.codegen.body_graphs import graph, softmax

FLOATS = ("f32", "f16", "bf16", "f64")
INTEGERS = ("i8", "u16", "i32", "u64", "bool")
PRIMES = (1, 2, 7, 37, 131)

Check = Callable[[Sequence[PrimitiveGraph]], list[CudaKernel]]


@pytest.fixture
def check(cuda_builds: Path) -> Check:
    return lambda graphs: check_cuda(graphs, cuda_builds)


def pointwise(dtype: str, shape: str, scale: str) -> PrimitiveGraph:
    function = "xor" if dtype == "bool" else "sub"
    return graph(
        f'%0 "x" {dtype}[{shape}] = input',
        f'%1 "s" {dtype}[{scale}] = input',
        f'%2 "y" {dtype}[{shape}] = elementwise {function} (%0, %1) @0',
        f'%3 "z" {dtype}[{shape}] = elementwise max (%2, %0) @0',
        "outputs (%3, %2)",
    )


def transpose(dtype: str, shape: str, result: str, perm: str) -> PrimitiveGraph:
    return graph(
        f'%0 "x" {dtype}[{shape}] = input',
        f'%1 "y" {dtype}[{result}] = input',
        f'%2 "t" {dtype}[{result}] = transpose perm=[{perm}] (%0) @0',
        f'%3 "z" {dtype}[{result}] = elementwise max (%2, %1) @0',
        "outputs (%3)",
    )


def reduction(dtype: str, functions: Sequence[str], shape: str, axes: str, reduced: str) -> PrimitiveGraph:
    lines = [f'%0 "x" {dtype}[{shape}] = input']
    lines += [f'%{i} "y{i}" {dtype}[{reduced}] = reduce {f} axes=[{axes}] (%0) @0' for i, f in enumerate(functions, 1)]
    return graph(*lines, f"outputs ({', '.join(f'%{i + 1}' for i in range(len(functions)))})")


def normalization(dtype: str, shape: str, axes: str, reduced: str, scale: str) -> PrimitiveGraph:
    return graph(
        f'%0 "x" {dtype}[{shape}] = input',
        f'%1 "r" {dtype}[{shape}] = input',
        f'%2 "w" {dtype}[{scale}] = input',
        f'%3 "e" {dtype}[] = literal 0.5',
        f'%4 "sum" {dtype}[{shape}] = elementwise add (%0, %1) @0',
        f'%5 "m" {dtype}[{reduced}] = reduce mean axes=[{axes}] (%4) @1',
        f'%6 "d" {dtype}[{shape}] = elementwise sub (%4, %5) @1',
        f'%7 "q" {dtype}[{shape}] = elementwise mul (%6, %6) @1',
        f'%8 "v" {dtype}[{reduced}] = reduce mean axes=[{axes}] (%7) @1',
        f'%9 "a" {dtype}[{reduced}] = elementwise add (%8, %3) @1',
        f'%10 "t" {dtype}[{reduced}] = elementwise sqrt (%9) @1',
        f'%11 "n" {dtype}[{shape}] = elementwise div (%6, %10) @1',
        f'%12 "y" {dtype}[{shape}] = elementwise mul (%11, %2) @1',
        "outputs (%12, %4)",
    )


def stencil(dtype: str) -> PrimitiveGraph:
    """A depthwise product with a window, as a maximum of scaled neighbours, and the mean of its windows."""
    attributes = "window=[3,3] strides=[2,2] dilations=[1,1] before=[1,1] after=[1,1] count_padding=false"
    return graph(
        f'%0 "x" {dtype}[2,3,13,17] = input',
        f'%1 "w" {dtype}[1,3,1,1] = input',
        f'%2 "s" {dtype}[2,3,13,17] = elementwise mul (%0, %1) @0',
        f'%3 "m" {dtype}[2,3,7,9] = window_reduce max {attributes} (%2) @0',
        f'%4 "a" {dtype}[2,3,7,9] = window_reduce mean {attributes} (%2) @0',
        f'%5 "y" {dtype}[2,3,7,9] = elementwise sub (%3, %4) @0',
        "outputs (%5)",
    )


def small_product(dtype: str) -> PrimitiveGraph:
    return graph(
        f'%0 "a" {dtype}[5,7,11,1] = input',
        f'%1 "b" {dtype}[5,1,11,13] = input',
        f'%2 "p" {dtype}[5,7,11,13] = elementwise mul (%0, %1) @0',
        f'%3 "c" {dtype}[5,7,1,13] = reduce sum axes=[2] (%2) @0',
        "outputs (%3)",
    )


def kinds(kernels: Sequence[CudaKernel]) -> str:
    return "; ".join(sorted({kernel.schedule for kernel in kernels}))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_points_of_every_type(check: Check, dtype: str) -> None:
    shapes = [("1", "1"), ("7", "7"), ("131", "1"), ("4099", "1"), ("2,5,7,7", "1,5,1,1"), ("6,40", "6,1")]
    kernels = check([pointwise(dtype, shape, scale) for shape, scale in shapes])
    assert "vectors of" in kinds(kernels)
    squares = [("37,41", "41,37", "1,0"), ("3,8,33", "3,33,8", "0,2,1")]
    assert "tiled" in kinds(check([transpose(dtype, *square) for square in squares]))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_reductions_of_every_type(check: Check, dtype: str) -> None:
    functions = ("max", "min") if dtype == "bool" else ("sum", "max")
    rows = [reduction(dtype, functions, f"5,{n}", "1", "5,1") for n in (1, 2, 7, 37, 1031)]
    columns = [reduction(dtype, functions, f"{n},35", "0", "1,35") for n in (7, 131)]
    found = kinds(check([*rows, *columns, reduction(dtype, functions[:1], "3,5,7", "0,1,2", "1,1,1")]))
    for kind in ("columns", "row by 8 threads", "row by 32 threads", "row a block"):
        assert kind in found


@pytest.mark.parametrize("dtype", FLOATS)
def test_chains_of_reductions(check: Check, dtype: str) -> None:
    rows = [softmax(dtype, f"3,{n}", "1", "3,1") for n in (*PRIMES, 1024)]
    columns = [softmax(dtype, f"2,{n},19", "1", "2,1,19") for n in (1, 5, 37)]
    norms = [normalization(dtype, "3,96", "1", "3,1", "96"), normalization(dtype, "5,131", "1", "5,1", "131")]
    spatial = normalization(dtype, "2,3,7,9", "2,3", "2,3,1,1", "1,3,1,1")
    found = kinds(check([*rows, *columns, *norms, spatial]))
    for kind in ("columns, registers", "row by 32 threads, registers", "row a block, registers"):
        assert kind in found


def test_rows_too_long_for_registers_are_read_again(check: Check) -> None:
    kernels = check([softmax("f64", "1,4099", "1", "1,1"), softmax("f64", "1,12011", "1", "1,1")])
    assert {"row a block, registers", "row a block"} <= {kernel.schedule for kernel in kernels}


@pytest.mark.parametrize("dtype", FLOATS)
def test_windows_stencils_and_small_products(check: Check, dtype: str) -> None:
    assert "row a thread" in kinds(check([stencil(dtype), small_product(dtype)]))


@pytest.mark.parametrize("dtype", [*FLOATS, "i32", "bool"])
def test_long_reductions_are_split(check: Check, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Splitting starts at sizes that fibers are slow at.
    monkeypatch.setattr(splitting, "_LONG", 128)
    monkeypatch.setattr(splitting, "_MUCH", 128)
    monkeypatch.setattr(splitting, "_LEAST_PART", 16)
    monkeypatch.setattr(splitting, "_LEAST_COLUMN", 16)
    functions = ("max", "min") if dtype == "bool" else ("sum", "max")
    graphs = [reduction(dtype, functions, f"2,{n}", "1", "2,1") for n in (512, 1031)]
    graphs.append(reduction(dtype, functions, "523,5", "0", "1,5"))
    if dtype in FLOATS:
        graphs += [softmax(dtype, "2,1031", "1", "2,1"), normalization(dtype, "1,768", "1", "1,1", "768")]
        graphs.append(softmax(dtype, "523,5", "0", "1,5"))
    kernels = check(graphs)
    split = [kernel for kernel in kernels if kernel.scratch]
    assert len(split) == len(graphs)
    assert all(len(kernel.launches) > 1 and all(size % 256 == 0 for size in kernel.scratch) for kernel in split)


def test_repeated_reductions_are_done_once(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "_MUCH", 1024)
    kernels = check(
        [
            graph(
                '%0 "x" f32[6,35,10] = input',
                '%1 "m" f32[6,1,1] = reduce mean axes=[1,2] (%0) @0',
                '%2 "d" f32[6,35,10] = elementwise sub (%0, %1) @0',
                '%3 "s" f32[6,1,10] = reduce max axes=[1] (%2) @0',
                '%4 "y" f32[6,35,10] = elementwise sub (%2, %3) @0',
                "outputs (%4)",
            )
        ]
    )
    assert len(kernels[0].launches) == 2
    assert len(kernels[-1].launches) == 1


def test_independent_results_share_launches(check: Check) -> None:
    kernels = check(
        [
            graph(
                '%0 "x" f32[64,32] = input',
                '%1 "y" f32[64,32] = elementwise exp (%0) @0',
                '%2 "z" f32[40,24] = input',
                '%3 "w" f32[40,24] = elementwise neg (%2) @0',
                "outputs (%1, %3)",
            )
        ]
    )
    assert [len(kernel.launches) for kernel in kernels] == [1]
    assert "if (blockIdx.x <" in kernels[0].source


def test_layouts_lookups_and_choices(check: Check) -> None:
    check(
        [
            graph(
                '%0 "x" f32[5,30] = input',
                '%1 "g" f32[5,15] = gather axis=1 indices=[2,1,0,1,2,3,4,5,6,7,8,9,10,9,8] (%0) @0',
                '%2 "p" f32[8,18] = pad before=[1,2] value=1.5 (%1) @0',
                '%3 "s" f32[4,18] = slice starts=[7,0] steps=[-2,1] (%2) @0',
                '%4 "c" f32[8,18] = concat axis=0 (%3, %3) @0',
                '%5 "b" bool[8,18] = elementwise greater (%4, %2) @0',
                '%6 "w" f32[8,18] = elementwise where (%5, %4, %2) @0',
                "outputs (%6)",
            ),
        ]
    )


def test_what_overflows_goes_on_as_an_infinity(check: Check) -> None:
    """A mask as exporters of attention write it: (1 - m) * lowest, and what is made of it."""
    attention = graph(
        '%0 "m" i64[1,37] = input',
        '%1 "one" f32[] = literal 1.0',
        '%2 "lowest" f32[] = literal -3.4028234663852886e+38',
        '%3 "x" f32[5,37] = input',
        '%4 "c" f32[1,37] = elementwise cast (%0) @0',
        '%5 "d" f32[1,37] = elementwise sub (%1, %4) @0',
        '%6 "k" f32[1,37] = elementwise mul (%5, %2) @0',
        '%7 "s" f32[5,37] = elementwise add (%3, %6) @0',
        '%8 "y" f32[5,37] = elementwise div (%7, %2) @0',
        "outputs (%6, %8)",
    )
    assert check([attention])


@pytest.mark.parametrize("order", ORDERS)
def test_threads_may_run_in_any_order(cuda_builds: Path, order: str) -> None:
    graphs = [softmax("f32", "3,2051", "1", "3,1"), softmax("f32", "2,37,19", "1", "2,1,19")]
    check_cuda([*graphs, transpose("f32", "37,41", "41,37", "1,0")], cuda_builds, orders=(order,))


def test_large_tensors_have_wide_indices_and_small_ones_do_not() -> None:
    small, *_ = generate_cuda(body_of(pointwise("f32", "131", "1")))
    large, *_ = generate_cuda(body_of(pointwise("f32", "70000,70000", "1")))
    assert "for (long long number = (long long)block" in large.source
    assert "long long" not in small.source
    assert large.launches[0].grid[0] < 1 << 20


def test_figures_are_those_of_the_whole_kernel() -> None:
    kernel, *_ = generate_cuda(body_of(pointwise("f32", "6,40", "6,1")))
    assert (kernel.read_bytes, kernel.written_bytes) == (4 * (240 + 6), 2 * 4 * 240)
    assert kernel.flops == 2 * 240


def test_equal_bodies_have_equal_text() -> None:
    assert generate_cuda(body_of(softmax("f32", "3,37", "1", "3,1"))) == generate_cuda(
        body_of(softmax("f32", "3,37", "1", "3,1"))
    )


def test_sources_include_only_the_headers_given() -> None:
    texts = [*cuda_headers().values(), generate_cuda(body_of(softmax("f32", "3,37", "1", "3,1")))[0].source]
    includes = {line for text in texts for line in text.splitlines() if line.startswith("#include")}
    assert includes == {f'#include "{name}"' for name in cuda_headers()}


@pytest.mark.parametrize(
    "of",
    [
        graph('%0 "x" f32[4,4] = input', '%1 "y" f32[4,4] = linear matmul (%0, %0) @0', "outputs (%1)"),
        graph('%0 "x" string[4] = input', '%1 "y" string[4] = reshape (%0) @0', "outputs (%1)"),
        graph('%0 "x" f32[0,4] = input', '%1 "y" f32[0,4] = elementwise neg (%0) @0', "outputs (%1)"),
    ],
)
def test_what_is_not_generated_for_cuda_is_refused_with_a_sentence(of: PrimitiveGraph) -> None:
    with pytest.raises(Refusal) as refused:
        generate_cuda(body_of(of))
    assert refused.value.sentence.endswith(".")
