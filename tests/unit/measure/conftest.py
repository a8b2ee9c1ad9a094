from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from korch_cli.core.artifact import KernelJob, LibraryEntry
from korch_cli.core.kernel import Kernel
from korch_cli.core.progress import Silent
from korch_cli.core.types import DType, TensorType
from korch_cli.emit import empty_model, ort_headers, registration_unit
from korch_cli.toolchain import compile_units, find_compiler, link

DOMAIN = "korch.test"
TYPE = TensorType(DType.F32, (64,))

JobMaker = Callable[..., KernelJob]


def entry(name: str, statement: str) -> LibraryEntry:
    """A kernel that runs a statement for each i of 64 floats, reading x and writing y."""
    source = f"""#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
extern "C" void {name}(const void* const* in, void* const* out, int64_t begin, int64_t end) {{
  const float* x = (const float*)in[0];
  float* y = (float*)out[0];
  for (int64_t i = 0; i < 64; ++i) {{ {statement} }}
}}
"""
    return LibraryEntry(Kernel(name, name, "test", source, 1, 512, 64), (TYPE,), (TYPE,))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernels for the square root: some right, others not."""
    entries = [
        entry("right", "y[i] = sqrtf(x[i]);"),
        entry("wrong", "y[i] = sqrtf(x[i]); if (i == 7) y[i] = fabsf(x[i]) + 100.0f; if (i == 9) y[i] = 3e5f;"),
        entry("loses_nan", "y[i] = x[i] < 0 ? 0 : sqrtf(x[i]);"),
        entry("crashes", "y[i] = x[i]; raise(SIGSEGV);"),
        entry("leaves", "y[i] = x[i]; _exit(3);"),
        entry("hangs", "y[i] = x[i]; for (;;) pause();"),
    ]
    folder = tmp_path_factory.mktemp("library")
    units = {e.kernel.name: e.kernel.source for e in entries}
    units["registration"] = registration_unit(DOMAIN, entries, {})
    built = compile_units(find_compiler(), units, ort_headers(), folder, jobs=1, progress=Silent())
    objects = [path for path in built.values() if isinstance(path, Path)]
    assert len(objects) == len(units), built
    link(find_compiler(), objects, folder / "kernels.so")
    return folder / "kernels.so"


@pytest.fixture(scope="session")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("baseline") / "empty.onnx"
    onnx.save(empty_model(), path)
    return path


@pytest.fixture
def job(tmp_path: Path, library: Path) -> JobMaker:
    """Makes the job of a kernel whose function is a standard operator."""

    def make(name: str, *, standard: str = "Sqrt", replicas: int = 2) -> KernelJob:
        names = [f"x{i}" for i in range(replicas)]
        graph = helper.make_graph(
            [helper.make_node(name, [x], [f"y{x}"], name=f"n_{x}", domain=DOMAIN) for x in names],
            "g",
            [helper.make_tensor_value_info(x, TensorProto.FLOAT, TYPE.shape) for x in names],
            [helper.make_tensor_value_info(f"y{x}", TensorProto.FLOAT, TYPE.shape) for x in names],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
        body = helper.make_node(standard, ["i"], ["o"])
        function = helper.make_function(DOMAIN, name, ["i"], ["o"], [body], opsets[:1])
        path = tmp_path / f"{name}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=9), path)
        inputs = tuple((x, TYPE) for x in names)
        return KernelJob(name, name, path, DOMAIN, replicas, library, inputs, rtol=1e-4, atol=1e-5)

    return make
