"""The script that compares versions of ONNX Runtime: what it accepts and what it does not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from korch_cli.core.artifact import LibraryEntry
from korch_cli.core.kernel import Kernel
from korch_cli.core.progress import Silent
from korch_cli.core.types import DType, TensorType
from korch_cli.emit import ort_headers, registration_unit
from korch_cli.toolchain import compile_units, find_compiler, link

DOMAIN = "korch.compat00"
SCRIPT = Path(__file__).parents[3] / "scripts" / "compat.py"
RECIPROCAL = """\
#include <stdint.h>
extern "C" void reciprocal(const void* const* in, void* const* out, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) ((float*)out[0])[i] = 1 / ((const float*)in[0])[i];
}
"""


@pytest.fixture(scope="module")
def compat() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compat", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compat")
    typed = TensorType(DType.F32, (4,))
    entry = LibraryEntry(Kernel("reciprocal", "d", "row", RECIPROCAL, 4, 8, 1), (typed,), (typed,))
    units = {"kernel": RECIPROCAL, "registration": registration_unit(DOMAIN, [entry], {})}
    compiler = find_compiler()
    objects = compile_units(compiler, units, ort_headers(), folder, jobs=1, progress=Silent())
    link(compiler, [path for path in objects.values() if isinstance(path, Path)], folder / "m.korch.so")
    return folder / "m.korch.so"


def model(folder: Path, domain: str = DOMAIN) -> Path:
    opsets = [helper.make_opsetid("", 17)]
    body = [helper.make_node("Reciprocal", ["a"], ["r"])]
    graph = helper.make_graph(
        [helper.make_node("reciprocal", ["x"], ["y"], domain=domain)],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
    )
    function = helper.make_function(domain, "reciprocal", ["a"], ["r"], body, opsets)
    imports = [*opsets, helper.make_opsetid(domain, 1)]
    onnx.save(helper.make_model(graph, functions=[function], opset_imports=imports, ir_version=8), folder / "m.onnx")
    return folder / "m.onnx"


@pytest.mark.parametrize(
    ("fed", "expected", "right"),
    [
        ([1, 2, 4, 8], [1, 0.5, 0.25, 0.125], True),
        ([0, 2, 4, np.nan], [np.inf, 0.5, 0.25, np.nan], True),
        ([1, 2, 4, 8], [1, 0.5, 0.25, 0.13], False),
        ([1, 2, 4, np.nan], [1, 0.5, 0.25, 0.125], False),
        ([0, 2, 4, 8], [-np.inf, 0.5, 0.25, 0.125], False),
        ([1, 1, 1, 1], [[1, 1, 1, 1], [1, 1, 1, 1]], False),
    ],
)
def test_outputs_must_be_those_that_are_expected(
    compat: ModuleType, library: Path, tmp_path: Path, fed: list[float], expected: list[float], right: bool
) -> None:
    np.savez(tmp_path / "inputs.npz", x=np.array(fed, np.float32))
    np.savez(tmp_path / "outputs.npz", y=np.array(expected, np.float32))
    assert compat.report(Path(sys.executable), model(tmp_path), library, ["reciprocal"], tmp_path) is right


def test_a_library_whose_kernels_do_not_run_is_not_accepted(compat: ModuleType, library: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=np.ones(4, np.float32))
    np.savez(tmp_path / "outputs.npz", y=np.ones(4, np.float32))
    unrelated = model(tmp_path, "korch.other000")
    assert not compat.report(Path(sys.executable), unrelated, library, ["reciprocal"], tmp_path)
