"""Kernels that may write where they read do so in ONNX Runtime, where nothing else needs what they read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from korch_cli.core.artifact import LibraryEntry
from korch_cli.core.kernel import Kernel
from korch_cli.core.progress import Silent
from korch_cli.core.types import DType, TensorType
from korch_cli.emit import ort_headers, registration_unit
from korch_cli.toolchain import compile_units, find_compiler, link

DOMAIN = "korch.0123abce"
SHAPE = (16, 64)
TYPE = TensorType(DType.F32, SHAPE)
# Which of its operands lies where its result does: 1 for the first, 2 for the second, 0 for none.
WHERE = """\
#include <stdint.h>
extern "C" void {name}(const void* const* in, void* const* out, int64_t begin, int64_t end) {{
  const float place = in[0] == out[0] ? 1.0f : in[1] == out[0] ? 2.0f : 0.0f;
  for (int64_t i = 64 * begin; i < 64 * end; ++i) ((float*)out[0])[i] = place;
}}
"""


def entry(name: str, pairs: tuple[tuple[int, int], ...]) -> LibraryEntry:
    kernel = Kernel(name, "d", "row", WHERE.format(name=name), 16, 512, 64, pairs)
    return LibraryEntry(kernel, (TYPE, TYPE), (TYPE,))


ENTRIES = (entry("never", ()), entry("first", ((0, 0),)), entry("second", ((1, 0),)), entry("any", ((0, 0), (1, 0))))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("in_place")
    units = {e.kernel.name: e.kernel.source for e in ENTRIES} | {"r": registration_unit(DOMAIN, ENTRIES, {})}
    objects = compile_units(find_compiler(), units, ort_headers(), folder, jobs=2, progress=Silent())
    paths = [path for path in objects.values() if isinstance(path, Path)]
    assert len(paths) == len(units), objects
    link(find_compiler(), paths, folder / "kernels.so")
    return folder / "kernels.so"


def place(library: Path, operator: str, later: str) -> float:
    """Run an operator on two intermediate results, of which `later` are read again; return what it says."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Exp", ["x"], ["b"]),
        helper.make_node(operator, ["a", "b"], ["y"], domain=DOMAIN),
        helper.make_node("Abs", ["y"], ["r"]),
        *(helper.make_node("Sub", [name, "y"], [f"{name}_again"]) for name in later),
    ]
    outputs = ["r", *(f"{name}_again" for name in later)]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in outputs],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(library))
    content = helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    x = np.linspace(0, 1, 1024, dtype=np.float32).reshape(SHAPE)
    result, *again = session.run(None, {"x": x})
    for name, values in zip(later, again, strict=True):
        np.testing.assert_allclose(values + result, -x if name == "a" else np.exp(x), rtol=1e-5, atol=1e-6)
    assert (result == result[0, 0]).all()
    return float(result[0, 0])


@pytest.mark.skipif(
    tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 18), reason="ONNX Runtime asks from 1.18 on"
)
@pytest.mark.parametrize(
    ("operator", "later", "expected"),
    [
        ("never", "", 0),
        ("first", "", 1),
        ("second", "", 2),
        ("any", "", 1),
        ("first", "a", 0),
        ("second", "a", 2),
        ("any", "a", 2),
        ("any", "ab", 0),
    ],
)
def test_a_result_takes_the_place_of_what_nothing_else_reads(
    library: Path, operator: str, later: str, expected: int
) -> None:
    assert place(library, operator, later) == expected
