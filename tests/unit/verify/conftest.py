from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from korch_cli.core.artifact import LibraryEntry
from korch_cli.core.kernel import Kernel
from korch_cli.core.progress import Silent
from korch_cli.core.types import DType, TensorType
from korch_cli.emit import ort_headers, registration_unit
from korch_cli.toolchain import compile_units, find_compiler, link

DOMAIN = "korch.test"
FOUR = TensorType(DType.F32, (4,))

ModelWriter = Callable[..., Path]


@pytest.fixture
def write_model(tmp_path: Path) -> ModelWriter:
    """Writes a chain of unary operators on four floats; those of `DOMAIN` are functions that double."""

    def write(name: str, *ops: str, domain: str = "", shape: tuple[int, ...] = (4,)) -> Path:
        tensors = ["x", *(f"t{i}" for i in range(len(ops) - 1)), "y"]
        nodes = [
            helper.make_node(op, [a], [b], name=f"{op}_{b}", domain=domain)
            for op, a, b in zip(ops, tensors, tensors[1:], strict=False)
        ]
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
        imports = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
        double = helper.make_node("Add", ["i", "i"], ["o"])
        functions = [
            helper.make_function(domain, op, ["i"], ["o"], [double], [helper.make_opsetid("", 17)])
            for op in dict.fromkeys(ops)
            if domain
        ]
        graph = helper.make_graph(nodes, "g", inputs, outputs)
        path = tmp_path / name
        onnx.save(helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=9), path)
        return path

    return write


def entry(name: str, statement: str) -> LibraryEntry:
    """A kernel that runs a statement for each i of four floats, reading x and writing y."""
    source = f"""#include <stdint.h>
#include <stdlib.h>
extern "C" void {name}(const void* const* in, void* const* out, int64_t begin, int64_t end) {{
  const float* x = (const float*)in[0];
  float* y = (float*)out[0];
  for (int64_t i = 0; i < 4; ++i) {{ {statement} }}
}}
"""
    return LibraryEntry(Kernel(name, name, "test", source, 1, 32, 4), (FOUR,), (FOUR,))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernels that double their input: one rightly, others not."""
    entries = [
        entry("right", "y[i] = 2 * x[i];"),
        entry("wrong", "y[i] = 2 * x[i] + (i == 2 ? 0.5f : 0.0f);"),
        entry("crashes", "y[i] = x[i]; abort();"),
    ]
    folder = tmp_path_factory.mktemp("library")
    units = {e.kernel.name: e.kernel.source for e in entries}
    units["registration"] = registration_unit(DOMAIN, entries, {})
    built = compile_units(find_compiler(), units, ort_headers(), folder, jobs=1, progress=Silent())
    objects = [path for path in built.values() if isinstance(path, Path)]
    assert len(objects) == len(units), built
    link(find_compiler(), objects, folder / "m.korch.so")
    return folder / "m.korch.so"


@pytest.fixture(scope="session")
def aborting_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that ends the process as soon as it is registered."""
    folder = tmp_path_factory.mktemp("aborting")
    source = folder / "m.cpp"
    source.write_text('#include <stdlib.h>\nextern "C" void* RegisterCustomOps(void*, void*) { abort(); }\n')
    compiler = shutil.which("g++") or shutil.which("clang++")
    assert compiler is not None
    subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(folder / "m.korch.so")], check=True)
    return folder / "m.korch.so"
