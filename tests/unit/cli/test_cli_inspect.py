"""`korch inspect` on models made by hand, on those of the onnx package, and on what korch wrote itself."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import Result
from onnx import TensorProto, helper, numpy_helper

Invoke = Callable[..., Result]
_LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
_HEADER = '<ir_version: 8, opset_import: ["" : 17, "my.ops" : 1]> '


def _write(path: Path, graph: str) -> Path:
    onnx.save_model(onnx.parser.parse_model(_HEADER + graph), path)
    return path


@pytest.fixture
def document(invoke: Invoke) -> Callable[..., dict[str, Any]]:
    """Run `korch inspect` and return what it says."""

    def run(*arguments: object) -> dict[str, Any]:
        result = invoke("inspect", *arguments, "--format", "json", "-q")
        assert result.exit_code == 0, result.output
        assert result.stderr == ""
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    return run


def test_what_is_opaque_says_why(document: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    """An operator that is not known, one with bodies, which are split, and one whose shape only the values tell."""
    text = """g (float[2, 3] x, bool flag) => (float[2, 3] y, int64[2, k] z, float[2, 3] a) {
        a = my.ops.Twist(x)
        b = If(flag) < then_branch = yes () => (float[2, 3] t) { t = Neg(x) },
                       else_branch = no () => (float[2, 3] e) { e = Identity(x) } >
        z = NonZero(b)
        c = Relu(b)
        y = Tanh(c) }"""
    found = document(_write(tmp_path / "m.onnx", text))
    opaque = {entry["op_type"]: entry for entry in found["opaque"]}
    assert opaque.keys() == {"Twist", "If", "NonZero"}
    assert opaque["Twist"]["domain"] == "my.ops"
    assert "If" in opaque["If"]["reason"] or "subgraph" in opaque["If"]["reason"]
    assert all(entry["reason"] and entry["name"] for entry in opaque.values())
    expected = {"If": 1, "Identity": 1, "Neg": 1, "NonZero": 1, "Relu": 1, "Tanh": 1, "my.ops::Twist": 1}
    assert found["operators"] == expected
    kinds = {(entry["kind"], entry["function"]) for entry in found["primitives"]}
    assert ("elementwise", "tanh") in kinds
    assert ("opaque", "") in kinds
    assert {"name": "z", "dtype": None, "shape": None} in found["outputs"]


def test_candidates_are_counted_by_what_becomes_of_them(
    document: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    text = "g (float[4, 8] x) => (float[4, 8] y) { a = Relu(x) b = Neg(a) c = Softmax(b) y = Tanh(c) }"
    path = _write(tmp_path / "m.onnx", text)
    found = document(path)["candidates"]
    assert found["operators"] == 4
    assert found["tried"] == found["distinct"] > 10
    counted = (found[key].values() for key in ("accepted", "refused", "inexpressible"))
    assert sum(number for numbers in counted for number in numbers) == found["tried"]
    small = document(path, "--max-kernel-size", "2")["candidates"]
    assert small["max_primitives"] == 2
    assert small["enumerated"] < found["enumerated"]
    assert small["left_out"]["growth: more primitives than the limit"] > 0


def test_old_opsets_say_that_nothing_can_be_written(document: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    text = '<ir_version: 3, opset_import: ["" : 6]> g (float[4] x) => (float[4] y) { a = Relu(x) y = Tanh(a) }'
    path = tmp_path / "m.onnx"
    onnx.save_model(onnx.parser.parse_model(text), path)
    found = document(path)["candidates"]
    assert sum(found["inexpressible"].values()) == found["tried"] > 0
    assert all("Opset 6" in reason for reason in found["inexpressible"])
    assert not found["accepted"]


def test_a_sample_is_a_sample_and_exhaustive_is_all(document: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    """Functions that all differ, so that no two kernels are shared."""
    chain = ["Relu", "Tanh", "Neg", "Exp", "Sigmoid", "Abs", "Sqrt", "Floor", "Ceil", "Erf", "Softplus", "Reciprocal"]
    operators = chain + chain[::-1] + chain[::2] + chain[1::2]
    names = ["x", *(f"t{i}" for i in range(len(operators) - 1)), "y"]
    lines = [f"{b} = {op}({a})" for op, a, b in zip(operators, names, names[1:], strict=False)]
    path = _write(tmp_path / "m.onnx", f"g (float[4] x) => (float[4] y) {{ {' '.join(lines)} }}")
    sample, everything = document(path), document(path, "--exhaustive")
    assert sample["candidates"]["distinct"] == everything["candidates"]["distinct"] > 300
    assert sample["candidates"]["tried"] == 300
    assert everything["candidates"]["tried"] == everything["candidates"]["distinct"]


def test_open_dimensions_get_the_message_of_optimize(invoke: Invoke, tmp_path: Path) -> None:
    path = _write(tmp_path / "m.onnx", "g (float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }")
    failed, other = invoke("inspect", path, "-q"), invoke("optimize", path, "-o", tmp_path / "o.onnx", "-q")
    assert failed.exit_code == other.exit_code == 2
    assert failed.stderr == other.stderr
    assert "--dim n=1" in failed.stderr
    text = invoke("inspect", path, "--dim", "n=3").stdout
    assert "input 'x': f32[3,4]" in text
    assert "note: Input 'x' was bound to 3x4." in text


def test_external_data_is_counted_and_not_read(
    document: Callable[..., dict[str, Any]], invoke: Invoke, tmp_path: Path
) -> None:
    weight = numpy_helper.from_array(np.ones(5000, np.float32), "w")
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [info("x", TensorProto.FLOAT, [5000])],
        [info("y", TensorProto.FLOAT, [5000])],
        [weight],
    )
    path = tmp_path / "m.onnx"
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="hand")
    onnx.save_model(proto, path, save_as_external_data=True, location="m.data", size_threshold=0)
    file = document(path)["file"]
    assert file["external"] == [{"name": "m.data", "tensors": 1, "size_bytes": 20000}]
    assert (file["tensors"], file["size_bytes"], file["producer"]) == (1, 20000, "hand")
    assert file["opsets"] == {"ai.onnx": 17}
    (tmp_path / "m.data").unlink()
    assert invoke("inspect", path, "-q").exit_code == 3


def test_a_model_that_is_none_has_its_code(invoke: Invoke, tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\xff\xff")
    assert invoke("inspect", broken, "-q").exit_code == 3
    assert invoke("inspect", tmp_path / "none.onnx", "-q").exit_code == 3
    assert invoke("inspect", tmp_path, "-q").exit_code == 3


def test_the_report_is_the_document(invoke: Invoke, document: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    path = _write(tmp_path / "m.onnx", "g (float[4] x) => (float[4] y) { y = Relu(x) }")
    report = tmp_path / "r.json"
    shown = document(path, "--report", report)
    assert json.loads(report.read_text(encoding="utf-8")) == shown
    assert invoke("inspect", path, "--report", path).exit_code == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "shufflenet", "squeezenet"])
def test_real_networks_are_inspected(document: Callable[..., dict[str, Any]], name: str) -> None:
    found = document(_LIGHT / f"light_{name}.onnx")
    assert sum(found["operators"].values()) > 30
    assert found["operators"]["Conv"] > 20
    # One for each operator that is not split, whatever it is.
    assert len({entry["name"] for entry in found["opaque"]}) == len(found["opaque"])
    linear = sum(entry["count"] for entry in found["primitives"] if entry["kind"] == "linear")
    assert linear >= found["operators"]["Conv"]
    assert found["output"] is None


def test_neither_a_runtime_nor_a_compiler_is_needed(tmp_path: Path) -> None:
    path = _write(tmp_path / "m.onnx", "g (float[4] x) => (float[4] y) { a = Relu(x) y = Tanh(a) }")
    program = (
        "import os, sys\n"
        "os.environ['PATH'] = ''\n"
        "for name in ('onnxruntime', 'ortools'):\n"
        "    sys.modules[name] = None\n"
        "from korch_cli.cli import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", program, "inspect", str(path), "-q"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "2 operators → 2 primitives" in done.stdout


@pytest.fixture
def optimized(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What korch makes of four operators and a product."""
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "cache"))
    text = """g (float[4, 8] x, float[8, 8] w) => (float[4, 8] y) {
        a = Relu(x) b = Neg(a) c = MatMul(b, w) d = Softmax(c) y = Tanh(d) }"""
    source, out = _write(tmp_path / "in.onnx", text), tmp_path / "out.onnx"
    result = invoke("optimize", source, "-o", out, "--force-fusion", "--threads", "1", "-q")
    assert result.exit_code == 0, result.output
    return out


@pytest.mark.slow
def test_what_korch_wrote_is_told_by_its_plan(
    document: Callable[..., dict[str, Any]], invoke: Invoke, optimized: Path, tmp_path: Path
) -> None:
    output = document(optimized)["output"]
    assert output["library"] == str(tmp_path / "out.korch.so")
    assert output["plan"] == str(tmp_path / "out.plan.json")
    nodes = {node for kernel in output["kernels"] for use in kernel["replaces"] for node in use}
    assert len(nodes) == 4
    assert all(kernel["schedule"] for kernel in output["kernels"])
    text = invoke("inspect", optimized, "-q").stdout
    assert "korch wrote this model: 2 nodes of 3 run its kernels" in text
    # A plan of another model says nothing of this one.
    (tmp_path / "elsewhere").mkdir()
    alone = tmp_path / "elsewhere" / "out.onnx"
    shutil.copy(optimized, alone)
    (tmp_path / "elsewhere" / "out.plan.json").write_text(
        '{"schema": "korch.plan/2", "changed": true, "domain": "korch.0"}'
    )
    stranger = document(alone)["output"]
    assert (stranger["plan"], stranger["library"], stranger["reason"]) == (None, None, None)
    assert [kernel["uses"] for kernel in stranger["kernels"]] == [1, 1]


def test_what_korch_left_alone_is_told_by_its_plan(
    document: Callable[..., dict[str, Any]], invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "cache"))
    source = _write(tmp_path / "in.onnx", "g (float[4, 8] x, float[8, 8] w) => (float[4, 8] y) { y = MatMul(x, w) }")
    out = tmp_path / "out.onnx"
    assert invoke("optimize", source, "-o", out, "--force-fusion", "--threads", "1", "-q").exit_code == 0
    output = document(out)["output"]
    assert output["kernels"] == []
    assert output["reason"]
    assert "korch left this model unchanged" in invoke("inspect", out, "-q").stdout
    assert document(source)["output"] is None


@pytest.mark.parametrize("content", ["", "[]", '{"schema": "korch.plan/2"}', '{"schema": 3, "kernels": 4}', "\x00"])
def test_a_broken_plan_is_no_plan(document: Callable[..., dict[str, Any]], tmp_path: Path, content: str) -> None:
    path = _write(tmp_path / "m.onnx", "g (float[4] x) => (float[4] y) { y = Relu(x) }")
    (tmp_path / "m.plan.json").write_text(content, encoding="utf-8")
    assert document(path)["output"] is None


@pytest.mark.slow
def test_a_large_graph_takes_seconds(invoke: Invoke, tmp_path: Path) -> None:
    """Six hundred operators in repeated blocks, as in a real detector."""
    lines, last = [], "x"
    for i in range(150):
        lines += [f"a{i} = Relu({last})", f"b{i} = Mul(a{i}, {last})", f"c{i} = Add(b{i}, s)", f"d{i} = Sigmoid(c{i})"]
        last = f"d{i}"
    text = f"g (float[1, 64] x) => (float[1, 64] y) <float[1] s = {{0.3}}> {{ {' '.join(lines)} y = Neg({last}) }}"
    path = _write(tmp_path / "m.onnx", text)
    start = time.monotonic()
    assert invoke("inspect", path, "-q").exit_code == 0
    assert time.monotonic() - start < 60
