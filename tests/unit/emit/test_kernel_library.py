"""A library of hand-written kernels in ONNX Runtime: registered, run, refused, unloaded."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from korch_cli.core.artifact import LibraryEntry
from korch_cli.core.kernel import Kernel
from korch_cli.core.progress import Silent
from korch_cli.core.types import DType, TensorType
from korch_cli.emit import ort_headers, registration_unit
from korch_cli.toolchain import compile_units, find_compiler, link

DOMAIN = "korch.0123abcd"
ROWS, COLUMNS = 96, 700
SHAPE = (ROWS, COLUMNS)
ADD_RELU = f"""\
#include <stdint.h>
extern "C" void add_relu(const void* const* in, void* const* out, int64_t begin, int64_t end) {{
  const float* a = (const float*)in[0];
  const float* b = (const float*)in[1];
  float* r = (float*)out[0];
  for (int64_t i = begin * {COLUMNS}; i < end * {COLUMNS}; ++i) {{
    const float x = a[i] + b[i % {COLUMNS}];
    r[i] = x > 0 ? x : 0;
  }}
}}
"""
POSITIVE = f"""\
#include <stdint.h>
extern "C" void positive(const void* const* in, void* const* out, int64_t begin, int64_t end) {{
  const float* a = (const float*)in[0];
  uint8_t* yes = (uint8_t*)out[0];
  int64_t* count = (int64_t*)out[1];
  for (int64_t row = begin; row < end; ++row) {{
    count[row] = 0;
    for (int64_t i = row * {COLUMNS}; i < (row + 1) * {COLUMNS}; ++i) {{
      yes[i] = a[i] > 0;
      count[row] += yes[i];
    }}
  }}
}}
"""
FULL, ROW = TensorType(DType.F32, SHAPE), TensorType(DType.F32, (COLUMNS,))
ENTRIES = (
    LibraryEntry(Kernel("add_relu", "d", "row", ADD_RELU, ROWS, 8 * COLUMNS, 2 * COLUMNS), (FULL, ROW), (FULL,)),
    LibraryEntry(
        Kernel("positive", "d", "row", POSITIVE, ROWS, 5 * COLUMNS, COLUMNS),
        (FULL,),
        (TensorType(DType.BOOL, SHAPE), TensorType(DType.I64, (ROWS,))),
    ),
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    comments = {"add_relu": 'Computes Add_1, "*/ odd \\ name\n#error", Relu_2.'}
    units = {e.kernel.name: e.kernel.source for e in ENTRIES}
    compiler = find_compiler()
    objects = compile_units(compiler, units, {}, folder, jobs=2, progress=Silent())
    objects |= compile_units(
        compiler, {"r": registration_unit(DOMAIN, ENTRIES, comments)}, ort_headers(), folder, jobs=1, progress=Silent()
    )
    paths = [o for o in objects.values() if isinstance(o, Path)]
    assert len(paths) == 3, objects
    link(compiler, paths, folder / "kernels.so")
    return folder / "kernels.so"


def model(shape: tuple[int | str, ...] = SHAPE, *, wrong_function: bool = False) -> bytes:
    """add_relu and then positive; as functions they compute the same, or visibly something else."""
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("add_relu", ["a", "b"], ["s"], domain=DOMAIN),
        helper.make_node("positive", ["s"], ["yes", "count"], domain=DOMAIN),
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        [info("a", TensorProto.FLOAT, shape), info("b", TensorProto.FLOAT, [COLUMNS])],
        [
            info("s", TensorProto.FLOAT, shape),
            info("yes", TensorProto.BOOL, shape),
            info("count", TensorProto.INT64, [shape[0]]),
        ],
    )
    opsets = [helper.make_opsetid("", 17)]
    add = [helper.make_node("Add", ["a", "b"], ["t"]), helper.make_node("Relu", ["t"], ["s"])]
    if wrong_function:
        add.insert(1, helper.make_node("Neg", ["t"], ["u"]))
        add[2].input[0] = "u"
    count = [
        helper.make_node("Constant", [], ["zero"], value_float=0.0),
        helper.make_node("Constant", [], ["axes"], value_ints=[1]),
        helper.make_node("Greater", ["a", "zero"], ["yes"]),
        helper.make_node("Cast", ["yes"], ["number"], to=TensorProto.INT64),
        helper.make_node("ReduceSum", ["number", "axes"], ["count"], keepdims=0),
    ]
    functions = [
        helper.make_function(DOMAIN, "add_relu", ["a", "b"], ["s"], add, opsets),
        helper.make_function(DOMAIN, "positive", ["a"], ["yes", "count"], count, opsets),
    ]
    imports = [*opsets, helper.make_opsetid(DOMAIN, 1)]
    proto = helper.make_model(graph, functions=functions, opset_imports=imports, ir_version=8)
    onnx.checker.check_model(proto)
    return bytes(proto.SerializeToString())


def session(
    content: bytes, library: Path | None, threads: int = 2, *, optimize: bool = True
) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if library is not None:
        options.register_custom_ops_library(str(library))
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def feeds(rows: int = ROWS) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    rng = np.random.default_rng(0)
    return {
        "a": rng.standard_normal((rows, COLUMNS)).astype(np.float32),
        "b": rng.standard_normal(COLUMNS).astype(np.float32),
    }


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("rows", [ROWS, "rows"])
def test_kernels_run(library: Path, threads: int, optimize: bool, rows: int | str) -> None:
    fed = feeds()
    expected = np.maximum(fed["a"] + fed["b"], 0)
    run = session(model((rows, COLUMNS)), library, threads, optimize=optimize)
    for _ in range(3):
        s, yes, count = run.run(None, fed)
        np.testing.assert_array_equal(s, expected)
        np.testing.assert_array_equal(yes, expected > 0)
        np.testing.assert_array_equal(count, (expected > 0).sum(axis=1))


def test_with_the_library_the_kernel_runs_and_without_it_the_function(library: Path) -> None:
    fed = feeds()
    content = model(wrong_function=True)
    np.testing.assert_array_equal(session(content, library).run(["s"], fed)[0], np.maximum(fed["a"] + fed["b"], 0))
    np.testing.assert_array_equal(session(content, None).run(["s"], fed)[0], np.maximum(-(fed["a"] + fed["b"]), 0))


def test_another_shape_is_refused_and_not_read(library: Path) -> None:
    run = session(model(("rows", COLUMNS)), library)
    with pytest.raises(Exception, match=r"add_relu: input 0 must have the shape \[96,700\]"):
        run.run(None, feeds(rows=5))
    with pytest.raises(Exception, match=r"must have the shape \[96,700\]"):
        session(model((95, COLUMNS)), library)


def test_sessions_come_and_go(library: Path) -> None:
    fed = feeds()
    content = model()
    kept = session(content, library)
    expected = kept.run(None, fed)
    for _ in range(30):
        for got, want in zip(session(content, library).run(None, fed), expected, strict=True):
            np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(kept.run(None, fed)[0], expected[0])


def test_it_exports_one_function_and_stays_loaded(library: Path) -> None:
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in symbols.splitlines()] == ["RegisterCustomOps"]
    dynamic = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert "NODELETE" in dynamic
    assert "libstdc++" not in dynamic
