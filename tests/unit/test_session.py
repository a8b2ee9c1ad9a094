from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import korch_cli
from korch_cli.core.artifact import LibraryEntry
from korch_cli.core.errors import MissingError
from korch_cli.core.kernel import Kernel
from korch_cli.core.progress import Silent
from korch_cli.core.types import DType, TensorType
from korch_cli.emit import ort_headers, registration_unit
from korch_cli.toolchain import compile_units, find_compiler, link

X = np.array([1.0, 2.0], np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model whose operator doubles, by its function."""
    functions = [
        helper.make_function(
            "korch.s",
            "twice",
            ["i"],
            ["o"],
            [helper.make_node("Add", ["i", "i"], ["o"])],
            [helper.make_opsetid("", 17)],
        )
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (2,)) for name in "xy")
    graph = helper.make_graph([helper.make_node("twice", ["x"], ["y"], domain="korch.s")], "g", [x], [y])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("korch.s", 1)]
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=9), path)
    return path


def build_library(path: Path) -> None:
    """A library whose kernel triples, so that its results tell that it ran."""
    source = """#include <stdint.h>
extern "C" void twice(const void* const* in, void* const* out, int64_t, int64_t) {
  for (int i = 0; i < 2; ++i) ((float*)out[0])[i] = 3 * ((const float*)in[0])[i];
}
"""
    typed = (TensorType(DType.F32, (2,)),)
    entries = [LibraryEntry(Kernel("twice", "", "", source, 1, 16, 2), typed, typed)]
    units = {"twice": source, "registration": registration_unit("korch.s", entries, {})}
    compiler = find_compiler()
    built = compile_units(compiler, units, ort_headers(), path.parent / "objects", jobs=1, progress=Silent())
    link(compiler, [o for o in built.values() if isinstance(o, Path)], path)


def test_without_a_library_the_functions_run(model: Path) -> None:
    session = korch_cli.load_session(model)
    assert session.get_providers() == ["CPUExecutionProvider"]
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], 2 * X)


def test_the_library_beside_the_model_runs(model: Path) -> None:
    build_library(model.with_name("m.korch.so"))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    for path in (model, str(model)):
        session = korch_cli.load_session(path)
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], 3 * X)
    session = korch_cli.load_session(model, sess_options=options, providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], 3 * X)
    assert session.get_session_options().intra_op_num_threads == 1


def test_a_library_that_is_refused_is_explained(model: Path) -> None:
    model.with_name("m.korch.so").write_bytes(b"no library")
    with pytest.raises(MissingError, match="refuses the model's kernel library") as caught:
        korch_cli.load_session(model)
    assert caught.value.where == str(model.with_name("m.korch.so"))


def test_importing_korch_does_not_import_onnxruntime() -> None:
    program = "import sys, korch_cli; assert not {'onnxruntime', 'onnx', 'numpy'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(AttributeError, match="nonsense"):
        korch_cli.nonsense  # noqa: B018
