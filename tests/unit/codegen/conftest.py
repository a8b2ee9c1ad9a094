"""Runs generated kernels the way the library does, without ONNX Runtime, and compares them with numpy in float64."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from korch_cli.codegen import generate, headers
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.interpreter import evaluate
from korch_cli.core.kernel import Kernel, KernelBody
from korch_cli.core.processor import NATIVE
from korch_cli.core.progress import Silent
from korch_cli.core.types import Array, DType
from korch_cli.toolchain import BuildFailure, Compiler, compile_units, find_compiler, link
from tests.compilers import CLANG
from tests.emulation.emulating import EmulatedKernels, link_program
from tests.unit.codegen.drawing import EPSILONS, draw_operand

GUARD = 64
"""Bytes around every result that no kernel may touch."""

Check = Callable[[Sequence[PrimitiveGraph]], list[Kernel]]
"""Generates, builds and checks kernels for bodies; returns the kernels."""
Run = Callable[[str, Sequence[Array], Sequence[Array], Sequence[tuple[int, int]]], None]
"""Runs parts of the units of a kernel: its name, operands, guarded bytes of its results, and the parts."""
EMULATOR = os.environ.get("KORCH_TEST_EMULATOR", "")
"""What runs kernels of another processor; KORCH_CXX has to name a compiler for that one."""
PROCESSOR = os.environ.get("KORCH_TEST_PROCESSOR", NATIVE)


def kernel_compiler() -> Compiler:
    """Return the compiler of this test run."""
    return find_compiler(os.environ.get("KORCH_CXX"), PROCESSOR)


@pytest.fixture(scope="session")
def quick_compiler() -> Compiler:
    found = kernel_compiler()
    flags = tuple(f for f in found.flags if f not in ("-O3", "-fvisibility=hidden"))
    return Compiler(found.command, (*flags, "-O1"), f"{found.identity} -O1")


@pytest.fixture(scope="session")
def cuda_builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where CUDA text that runs on the CPU is compiled."""
    return tmp_path_factory.mktemp("cuda_on_cpu")


@pytest.fixture
def check_kernels(tmp_path: Path, quick_compiler: Compiler) -> Check:
    return _check_with(quick_compiler, tmp_path)


@pytest.fixture
def check_shipped_kernels(tmp_path: Path) -> Check:
    """The same with the flags that kernels are shipped with; these may bring out errors of a compiler."""
    return _check_with(_visible(kernel_compiler()), tmp_path)


@pytest.fixture
def check_clang_kernels(tmp_path: Path) -> Check:
    """The same as clang compiles them, where the others are compiled by GCC."""
    return _check_with(_visible(find_compiler(CLANG)), tmp_path)


def _visible(found: Compiler) -> Compiler:
    flags = tuple(f for f in found.flags if f != "-fvisibility=hidden")
    return Compiler(found.command, flags, f"{found.identity} visible")


@pytest.fixture
def check_clean_kernels(tmp_path: Path, quick_compiler: Compiler) -> Check:
    """The same in a program that ends where a kernel reads or writes outside of what it was given."""
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    sanitized = Compiler(quick_compiler.command, (*quick_compiler.flags, *flags), f"{quick_compiler.identity} {flags}")
    return _check_with(sanitized, tmp_path, in_program=True)


def _check_with(compiler: Compiler, tmp_path: Path, *, in_program: bool = bool(EMULATOR)) -> Check:
    def check(graphs: Sequence[PrimitiveGraph]) -> list[Kernel]:
        kernels = [(graph, kernel) for graph in graphs for kernel in generate(_body(graph))]
        names = [kernel.name for _, kernel in kernels]
        units = {kernel.name: kernel.source for _, kernel in kernels}
        built = compile_units(compiler, units, headers(), tmp_path, jobs=2, progress=Silent())
        for name, result in built.items():
            assert not isinstance(result, BuildFailure), f"{result.log}\n{units[name]}"
        objects = [path for path in built.values() if isinstance(path, Path)]
        # A library stays loaded under its path, so that each needs one of its own.
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        run = (_in_program if in_program else _loaded)(compiler, objects, names, folder)
        for graph, kernel in kernels:
            for seed in range(2):
                _compare(graph, kernel, run, np.random.default_rng(seed))
        return [kernel for _, kernel in kernels]

    return check


def _loaded(compiler: Compiler, objects: Sequence[Path], names: Sequence[str], folder: Path) -> Run:
    link(compiler, objects, folder / "kernels.so", exports=names)
    library = ctypes.CDLL(str(folder / "kernels.so"))

    def run(name: str, inputs: Sequence[Array], outputs: Sequence[Array], parts: Sequence[tuple[int, int]]) -> None:
        operands = (ctypes.c_void_p * max(1, len(inputs)))(*[a.ctypes.data for a in inputs])
        results = (ctypes.c_void_p * len(outputs))(*[a.ctypes.data + GUARD for a in outputs])
        for begin, end in parts:
            getattr(library, name)(operands, results, ctypes.c_int64(begin), ctypes.c_int64(end))

    return run


def _in_program(compiler: Compiler, objects: Sequence[Path], names: Sequence[str], folder: Path) -> Run:
    link_program(compiler, objects, names, folder / "kernels", guard=GUARD)
    return EmulatedKernels(folder / "kernels", EMULATOR).run


def _body(graph: PrimitiveGraph) -> KernelBody:
    return KernelBody("digest", graph, tuple(v.id for v in graph.inputs()), graph.outputs)


def _compare(graph: PrimitiveGraph, kernel: Kernel, run: Run, rng: np.random.Generator) -> None:
    feeds = {value.id: draw_operand(value.type, rng) for value in graph.inputs()}
    # Sixteen bits are rounded after each primitive, which is no error of a kernel.
    narrow = any(value.type.dtype in (DType.F16, DType.BF16) for value in graph.values)
    expected = evaluate(graph, feeds, widen=not narrow)
    _judge(graph, kernel, feeds, expected, run, rng)
    for pair in kernel.in_place:
        _judge(graph, kernel, feeds, expected, run, rng, reused=pair)


def _judge(
    graph: PrimitiveGraph,
    kernel: Kernel,
    feeds: Mapping[int, Array],
    expected: Mapping[int, Array],
    run: Run,
    rng: np.random.Generator,
    reused: tuple[int, int] | None = None,
) -> None:
    """Run a kernel, with an operand in the memory of a result if they are `reused`, and compare."""
    raw = [np.full(graph.values[v].type.size_bytes + 2 * GUARD, 0xAB, np.uint8) for v in graph.outputs]
    operands = list(feeds.values())
    if reused is not None:
        given, made = reused
        place = raw[made][GUARD:-GUARD].view(operands[given].dtype).reshape(operands[given].shape)
        place[...] = operands[given]
        operands[given] = place
    cuts = sorted({0, kernel.units, *rng.integers(0, kernel.units + 1, 3).tolist()})
    parts = list(pairwise(cuts))
    rng.shuffle(parts)
    run(kernel.name, operands, raw, parts)
    for v, bytes_ in zip(graph.outputs, raw, strict=True):
        typed = graph.values[v].type
        assert (bytes_[:GUARD] == 0xAB).all(), f"{kernel.name} writes before its result\n{kernel.source}"
        assert (bytes_[-GUARD:] == 0xAB).all(), f"{kernel.name} writes behind its result\n{kernel.source}"
        got = bytes_[GUARD:-GUARD].view(typed.dtype.numpy).reshape(typed.shape).astype(np.float64)
        want = np.asarray(expected[v], np.float64).reshape(typed.shape)
        scale = max(1.0, float(np.abs(want[np.isfinite(want)]).max(initial=0.0)))
        epsilon = EPSILONS.get(typed.dtype, 0.0)
        np.testing.assert_allclose(got, want, rtol=epsilon, atol=epsilon / 10 * scale, err_msg=kernel.source)
