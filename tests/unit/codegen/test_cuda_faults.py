"""Faults planted into generated CUDA text: each kind of them is caught when the text runs on the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from korch_cli.codegen import cuda_headers, generate_cuda
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.launch import CudaKernel
from korch_cli.core.text import parse_graph
from tests.cuda_on_cpu.agreement import body_of, compare
from tests.cuda_on_cpu.execution import FaultError, Sanitizer, build


def graph(*lines: str) -> PrimitiveGraph:
    return parse_graph("\n".join(lines))


TRANSPOSE = graph('%0 "x" f32[33,35] = input', '%1 "y" f32[35,33] = transpose perm=[1,0] (%0) @0', "outputs (%1)")
POINTS = graph('%0 "x" f32[131] = input', '%1 "y" f32[131] = elementwise neg (%0) @0', "outputs (%1)")
SCALARS = graph('%0 "x" f32[7] = input', '%1 "y" f32[7] = elementwise neg (%0) @0', "outputs (%1)")
ROWS = graph('%0 "x" f32[3,24] = input', '%1 "y" f32[3,1] = reduce sum axes=[1] (%0) @0', "outputs (%1)")
COLUMNS = graph('%0 "x" f32[131,35] = input', '%1 "y" f32[1,35] = reduce sum axes=[0] (%0) @0', "outputs (%1)")
BLOCK = graph('%0 "x" f32[2,1031] = input', '%1 "y" f32[2,1] = reduce sum axes=[1] (%0) @0', "outputs (%1)")


def first_kernel(of: PrimitiveGraph) -> CudaKernel:
    return generate_cuda(body_of(of))[0]


def planted(kernel: CudaKernel, old: str, new: str, count: int = 1) -> CudaKernel:
    assert old in kernel.source, kernel.source
    return replace(kernel, source=kernel.source.replace(old, new, count))


def run(of: PrimitiveGraph, kernel: CudaKernel, folder: Path, sanitizer: Sanitizer, order: str = "forward") -> None:
    compare(of, kernel, build([kernel], folder, sanitizer), order)


@pytest.mark.parametrize("of", [TRANSPOSE, POINTS, ROWS, COLUMNS, BLOCK])
@pytest.mark.parametrize("sanitizer", [Sanitizer.ADDRESS, Sanitizer.THREAD])
def test_without_a_fault_nothing_is_reported(of: PrimitiveGraph, sanitizer: Sanitizer, cuda_builds: Path) -> None:
    run(of, first_kernel(of), cuda_builds, sanitizer)


def test_a_missing_barrier_is_a_race(cuda_builds: Path) -> None:
    faulty = planted(first_kernel(TRANSPOSE), "__syncthreads();", "")
    with pytest.raises(FaultError, match="data race"):
        run(TRANSPOSE, faulty, cuda_builds, Sanitizer.THREAD)


def test_so_is_one_between_the_parts_of_a_reduction(tmp_path: Path) -> None:
    headers = {name: text.replace("  __syncthreads();\n", "") for name, text in cuda_headers().items()}
    assert headers != cuda_headers()
    for of in (BLOCK, COLUMNS):
        kernel = first_kernel(of)
        with pytest.raises(FaultError, match="data race"):
            compare(of, kernel, build([kernel], tmp_path, Sanitizer.THREAD, headers))


def test_without_a_barrier_some_order_of_threads_gives_something_else(cuda_builds: Path) -> None:
    """Shared memory is poisoned, so that what nobody has written yet shows."""
    faulty = planted(first_kernel(TRANSPOSE), "__syncthreads();", "")
    with pytest.raises(AssertionError, match="Not equal"):
        run(TRANSPOSE, faulty, cuda_builds, Sanitizer.NOTHING)


def test_shared_memory_that_nobody_writes_shows(cuda_builds: Path) -> None:
    faulty = planted(first_kernel(TRANSPOSE), "v0_tile[y + i][x] = v0;", "")
    with pytest.raises(AssertionError, match="Not equal"):
        run(TRANSPOSE, faulty, cuda_builds, Sanitizer.NOTHING)


@pytest.mark.parametrize(
    ("of", "old", "new"),
    [
        (COLUMNS, "step < 131", "step <= 131"),
        (TRANSPOSE, "i1 < 33", "i1 <= 33"),
        (TRANSPOSE, "r0[33 * i0 + i1]", "r0[33 * i0 + i1 + 1]"),
        (SCALARS, "number < 7", "number <= 7"),
    ],
)
def test_an_index_past_the_end_overflows_the_heap(of: PrimitiveGraph, old: str, new: str, cuda_builds: Path) -> None:
    with pytest.raises(FaultError, match="heap-buffer-overflow"):
        run(of, planted(first_kernel(of), old, new), cuda_builds, Sanitizer.ADDRESS)


@pytest.mark.parametrize(
    ("of", "old", "new", "access"),
    [
        (SCALARS, "a0[i0]", "a0[i0 + 1]", "READ of size 4"),
        (SCALARS, "r0[i0]", "r0[i0 + 1]", "WRITE of size 4"),
        (SCALARS, "r0[i0]", "r0[i0 - 1]", "WRITE of size 4"),
        (POINTS, "load<4>(a0 + i0_0, count)", "load<4>(a0 + i0_0)", "READ of size"),
        (POINTS, "store<4>(r0 + i0_0, r0_pack, count)", "store<4>(r0 + i0_0, r0_pack)", "WRITE of size"),
        (TRANSPOSE, "r0[33 * i0 + i1]", "r0[33 * i0 + i1 + 1]", "WRITE of size 4"),
        (ROWS, "r0[i0] = v1", "r0[i0 + 3] = v1", "WRITE of size 4"),
        (COLUMNS, "r0[i1] = v1", "r0[i1 + 35] = v1", "WRITE of size 4"),
        (BLOCK, "r0[i0] = v1", "r0[i0 + 2] = v1", "WRITE of size 4"),
    ],
)
def test_reads_and_writes_outside_of_memory_are_told_apart(
    of: PrimitiveGraph, old: str, new: str, access: str, cuda_builds: Path
) -> None:
    with pytest.raises(FaultError, match=access):
        run(of, planted(first_kernel(of), old, new), cuda_builds, Sanitizer.ADDRESS)


def launched(kernel: CudaKernel, blocks: int = 0, threads: float = 1) -> CudaKernel:
    """The kernel with so many more blocks, of so many times the threads."""
    (launch,) = kernel.launches
    grid, block = (launch.grid[0] + blocks, 1, 1), (int(launch.block[0] * threads), 1, 1)
    return replace(kernel, launches=(replace(launch, grid=grid, block=block),))


@pytest.mark.parametrize("of", [TRANSPOSE, COLUMNS, BLOCK])
@pytest.mark.parametrize("sanitizer", [Sanitizer.ADDRESS, Sanitizer.THREAD])
def test_a_block_too_few_leaves_results_unwritten(of: PrimitiveGraph, sanitizer: Sanitizer, cuda_builds: Path) -> None:
    with pytest.raises(AssertionError, match="Not equal"):
        run(of, launched(first_kernel(of), blocks=-1), cuda_builds, sanitizer)


def test_a_block_too_many_that_nothing_masks_is_out_of_bounds(cuda_builds: Path) -> None:
    with pytest.raises(FaultError, match="heap-buffer-overflow"):
        run(BLOCK, launched(first_kernel(BLOCK), blocks=1), cuda_builds, Sanitizer.ADDRESS)


@pytest.mark.parametrize("of", [TRANSPOSE, COLUMNS, BLOCK])
def test_blocks_of_too_few_threads_compute_something_else(of: PrimitiveGraph, cuda_builds: Path) -> None:
    with pytest.raises((AssertionError, FaultError), match=r"Not equal|divergence|overflow"):
        run(of, launched(first_kernel(of), threads=0.5), cuda_builds, Sanitizer.ADDRESS)


@pytest.mark.parametrize("of", [TRANSPOSE, POINTS, SCALARS, ROWS, COLUMNS, BLOCK])
@pytest.mark.parametrize("sanitizer", Sanitizer)
def test_blocks_of_more_threads_than_a_kernel_is_compiled_for_are_refused(
    of: PrimitiveGraph, sanitizer: Sanitizer, cuda_builds: Path
) -> None:
    """A GPU launches none of them, whatever the text would do with the threads."""
    with pytest.raises(FaultError, match="threads, compiled for"):
        run(of, launched(first_kernel(of), threads=2), cuda_builds, sanitizer)


@pytest.mark.parametrize("grid", [(1, 70000, 1), (1, 1, 70000), (0, 1, 1)])
def test_grids_that_no_gpu_has_are_refused(grid: tuple[int, int, int], cuda_builds: Path) -> None:
    kernel = first_kernel(SCALARS)
    faulty = replace(kernel, launches=(replace(kernel.launches[0], grid=grid),))
    with pytest.raises(FaultError, match="extents of the grid"):
        run(SCALARS, faulty, cuda_builds, Sanitizer.NOTHING)


@pytest.mark.parametrize(
    ("of", "old", "new"),
    [
        (COLUMNS, "v1_shared[512]", "v1_shared[511]"),
        (BLOCK, "v1_shared[16]", "v1_shared[15]"),
        (TRANSPOSE, "v0_tile[32][33]", "v0_tile[31][33]"),
    ],
)
def test_shared_memory_that_is_too_small_overflows(of: PrimitiveGraph, old: str, new: str, cuda_builds: Path) -> None:
    with pytest.raises(FaultError, match=r"global-buffer-overflow|out of bounds|insufficient space"):
        run(of, planted(first_kernel(of), old, new), cuda_builds, Sanitizer.ADDRESS)


@pytest.mark.parametrize("sanitizer", [Sanitizer.NOTHING, Sanitizer.THREAD])
def test_more_shared_memory_than_a_block_has_is_refused(sanitizer: Sanitizer, cuda_builds: Path) -> None:
    faulty = planted(first_kernel(TRANSPOSE), "v0_tile[32][33]", "v0_tile[32][433]")
    with pytest.raises(FaultError, match="bytes of shared memory"):
        run(TRANSPOSE, faulty, cuda_builds, sanitizer)


@pytest.mark.parametrize(
    ("of", "old", "new", "sanitizer", "report"),
    [
        (POINTS, "load<4>(a0 + i0_0, count)", "load<4>(a0 + i0_0)", Sanitizer.ADDRESS, "heap-buffer-overflow"),
        (SCALARS, "if (number < 7)", "", Sanitizer.ADDRESS, "heap-buffer-overflow"),
        (
            ROWS,
            "const int row = active ? number : 2;",
            "const int row = number;",
            Sanitizer.ADDRESS,
            "heap-buffer-overflow",
        ),
        (ROWS, " && active", "", Sanitizer.THREAD, "data race"),
    ],
)
def test_a_missing_mask_is_caught(
    of: PrimitiveGraph, old: str, new: str, sanitizer: Sanitizer, report: str, cuda_builds: Path
) -> None:
    with pytest.raises(FaultError, match=report):
        run(of, planted(first_kernel(of), old, new), cuda_builds, sanitizer)


@pytest.mark.parametrize(
    ("of", "old", "new"),
    [
        (POINTS, "a0 + i0_0", "a0 + 2 + i0_0"),
        (POINTS, "r0 + i0_0", "r0 + 1 + i0_0"),
        (ROWS, "a0 + 24 * i0", "a0 + 1 + 24 * i0"),
    ],
)
def test_a_misaligned_vector_is_caught(of: PrimitiveGraph, old: str, new: str, cuda_builds: Path) -> None:
    with pytest.raises(FaultError, match="misaligned address"):
        run(of, planted(first_kernel(of), old, new), cuda_builds, Sanitizer.ADDRESS)


@pytest.mark.parametrize("of", [TRANSPOSE, BLOCK, ROWS])
def test_a_thread_that_leaves_before_the_others_is_missed(of: PrimitiveGraph, cuda_builds: Path) -> None:
    opening = "const int block = (int)blockIdx.x;"
    faulty = planted(first_kernel(of), opening, f"{opening}\n  if (threadIdx.x == 5) return;")
    with pytest.raises(FaultError, match="divergence"):
        run(of, faulty, cuda_builds, Sanitizer.NOTHING)


def test_threads_at_different_barriers_are_caught(cuda_builds: Path) -> None:
    different = "if (threadIdx.x < 32) {\n    __syncthreads();\n  } else {\n    __syncthreads();\n  }"
    faulty = planted(first_kernel(TRANSPOSE), "__syncthreads();", different)
    with pytest.raises(FaultError, match="different barriers"):
        run(TRANSPOSE, faulty, cuda_builds, Sanitizer.NOTHING)


def test_results_that_no_block_writes_show(cuda_builds: Path) -> None:
    faulty = planted(first_kernel(TRANSPOSE), "i0_tile * 32", "0", count=4)
    for order in ("forward", "reverse"):
        with pytest.raises(AssertionError, match="Not equal"):
            run(TRANSPOSE, faulty, cuda_builds, Sanitizer.NOTHING, order)
