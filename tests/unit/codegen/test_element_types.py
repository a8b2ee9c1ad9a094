"""Kernels of every element type."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Kernel
from korch_cli.core.text import parse_graph

Check = Callable[[Sequence[PrimitiveGraph]], list[Kernel]]


def graph(*lines: str) -> PrimitiveGraph:
    return parse_graph("\n".join(lines))


def binary(
    function: str, left: str, right: str, result: str, dtype: str = "f32", out: str | None = None
) -> PrimitiveGraph:
    return graph(
        f'%0 "a" {dtype}[{left}] = input',
        f'%1 "b" {dtype}[{right}] = input',
        f'%2 "c" {out or dtype}[{result}] = elementwise {function} (%0, %1) @0',
        "outputs (%2)",
    )


UNARY = [
    "abs",
    "ceil",
    "cos",
    "erf",
    "exp",
    "floor",
    "neg",
    "reciprocal",
    "round",
    "sigmoid",
    "sign",
    "sin",
    "softplus",
    "tanh",
]
FLOATS = ["f16", "bf16", "f32", "f64"]
INTEGERS = ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"]
RARE = ["asinh", "atan", "cosh", "sinh", "tan"]


def typed_chain(dtype: str, *functions: str) -> PrimitiveGraph:
    lines = [f'%0 "x" {dtype}[3,21] = input']
    lines += [f'%{i} "v{i}" {dtype}[3,21] = elementwise {f} (%{i - 1}) @0' for i, f in enumerate(functions, 1)]
    return graph(*lines, f"outputs (%{len(functions)})")


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_every_float(check_kernels: Check, dtype: str) -> None:
    bounded = [typed_chain(dtype, "sin", "sin", f) for f in ("acos", "asin", "atanh")]
    positive = [typed_chain(dtype, "abs", "exp", f) for f in ("acosh", "sqrt", "log")]
    check_kernels([*bounded, *positive, *(typed_chain(dtype, f) for f in (*UNARY, *RARE))])
    pairs = [binary(f, "5,19", "19", "5,19", dtype) for f in ("add", "sub", "mul", "max", "min", "fmod", "mod")]
    order = [binary(f, "5,19", "5,19", "5,19", dtype, "bool") for f in ("equal", "greater_equal", "less")]
    check_kernels([*pairs, *order])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_functions_of_every_integer(check_kernels: Check, dtype: str) -> None:
    names = ("add", "sub", "mul", "div", "max", "min", "mod", "fmod", "bit_and", "bit_or", "bit_xor")
    pairs = [binary(f, "4,9", "9", "4,9", dtype) for f in (*names, *(["shift_left"] if dtype[0] == "u" else []))]
    order = [binary(f, "4,9", "9", "4,9", dtype, "bool") for f in ("equal", "greater", "less_equal")]
    check_kernels([*pairs, *order, *(typed_chain(dtype, f) for f in ("abs", "neg", "sign", "bit_not"))])


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
def test_structure_does_not_depend_on_the_type(check_kernels: Check, dtype: str) -> None:
    literal = "literal true" if dtype == "bool" else "literal 3" if dtype[0] in "iu" else "literal 1.5"
    choice = graph(
        f'%0 "a" {dtype}[4,33] = input',
        f'%1 "b" {dtype}[33] = input',
        f'%2 "n" {dtype}[] = {literal}',
        '%3 "e" bool[4,33] = elementwise equal (%0, %1) @0',
        f'%4 "w" {dtype}[4,33] = elementwise where (%3, %2, %0) @0',
        f'%5 "p" {dtype}[5,34] = pad before=[0,1] value=1.0 (%4) @0',
        f'%6 "t" {dtype}[34,5] = transpose perm=[1,0] (%5) @0',
        f'%7 "c" {dtype}[68,5] = concat axis=0 (%6, %6) @0',
        "outputs (%7, %4)",
    )
    functions = ["max", "min"] if dtype == "bool" else ["sum", "prod", "max", "min"]
    reductions = [
        graph(
            f'%0 "x" {dtype}[4,35,6] = input',
            f'%1 "y" {dtype}[{shape}] = reduce {f} axes=[{axes}] (%0) @0',
            "outputs (%1)",
        )
        for f in functions
        for axes, shape in (("1", "4,1,6"), ("1,2", "4,1,1"))
        if f != "prod" or dtype[0] in "iu"
    ]
    check_kernels([choice, *reductions])


@pytest.mark.parametrize("dtype", FLOATS)
def test_means_of_every_float(check_kernels: Check, dtype: str) -> None:
    check_kernels(
        [
            graph(
                f'%0 "x" {dtype}[6,3000] = input',
                f'%1 "y" {dtype}[6,1] = reduce mean axes=[1] (%0) @0',
                f'%2 "z" {dtype}[6,3000] = elementwise sub (%0, %1) @0',
                "outputs (%2)",
            ),
            graph(
                f'%0 "x" {dtype}[1,2,9,9] = input',
                f'%1 "y" {dtype}[1,2,5,5] = window_reduce mean window=[3,3] strides=[2,2] dilations=[1,1] '
                "before=[1,1] after=[1,1] count_padding=false (%0) @0",
                "outputs (%1)",
            ),
        ]
    )


@pytest.mark.parametrize("source", [*FLOATS, *INTEGERS, "bool"])
def test_casts_between_all_types(check_kernels: Check, source: str) -> None:
    wanted = [t for t in (*FLOATS, *INTEGERS, "bool") if t != source]
    # Negative floats as unsigned integers are left open by C++.
    prepared = "abs" if source in FLOATS else None
    graphs = []
    for target in wanted:
        lines = [f'%0 "x" {source}[3,21] = input']
        if prepared:
            lines.append(f'%1 "a" {source}[3,21] = elementwise abs (%0) @0')
        last = len(lines)
        lines.append(f'%{last} "y" {target}[3,21] = elementwise cast (%{last - 1}) @0')
        graphs.append(graph(*lines, f"outputs (%{last})"))
    check_kernels(graphs)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_that_choose_among_sums_of_columns(check_shipped_kernels: Check, dtype: str) -> None:
    """Loops over integers and floats of several widths, which GCC 12 once vectorised wrongly for some extents."""
    check_shipped_kernels(
        [
            graph(
                f'%0 "labels" {dtype}[3,1,{n}] = input',
                f'%1 "x" f32[3,{k},{n}] = input',
                f'%2 "w" f32[3,1,{n}] = input',
                f'%3 "ignored" {dtype}[] = literal {1 if dtype[0] == "u" else -1}',
                '%4 "none" f32[] = literal 0.0',
                f'%5 "skip" bool[3,1,{n}] = elementwise equal (%0, %3) @0',
                f'%6 "sum" f32[3,1,{n}] = reduce sum axes=[1] (%1) @0',
                f'%7 "loss" f32[3,1,{n}] = elementwise neg (%6) @0',
                f'%8 "kept" f32[3,1,{n}] = elementwise where (%5, %4, %7) @0',
                f'%9 "weight" f32[3,1,{n}] = elementwise where (%5, %4, %2) @0',
                '%10 "total" f32[1,1,1] = reduce sum axes=[0,1,2] (%9) @0',
                "outputs (%8, %9, %10)",
            )
            for n in (1, 3, 5, 6, 7, 11)
            for k in (2, 5)
        ]
    )
