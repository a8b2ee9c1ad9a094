"""Which operands a kernel may overwrite; `check_kernels` runs every pair that it offers in one memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Kernel
from tests.unit.codegen.body_graphs import graph, softmax

Check = Callable[[Sequence[PrimitiveGraph]], list[Kernel]]


X = '%0 "x" f32[48,64] = input'
CASES: dict[str, tuple[PrimitiveGraph, set[tuple[int, int]]]] = {
    "one operand": (graph(X, '%1 "y" f32[48,64] = elementwise exp (%0) @0', "outputs (%1)"), {(0, 0)}),
    "either operand": (
        graph(X, '%1 "w" f32[48,64] = input', '%2 "y" f32[48,64] = elementwise sub (%0, %1) @0', "outputs (%2)"),
        {(0, 0), (1, 0)},
    ),
    "an operand that is stretched": (
        graph(X, '%1 "w" f32[48,1] = input', '%2 "y" f32[48,64] = elementwise sub (%1, %0) @0', "outputs (%2)"),
        {(0, 0)},
    ),
    "an operand that is turned": (
        graph(
            '%0 "x" f32[64,64] = input',
            '%1 "w" f32[64,64] = input',
            '%2 "t" f32[64,64] = transpose perm=[1,0] (%1) @0',
            '%3 "y" f32[64,64] = elementwise sub (%0, %2) @1',
            "outputs (%3)",
        ),
        {(0, 0)},
    ),
    "an operand that is read at two places": (
        graph(
            '%0 "x" f32[64,64] = input',
            '%1 "t" f32[64,64] = transpose perm=[1,0] (%0) @0',
            '%2 "y" f32[64,64] = elementwise sub (%0, %1) @1',
            "outputs (%2)",
        ),
        set(),
    ),
    "two results": (
        graph(
            X,
            '%1 "w" f32[48,64] = input',
            '%2 "a" f32[48,64] = elementwise exp (%1) @0',
            '%3 "b" f32[48,64] = elementwise mul (%2, %0) @1',
            "outputs (%2, %3)",
        ),
        # The first result is written before the first operand is read.
        {(1, 0), (0, 1), (1, 1)},
    ),
    "a vector that is done again": (
        graph('%0 "x" f32[3,37] = input', '%1 "y" f32[3,37] = elementwise exp (%0) @0', "outputs (%1)"),
        set(),
    ),
    "numbers of the same size": (
        graph('%0 "x" i32[5,7] = input', '%1 "y" f32[5,7] = elementwise cast (%0) @0', "outputs (%1)"),
        {(0, 0)},
    ),
    "numbers of another size": (
        graph('%0 "x" i64[48,64] = input', '%1 "y" f32[48,64] = elementwise cast (%0) @0', "outputs (%1)"),
        set(),
    ),
    "numbers one by one": (
        graph('%0 "x" f64[3,37] = input', '%1 "y" f64[3,37] = elementwise exp (%0) @0', "outputs (%1)"),
        {(0, 0)},
    ),
    "the inside of what is padded": (
        graph(
            X,
            '%1 "y" f32[48,64] = elementwise exp (%0) @0',
            '%2 "p" f32[50,64] = pad before=[1,0] value=0.0 (%1) @1',
            "outputs (%2)",
        ),
        set(),
    ),
    "a part of what is concatenated": (
        graph(
            X,
            '%1 "y" f32[96,64] = concat axis=0 (%0, %0) @0',
            '%2 "z" f32[96,64] = elementwise exp (%1) @1',
            "outputs (%2)",
        ),
        set(),
    ),
    "rows": (softmax("f32", "48,64", "1", "48,1"), {(0, 0)}),
    "long rows": (softmax("f32", "3,1024", "1", "3,1"), {(0, 0)}),
    "columns": (softmax("f32", "2,40,64", "1", "2,1,64"), {(0, 0)}),
    "planes": (softmax("f32", "4,6,32", "1,2", "4,1,1"), {(0, 0)}),
    "rows of numbers one by one": (softmax("f64", "7,37", "1", "7,1"), {(0, 0)}),
    "rows whose last vector is done again": (softmax("f32", "48,50", "1", "48,1"), set()),
    "rows of which the last batch is done again": (softmax("f32", "50,64", "1", "50,1"), set()),
    "a row that others read": (
        graph(
            '%0 "x" f32[32,32] = input',
            '%1 "m" f32[32,1] = reduce sum axes=[1] (%0) @0',
            '%2 "t" f32[1,32] = reshape (%1) @0',
            '%3 "y" f32[32,32] = elementwise sub (%0, %2) @1',
            "outputs (%3)",
        ),
        set(),
    ),
    "a row of which only the sum is left": (
        graph(
            '%0 "x" f32[32,64] = input',
            '%1 "w" f32[32,64] = input',
            '%2 "m" f32[32,1] = reduce sum axes=[1] (%0) @0',
            '%3 "y" f32[32,64] = elementwise sub (%1, %2) @1',
            '%4 "z" f32[32,64] = elementwise mul (%0, %3) @2',
            "outputs (%3, %4)",
        ),
        # The first result is written before the first operand is read again.
        {(0, 1), (1, 0), (1, 1)},
    ),
    "another shape": (
        graph(X, '%1 "y" f32[3072] = reshape (%0) @0', '%2 "z" f32[3072] = elementwise exp (%1) @1', "outputs (%2)"),
        set(),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_operands_are_overwritten_only_where_nothing_reads_them_any_more(check_kernels: Check, name: str) -> None:
    body_graph, expected = CASES[name]
    kernels = check_kernels([body_graph])
    for kernel in kernels:
        assert set(kernel.in_place) == expected, kernel.source
        for _, result in kernel.in_place:
            assert f"__restrict r{result}" not in kernel.source
