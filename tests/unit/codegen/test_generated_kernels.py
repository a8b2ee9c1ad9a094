from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest

from korch_cli.codegen import generate
from korch_cli.core.errors import Refusal
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Kernel, KernelBody
from tests.unit.codegen.body_graphs import graph, layout, softmax

Check = Callable[[Sequence[PrimitiveGraph]], list[Kernel]]


def chain(shape: str, *functions: str) -> PrimitiveGraph:
    """One float32 operand through functions of one operand."""
    lines = [f'%0 "x" f32[{shape}] = input']
    lines += [f'%{i} "v{i}" f32[{shape}] = elementwise {f} (%{i - 1}) @0' for i, f in enumerate(functions, 1)]
    return graph(*lines, f"outputs (%{len(functions)})")


def binary(
    function: str, left: str, right: str, result: str, dtype: str = "f32", out: str | None = None
) -> PrimitiveGraph:
    return graph(
        f'%0 "a" {dtype}[{left}] = input',
        f'%1 "b" {dtype}[{right}] = input',
        f'%2 "c" {out or dtype}[{result}] = elementwise {function} (%0, %1) @0',
        "outputs (%2)",
    )


def hard_swish(shape: str, scale: str) -> PrimitiveGraph:
    return graph(
        f'%0 "x" f32[{shape}] = input',
        f'%1 "s" f32[{scale}] = input',
        '%2 "three" f32[] = literal 3.0',
        '%3 "zero" f32[] = literal 0.0',
        '%4 "six" f32[] = literal 6.0',
        f'%5 "a" f32[{shape}] = elementwise mul (%0, %1) @0',
        f'%6 "b" f32[{shape}] = elementwise add (%5, %2) @1',
        f'%7 "c" f32[{shape}] = elementwise max (%6, %3) @2',
        f'%8 "d" f32[{shape}] = elementwise min (%7, %4) @2',
        f'%9 "e" f32[{shape}] = elementwise mul (%5, %8) @3',
        f'%10 "f" f32[{shape}] = elementwise div (%9, %4) @4',
        "outputs (%10, %5)",
    )


def normalization(shape: str, axes: str, reduced: str, scale: str) -> PrimitiveGraph:
    return graph(
        f'%0 "x" f32[{shape}] = input',
        f'%1 "r" f32[{shape}] = input',
        f'%2 "w" f32[{scale}] = input',
        '%3 "e" f32[] = literal 1e-05',
        f'%4 "sum" f32[{shape}] = elementwise add (%0, %1) @0',
        f'%5 "m" f32[{reduced}] = reduce mean axes=[{axes}] (%4) @1',
        f'%6 "d" f32[{shape}] = elementwise sub (%4, %5) @1',
        f'%7 "q" f32[{shape}] = elementwise mul (%6, %6) @1',
        f'%8 "v" f32[{reduced}] = reduce mean axes=[{axes}] (%7) @1',
        f'%9 "a" f32[{reduced}] = elementwise add (%8, %3) @1',
        f'%10 "t" f32[{reduced}] = elementwise sqrt (%9) @1',
        f'%11 "n" f32[{shape}] = elementwise div (%6, %10) @1',
        f'%12 "y" f32[{shape}] = elementwise mul (%11, %2) @1',
        "outputs (%12, %4)",
    )


def window(function: str, operand: str, result: str, attributes: str) -> PrimitiveGraph:
    return graph(
        f'%0 "x" f32[{operand}] = input',
        f'%1 "y" f32[{result}] = window_reduce {function} {attributes} (%0) @0',
        '%2 "two" f32[] = literal 2.0',
        f'%3 "z" f32[{result}] = elementwise mul (%1, %2) @1',
        "outputs (%3)",
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


def test_every_function_of_one_operand(check_kernels: Check) -> None:
    kernels = check_kernels([chain("3,21", f) for f in UNARY] + [chain("37", "abs", f) for f in ("sqrt", "log")])
    assert len(kernels) == len(UNARY) + 2


def test_functions_of_two_operands_and_booleans(check_kernels: Check) -> None:
    arithmetic = [binary(f, "5,19", "5,19", "5,19") for f in ("add", "sub", "mul", "div", "max", "min")]
    comparisons = [
        binary(f, "5,19", "19", "5,19", out="bool") for f in ("equal", "greater", "greater_equal", "less", "less_equal")
    ]
    logical = [binary(f, "5,19", "5,19", "5,19", "bool") for f in ("and", "or", "xor", "equal")]
    choice = graph(
        '%0 "c" bool[4,1] = input',
        '%1 "a" f32[4,33] = input',
        '%2 "b" f32[33] = input',
        '%3 "n" bool[4,1] = elementwise not (%0) @0',
        '%4 "y" f32[4,33] = elementwise where (%3, %1, %2) @0',
        '%5 "f" f32[4,1] = elementwise cast (%0) @0',
        '%6 "z" f32[4,33] = elementwise mul (%4, %5) @0',
        "outputs (%6)",
    )
    check_kernels([*arithmetic, *comparisons, *logical, choice])


def test_integers(check_kernels: Check) -> None:
    whole = [binary(f, "4,9", "9", "4,9", "i64") for f in ("add", "sub", "mul", "max", "min")]
    narrow = [binary(f, "7", "7", "7", "i32") for f in ("add", "mul")]
    mixed = graph(
        '%0 "i" i64[3,8] = input',
        '%1 "x" f32[3,8] = input',
        '%2 "f" f32[3,8] = elementwise cast (%0) @0',
        '%3 "y" f32[3,8] = elementwise mul (%1, %2) @0',
        '%4 "s" i64[3,1] = reduce sum axes=[1] (%0) @1',
        "outputs (%3, %4)",
    )
    check_kernels([*whole, *narrow, mixed])


def test_broadcasts_and_several_results(check_kernels: Check) -> None:
    check_kernels(
        [
            hard_swish("1,8,5,21", "1,8,1,1"),
            hard_swish("2,3,4,16", "1"),
            hard_swish("9000", "9000"),
            hard_swish("1,1,7", "1,1,1"),
            binary("mul", "6,1,5", "1,7,1", "6,7,5"),
            binary("add", "2,3", "4,2,3", "4,2,3"),
            binary("add", "", "", ""),
        ]
    )


def test_layouts(check_kernels: Check) -> None:
    check_kernels(
        [
            layout("18,35", "transpose perm=[1,0]", "35,18"),
            layout("2,5,17,3", "transpose perm=[0,2,1,3]", "2,17,5,3"),
            layout("2,20,18", "transpose perm=[0,2,1]", "2,18,20"),
            layout("4,6,10", "reshape", "24,10"),
            layout("4,6,10", "reshape", "5,48"),
            layout("6,40", "slice starts=[1,3] steps=[2,1]", "2,30"),
            layout("6,40", "slice starts=[5,39] steps=[-1,-2]", "6,20"),
            layout("3,5,7", "pad before=[0,1,2] value=1.5", "3,8,11", "exp"),
            layout("5,30", "gather axis=1 indices=[2,1,0,1,2,3,4,5,6,7,8,9,10,9,8]", "5,15"),
            layout("2,9,20", "gather axis=2 indices=[0,0,1,1,2,2,3,3,4,4,5,5,6,6,7,7]", "2,9,16"),
            layout("1,7,1", "broadcast", "3,7,21"),
        ]
    )


def test_concatenation(check_kernels: Check) -> None:
    check_kernels(
        [
            graph(
                '%0 "a" f32[2,3,20] = input',
                '%1 "b" f32[2,5,20] = input',
                '%2 "n" f32[2,5,20] = elementwise neg (%1) @0',
                '%3 "c" f32[2,11,20] = concat axis=1 (%0, %2, %0) @1',
                '%4 "y" f32[2,11,20] = elementwise exp (%3) @2',
                "outputs (%4)",
            ),
            graph(
                '%0 "a" f32[4,9] = input',
                '%1 "b" f32[4,14] = input',
                '%2 "c" f32[4,23] = concat axis=1 (%0, %1) @1',
                '%3 "y" f32[4,23] = elementwise abs (%2) @2',
                "outputs (%3)",
            ),
        ]
    )


def test_what_is_picked_of_a_concatenation_is_concatenated(check_clean_kernels: Check) -> None:
    """Where the outer part is not meant, the positions of the picks and those of the inner parts leave their tables."""
    check_clean_kernels(
        [
            graph(
                '%0 "a" u16[17] = input',
                '%1 "b" u16[1] = input',
                '%2 "c" u16[34] = concat axis=0 (%0, %0) @0',
                '%3 "g" u16[3] = gather axis=0 indices=[22,0,6] (%2) @1',
                '%4 "y" u16[72] = concat axis=0 (%2, %2, %3, %1) @2',
                "outputs (%4)",
            ),
            graph(
                '%0 "a" f32[5,3] = input',
                '%1 "b" f32[5,1] = input',
                '%2 "c" f32[5,6] = concat axis=1 (%0, %0) @0',
                '%3 "g" f32[5,10] = gather axis=1 indices=[4,5,3,5,0,5,1,4,2,2] (%2) @1',
                '%4 "d" f32[5,20] = concat axis=1 (%3, %3) @2',
                '%5 "h" f32[5,7] = gather axis=1 indices=[19,3,3,11,0,1,7] (%4) @3',
                '%6 "y" f32[5,29] = concat axis=1 (%1, %4, %5, %1) @4',
                "outputs (%6)",
            ),
            # What a mean of windows divides by lies in a table too; and so may the positions that are padded.
            graph(
                '%0 "a" f32[1,2,6,40] = input',
                '%1 "m" f32[1,2,6,40] = window_reduce mean window=[3,3] strides=[1,1] dilations=[1,1] before=[1,1] '
                "after=[1,1] count_padding=false (%0) @0",
                '%2 "g" f32[1,2,6,11] = gather axis=3 indices=[4,39,3,5,0,5,1,38,2,2,0] (%1) @1',
                '%3 "c" f32[1,2,6,51] = concat axis=3 (%2, %0) @2',
                '%4 "p" f32[1,2,6,57] = pad before=[0,0,0,3] value=1.0 (%3) @3',
                '%5 "h" f32[1,2,6,9] = gather axis=3 indices=[5,0,56,9,1,17,2,30,8] (%4) @4',
                '%6 "y" f32[1,2,6,49] = concat axis=3 (%0, %5) @5',
                "outputs (%6)",
            ),
        ]
    )


@pytest.mark.parametrize(
    ("shape", "axes", "reduced"),
    [
        ("7,50", "1", "7,1"),
        ("3,4,129", "2", "3,4,1"),
        ("5,3", "1", "5,1"),
        ("2,40,24", "1", "2,1,24"),
        ("3,11,5,18", "1", "3,1,5,18"),
        ("33", "0", "1"),
        ("2,6,8,9", "2,3", "2,6,1,1"),
    ],
)
def test_softmax(check_kernels: Check, shape: str, axes: str, reduced: str) -> None:
    check_kernels([softmax("f32", shape, axes, reduced)])


@pytest.mark.parametrize(
    ("shape", "axes", "reduced", "scale"),
    [
        ("6,96", "1", "6,1", "96"),
        ("2,5,17,9", "2,3", "2,5,1,1", "1,5,1,1"),
        ("4,30,19", "1", "4,1,19", "1,30,1"),
        ("1,640", "1", "1,1", "640"),
        ("12,4", "1", "12,1", "4"),
    ],
)
def test_normalisation_with_a_residual(check_kernels: Check, shape: str, axes: str, reduced: str, scale: str) -> None:
    check_kernels([normalization(shape, axes, reduced, scale)])


def test_reductions(check_kernels: Check) -> None:
    def reduction(function: str, shape: str, axes: str, reduced: str) -> PrimitiveGraph:
        return graph(
            f'%0 "x" f32[{shape}] = input',
            f'%1 "y" f32[{reduced}] = reduce {function} axes=[{axes}] (%0) @0',
            "outputs (%1)",
        )

    shapes = [
        ("4,70", "1", "4,1"),
        ("3,5,40", "0,1", "1,1,40"),
        ("2,3,4,5", "0,1,2,3", "1,1,1,1"),
        ("9,33", "0", "1,33"),
    ]
    functions = ("sum", "mean", "max", "min")
    check_kernels([reduction(f, *s) for f in functions for s in shapes] + [reduction("prod", "4,6", "1", "4,1")])


def test_transposed_results_beside_reductions(check_kernels: Check) -> None:
    """An operand may be read across the lanes in loops of which some are not open yet where squares are."""
    graphs = []
    for perm in itertools.permutations(range(3)):
        for axes in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2)):
            extents = (17, 9, 8)
            reduced = ",".join("1" if axis in axes else str(e) for axis, e in enumerate(extents))
            across = ",".join(str(extents[axis]) for axis in perm)
            graphs.append(
                graph(
                    '%0 "x" f32[17,9,8] = input',
                    f'%1 "s" f32[{reduced}] = reduce sum axes=[{",".join(map(str, axes))}] (%0) @0',
                    f'%2 "t" f32[{across}] = transpose perm=[{",".join(map(str, perm))}] (%0) @1',
                    f'%3 "n" f32[{across}] = elementwise neg (%2) @2',
                    "outputs (%1, %3)",
                )
            )
    check_kernels(graphs)


def test_windows(check_kernels: Check) -> None:
    square = "window=[3,3] strides=[2,2] dilations=[1,1] before=[1,1] after=[1,1] count_padding"
    row = "window=[1,2] strides=[1,2] dilations=[1,1] before=[0,0] after=[0,0] count_padding=false"
    check_kernels(
        [
            window("max", "1,3,13,18", "1,3,7,9", f"{square}=false"),
            window("mean", "1,3,13,18", "1,3,7,9", f"{square}=false"),
            window("mean", "1,3,13,18", "1,3,7,9", f"{square}=true"),
            window("sum", "2,2,6,40", "2,2,6,20", row),
            window(
                "mean",
                "1,2,20",
                "1,2,18",
                "window=[3] strides=[1] dilations=[1] before=[0] after=[0] count_padding=false",
            ),
        ]
    )


def test_equal_bodies_have_equal_text_whatever_their_tensors_are_called() -> None:
    def named(name: str) -> KernelBody:
        of = graph(
            f'%0 "{name}/x" f32[4,8] = input',
            f'%1 "{name}/y" f32[4,8] = elementwise exp (%0) @{len(name)}',
            "outputs (%1)",
        )
        return KernelBody("digest", of, (0,), (1,))

    assert generate(named("a")) == generate(named("another"))


def test_source_says_what_it_computes() -> None:
    (kernel,) = generate(KernelBody("digest", hard_swish("1,8,5,21", "1,8,1,1"), (0, 1), (10, 5)))
    assert "// v6: f32[1,8,5,21] = elementwise add (v5, 3.0)" in kernel.source
    assert f"// Schedule: {kernel.schedule}." in kernel.source
    assert kernel.name in kernel.source
    assert kernel.units >= 8
    assert kernel.unit_bytes > 0
    assert kernel.unit_flops > 0


@pytest.mark.parametrize(
    "of",
    [
        graph('%0 "x" f32[4,4] = input', '%1 "y" f32[4,4] = linear matmul (%0, %0) @0', "outputs (%1)"),
        graph('%0 "x" string[4] = input', '%1 "y" string[4] = reshape (%0) @0', "outputs (%1)"),
        graph('%0 "x" f32[0,4] = input', '%1 "y" f32[0,4] = elementwise neg (%0) @0', "outputs (%1)"),
    ],
)
def test_what_is_not_generated_is_refused_with_a_sentence(of: PrimitiveGraph) -> None:
    with pytest.raises(Refusal) as refused:
        generate(KernelBody("digest", of, (0,), of.outputs))
    assert refused.value.sentence.endswith(".")
