"""What the compiler makes of kernels: their inner loops compute with whole vectors, in every class of schedules."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from korch_cli.codegen import generate
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Kernel, KernelBody
from korch_cli.toolchain import Compiler, find_compiler
from tests.compilers import CLANG
from tests.unit.codegen.body_graphs import graph, layout, softmax
from tests.unit.codegen.machine_loops import assembled, assembly, innermost_loops


def chain(*functions: str, dtype: str = "f32") -> PrimitiveGraph:
    lines = [f'%0 "x" {dtype}[64,512] = input']
    lines += [f'%{i} "v{i}" {dtype}[64,512] = elementwise {f} (%{i - 1}) @0' for i, f in enumerate(functions, 1)]
    return graph(*lines, f"outputs (%{len(functions)})")


def normalization(shape: str, axes: str, reduced: str) -> PrimitiveGraph:
    return graph(
        f'%0 "x" f32[{shape}] = input',
        '%1 "e" f32[] = literal 1e-05',
        f'%2 "m" f32[{reduced}] = reduce mean axes=[{axes}] (%0) @0',
        f'%3 "d" f32[{shape}] = elementwise sub (%0, %2) @0',
        f'%4 "q" f32[{shape}] = elementwise mul (%3, %3) @0',
        f'%5 "v" f32[{reduced}] = reduce mean axes=[{axes}] (%4) @0',
        f'%6 "a" f32[{reduced}] = elementwise add (%5, %1) @0',
        f'%7 "s" f32[{reduced}] = elementwise sqrt (%6) @0',
        f'%8 "y" f32[{shape}] = elementwise div (%3, %7) @0',
        "outputs (%8)",
    )


def pooling(function: str, extent: int, attributes: str) -> PrimitiveGraph:
    return graph(
        '%0 "x" f32[1,32,64,64] = input',
        f'%1 "y" f32[1,32,{extent},{extent}] = window_reduce {function} window=[3,3] {attributes} (%0) @0',
        f'%2 "z" f32[1,32,{extent},{extent}] = elementwise sigmoid (%1) @1',
        "outputs (%2)",
    )


def transposed(dtype: str) -> PrimitiveGraph:
    return graph(
        f'%0 "x" {dtype}[256,512] = input',
        f'%1 "r" {dtype}[512,256] = input',
        f'%2 "t" {dtype}[512,256] = transpose perm=[1,0] (%0) @0',
        f'%3 "y" {dtype}[512,256] = elementwise add (%2, %1) @1',
        "outputs (%3)",
    )


SELECTED = graph(
    '%0 "c" bool[64,512] = input',
    '%1 "a" f32[64,512] = input',
    '%2 "b" f32[512] = input',
    '%3 "y" f32[64,512] = elementwise where (%0, %1, %2) @0',
    '%4 "z" f32[64,512] = elementwise add (%3, %1) @0',
    "outputs (%4)",
)
PADDED = "before=[1,1] after=[1,1] count_padding=false"
FUNCTIONS = ("abs", "ceil", "erf", "exp", "floor", "log", "reciprocal", "round", "sigmoid", "sign", "softplus", "sqrt")
CASES: list[tuple[str, str, PrimitiveGraph]] = [
    *(("pointwise", f, chain(f, "tanh")) for f in FUNCTIONS),
    ("pointwise", "f16", chain("tanh", "sigmoid", dtype="f16")),
    ("pointwise", "bf16", chain("tanh", "sigmoid", dtype="bf16")),
    ("pointwise", "mask", SELECTED),
    ("pointwise", "slice", layout("64,1024", "slice starts=[0,0] steps=[1,2]", "64,512")),
    ("pointwise", "reversed", layout("64,512", "slice starts=[0,511] steps=[1,-1]", "64,512")),
    ("tiled", "f32", transposed("f32")),
    ("tiled", "f16", transposed("f16")),
    ("row", "normalization", normalization("128,768", "1", "128,1")),
    ("rows", "normalization", normalization("128,160", "1", "128,1")),
    ("row", "two axes", normalization("1,64,56,56", "2,3", "1,64,1,1")),
    ("row", "softmax", softmax("f32", "64,1024", "1", "64,1")),
    ("row", "softmax of f16", softmax("f16", "64,1024", "1", "64,1")),
    ("rows", "softmax", softmax("f32", "64,256", "1", "64,1")),
    ("rows", "softmax of f16", softmax("f16", "64,256", "1", "64,1")),
    ("column", "normalization", normalization("4,64,256", "1", "4,1,256")),
    ("column", "softmax", softmax("f32", "4,64,256", "1", "4,1,256")),
    ("column", "mean of windows", pooling("mean", 64, f"strides=[1,1] dilations=[1,1] {PADDED}")),
    ("column", "max of windows", pooling("max", 32, f"strides=[2,2] dilations=[1,1] {PADDED}")),
]


@pytest.fixture(params=["g++", CLANG], ids=["g++", "clang"])
def compiler(request: pytest.FixtureRequest) -> Compiler:
    name: str = request.param
    if shutil.which(shlex.split(name)[0]) is None:
        pytest.skip(f"{name} is not installed")
    return find_compiler(name)


def vector_bytes(compiler: Compiler) -> int:
    names = {feature.name for feature in compiler.features}
    return 64 if "avx512f" in names else 32 if "avx" in names else 16


def scheduled(body: PrimitiveGraph, kind: str) -> Kernel:
    inputs = tuple(value.id for value in body.inputs())
    return next(k for k in generate(KernelBody("digest", body, inputs, body.outputs)) if k.schedule == kind)


@pytest.mark.parametrize(("kind", "body"), [(k, b) for k, _, b in CASES], ids=[f"{k}: {n}" for k, n, _ in CASES])
def test_inner_loops_compute_with_whole_vectors(
    compiler: Compiler, kind: str, body: PrimitiveGraph, tmp_path: Path
) -> None:
    kernel = scheduled(body, kind)
    loops = innermost_loops(assembly(kernel, compiler, tmp_path), vector_bytes(compiler))
    # Clang keeps some masks as numbers, and takes parts of loops into others.
    few = 0.0 if "g++" in compiler.command[0] else 0.2
    clean = [loop for loop in loops if loop.packed and len(loop.elementwise) <= few * len(loop.packed)]
    assert clean, kernel.source
    # Extents are multiples of every vector's length, so that nothing is left over; but squares have a rest.
    if kind != "tiled":
        assert not [loop for loop in loops if loop.elementwise and loop not in clean], kernel.source


@pytest.mark.parametrize("times", [2, 4, 8])
def test_repeated_elements_are_spread_in_registers(compiler: Compiler, times: int, tmp_path: Path) -> None:
    positions = ",".join(str(i // times) for i in range(512))
    kernel = scheduled(layout(f"64,{512 // times}", f"gather axis=1 indices=[{positions}]", "64,512"), "pointwise")
    assert f"load_repeated<V, {times}>" in kernel.source
    assert not assembled(assembly(kernel, compiler, tmp_path))


@pytest.mark.parametrize("function", ["max", "min"])
def test_single_elements_fill_vectors_at_once(compiler: Compiler, function: str, tmp_path: Path) -> None:
    body = graph(
        '%0 "x" f32[64,512] = input',
        '%1 "w" f32[64,1] = input',
        f'%2 "y" f32[64,512] = elementwise {function} (%0, %1) @0',
        "outputs (%2)",
    )
    kernel = scheduled(body, "pointwise")
    assert "broadcast<V>(v1)" in kernel.source
    assert not assembled(assembly(kernel, compiler, tmp_path))


def test_loops_that_are_not_vectors_are_seen(tmp_path: Path) -> None:
    (kernel,) = generate(KernelBody("digest", chain("exp", dtype="f64"), (0,), (1,)))
    loops = innermost_loops(assembly(kernel, find_compiler(), tmp_path), 16)
    assert any(loop.elementwise for loop in loops)
    assert not any(loop.packed for loop in loops)
