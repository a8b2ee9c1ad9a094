"""Loops that are cut, transposed or shared: what they compute at odd sizes, and that no slow form is left in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from korch_cli.codegen import generate
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Kernel, KernelBody
from tests.unit.codegen.body_graphs import graph, layout, softmax

Check = Callable[[Sequence[PrimitiveGraph]], list[Kernel]]

GATHER = "lanes<V>"
"""How elements are read that do not lie side by side: one after the other."""


def indices(*positions: int) -> str:
    return f"gather axis=1 indices=[{','.join(map(str, positions))}]"


REFLECTED = indices(2, 1, *range(37), 35, 34)
DOUBLED = indices(*(i // 2 for i in range(74)))
FOURFOLD = indices(*(i // 4 for i in range(148)))
# A linear resize by 8: half a period at both ends.
STRETCHED = indices(*(min(max((i - 4) // 8, 0), 8) for i in range(80)))


@pytest.mark.parametrize(
    "body",
    [
        layout("5,37", REFLECTED, "5,41"),
        layout("5,37", DOUBLED, "5,74"),
        layout("5,37", FOURFOLD, "5,148"),
        layout("5,10", STRETCHED, "5,80"),
        layout("6,75", "slice starts=[0,1] steps=[1,2]", "6,37"),
        layout("6,75", "slice starts=[0,74] steps=[1,-1]", "6,75"),
        layout("3,5,37", "pad before=[0,1,2] value=1.5", "3,8,42"),
    ],
)
def test_maps_with_seams_become_plain_loads(check_kernels: Check, body: PrimitiveGraph) -> None:
    for kernel in check_kernels([body]):
        assert GATHER not in kernel.source


@pytest.mark.parametrize("dtype", ["f16", "bf16", "i32", "bool", "f64"])
def test_maps_with_seams_of_other_types(check_kernels: Check, dtype: str) -> None:
    function = "not" if dtype == "bool" else "neg"
    bodies = [
        graph(
            f'%0 "x" {dtype}[{operand}] = input',
            f'%1 "y" {dtype}[{result}] = {op} (%0) @0',
            f'%2 "z" {dtype}[{result}] = elementwise {function} (%1) @1',
            "outputs (%2)",
        )
        for operand, op, result in (
            ("5,37", REFLECTED, "5,41"),
            ("5,37", DOUBLED, "5,74"),
            ("6,75", "slice starts=[0,1] steps=[1,2]", "6,37"),
            ("37,21", "transpose perm=[1,0]", "21,37"),
        )
    ]
    check_kernels(bodies)


def test_seams_between_tensors_leave_no_condition(check_kernels: Check) -> None:
    for axis, shapes in (("1", ("4,3,37", "4,18,37", "4,21,37")), ("2", ("4,5,3", "4,5,40", "4,5,43"))):
        (kernel,) = check_kernels(
            [
                graph(
                    f'%0 "a" f32[{shapes[0]}] = input',
                    f'%1 "b" f32[{shapes[1]}] = input',
                    f'%2 "s" f32[{shapes[1]}] = elementwise sigmoid (%1) @0',
                    f'%3 "c" f32[{shapes[2]}] = concat axis={axis} (%0, %2) @1',
                    "outputs (%3)",
                )
            ]
        )
        assert "select(" not in kernel.source
        assert " ? load<V>" not in kernel.source


@pytest.mark.parametrize("shape", [(16, 16), (37, 53), (5, 130), (130, 5), (64, 33)])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_operands_are_transposed_in_registers(check_kernels: Check, shape: tuple[int, int], dtype: str) -> None:
    rows, columns = shape
    body = graph(
        f'%0 "x" {dtype}[{rows},{columns}] = input',
        f'%1 "r" {dtype}[{columns},{rows}] = input',
        f'%2 "t" {dtype}[{columns},{rows}] = transpose perm=[1,0] (%0) @0',
        f'%3 "y" {dtype}[{columns},{rows}] = elementwise add (%2, %1) @1',
        "outputs (%3)",
    )
    assert "load_transposed" in check_kernels([body])[0].source


@pytest.mark.parametrize("columns", [16, 33, 129, 640])
def test_exponentials_of_a_row_are_computed_once(check_kernels: Check, columns: int) -> None:
    body = softmax("f32", f"7,{columns}", "1", "7,1")
    row = next(kernel for kernel in check_kernels([body]) if kernel.schedule == "row")
    assert row.source.count("exp_(") == 1


def test_what_several_reductions_need_is_computed_once(check_kernels: Check) -> None:
    body = graph(
        '%0 "x" f32[6,75] = input',
        '%1 "g" f32[6,75] = elementwise erf (%0) @0',
        '%2 "m" f32[6,1] = reduce mean axes=[1] (%1) @1',
        '%3 "d" f32[6,75] = elementwise sub (%1, %2) @1',
        '%4 "q" f32[6,75] = elementwise mul (%3, %3) @1',
        '%5 "v" f32[6,1] = reduce mean axes=[1] (%4) @1',
        '%6 "y" f32[6,75] = elementwise mul (%3, %5) @1',
        "outputs (%6)",
    )
    row = next(kernel for kernel in check_kernels([body]) if kernel.schedule == "row")
    assert row.source.count("erf_(") == 1


@pytest.mark.parametrize("columns", [16, 33, 64, 129, 512])
@pytest.mark.parametrize("rows", ["16", "37", "3,21"])
def test_short_rows_run_in_batches(check_kernels: Check, rows: str, columns: int) -> None:
    """With what only rows have, results for rows, a condition for each row and all that is left over."""
    one = f"{rows},1"
    shape = f"{rows},{columns}"
    axis = rows.count(",") + 1
    body = graph(
        f'%0 "x" f32[{shape}] = input',
        f'%1 "w" f32[{one}] = input',
        f'%2 "c" bool[{one}] = input',
        '%3 "e" f32[] = literal 1e-05',
        f'%4 "p" f32[{shape}] = elementwise mul (%0, %1) @0',
        f'%5 "m" f32[{one}] = reduce mean axes=[{axis}] (%4) @0',
        f'%6 "d" f32[{shape}] = elementwise sub (%4, %5) @0',
        f'%7 "q" f32[{shape}] = elementwise mul (%6, %6) @0',
        f'%8 "v" f32[{one}] = reduce mean axes=[{axis}] (%7) @0',
        f'%9 "a" f32[{one}] = elementwise add (%8, %3) @0',
        f'%10 "s" f32[{one}] = elementwise sqrt (%9) @0',
        f'%11 "n" f32[{shape}] = elementwise div (%6, %10) @0',
        f'%12 "y" f32[{shape}] = elementwise where (%2, %11, %0) @0',
        f'%13 "t" f32[{shape}] = elementwise tanh (%12) @0',
        f'%14 "b" f32[{one}] = reduce max axes=[{axis}] (%13) @0',
        f'%15 "z" f32[{shape}] = elementwise div (%13, %14) @0',
        "outputs (%15, %10, %14)",
    )
    (batched,) = [kernel for kernel in check_kernels([body]) if kernel.schedule == "rows"]
    assert batched.source.count("tanh_(") == 1


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_so_do_short_rows_of_sixteen_bits(check_kernels: Check, dtype: str) -> None:
    assert {k.schedule for k in check_kernels([softmax(dtype, "37,70", "1", "37,1")])} == {"rows"}


def test_rows_that_no_cache_holds_run_one_by_one() -> None:
    bodies = [softmax("f32", f"{rows},{columns}", "1", f"{rows},1") for rows, columns in ((8192, 64), (8192, 256))]
    kinds = [generate(KernelBody("digest", b, (0,), b.outputs))[0].schedule for b in bodies]
    assert kinds == ["rows", "row"]


def test_mish_needs_one_exponential(check_kernels: Check) -> None:
    body = graph(
        '%0 "x" f32[3,77] = input',
        '%1 "s" f32[3,77] = elementwise softplus (%0) @0',
        '%2 "t" f32[3,77] = elementwise tanh (%1) @1',
        '%3 "y" f32[3,77] = elementwise mul (%0, %2) @2',
        "outputs (%3)",
    )
    (kernel,) = check_kernels([body])
    assert "tanh_softplus_(" in kernel.source
    assert " softplus_(" not in kernel.source
