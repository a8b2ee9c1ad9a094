"""`korch reduce` with real check commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import Result
from onnx import TensorProto, helper, numpy_helper

from korch_cli.cli.reduce import words_of
from korch_cli.core.errors import UsageError

Invoke = Callable[..., Result]
_HAS = """#!/bin/sh
# Ends with 7 on a model that mentions the word.
grep -q "$2" "$1" && { echo "found $2"; exit 7; }
exit 0
"""
_BROKEN_KORCH = """
import sys
from korch_cli.fission import driver
found = driver.find

def find(domain, op_type, version):
    if op_type == "Erf":
        raise ZeroDivisionError("planted")
    return found(domain, op_type, version)

driver.find = find
from korch_cli.cli import main
main()
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A chain of twelve operators on a symbolic dimension, with a weight in the middle of it."""
    ops = ["Relu", "Tanh", "Sigmoid", "Neg", "Exp", "Add", "Erf", "Softplus", "Abs", "Ceil", "Floor", "Sqrt"]
    tensors = ["x", *(f"t{i}" for i in range(len(ops) - 1)), "y"]
    nodes = [
        helper.make_node(op, [a, "w"] if op == "Add" else [a], [b])
        for op, a, b in zip(ops, tensors, tensors[1:], strict=False)
    ]
    info = helper.make_tensor_value_info
    weight = numpy_helper.from_array(np.arange(1000, dtype=np.float32), "w")
    shape: tuple[str | int, ...] = ("batch", 1000)
    graph = helper.make_graph(
        nodes, "g", [info("x", TensorProto.FLOAT, shape)], [info("y", TensorProto.FLOAT, shape)], [weight]
    )
    path = tmp_path / "m.onnx"
    onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture
def has(tmp_path: Path) -> str:
    path = tmp_path / "has it"
    path.write_text(_HAS, encoding="utf-8")
    path.chmod(0o755)
    return f"'{path}'"


def _types(path: Path) -> list[str]:
    proto = onnx.load_model(str(path))
    onnx.checker.check_model(proto, full_check=True)
    return [node.op_type for node in proto.graph.node]


def test_a_failing_operator_is_what_is_left(invoke: Invoke, model: Path, has: str, tmp_path: Path) -> None:
    out = tmp_path / "small.onnx"
    result = invoke("reduce", model, "--check", f"{has} {{}} Erf", "-o", out)
    assert result.exit_code == 0, result.output
    assert _types(out) == ["Erf"]
    assert "REDUCED" in result.stdout
    assert "it says: found Erf" in result.stdout
    assert "] Leaving out nodes anywhere" in result.stderr
    assert not list(tmp_path.glob(".korch*"))


def test_the_result_is_a_document_too(invoke: Invoke, model: Path, has: str, tmp_path: Path) -> None:
    out, report = tmp_path / "small.onnx", tmp_path / "r.json"
    flags = ["--format", "json", "--report", report, "-q"]
    result = invoke("reduce", model, "--check", f"{has} {{}} Add", "-o", out, *flags)
    document = json.loads(result.stdout)
    assert result.stderr == ""
    assert json.loads(report.read_text(encoding="utf-8")) == document
    assert document["schema"] == "korch.reduce/1"
    assert (document["status"], document["reduced"], document["ended"]) == ("passed", True, "minimal")
    assert (document["before"]["nodes"], document["after"]["nodes"]) == (12, 1)
    assert document["operators"] == ["Add"]
    assert document["written"] == [str(out)]


def test_nothing_fails_nothing_is_written(invoke: Invoke, model: Path, has: str, tmp_path: Path) -> None:
    out = tmp_path / "small.onnx"
    result = invoke("reduce", model, "--check", f"{has} {{}} Gelu", "-o", out)
    assert result.exit_code == 1
    assert "there is nothing to reduce" in result.stdout
    assert not out.exists()


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--exit-code", "9"], "ends with 7 on the whole model, and not with 9"),
        (["--match", "lost Erf"], "its output lacks 'lost Erf'"),
    ],
)
def test_only_what_was_asked_for_is_a_failure(
    invoke: Invoke, model: Path, has: str, tmp_path: Path, flags: list[str], reason: str
) -> None:
    out = tmp_path / "small.onnx"
    result = invoke("reduce", model, "--check", f"{has} {{}} Erf", "-o", out, *flags, "--format", "json")
    assert result.exit_code == 1
    assert reason in json.loads(result.stdout)["reason"]
    assert not out.exists()


def test_another_exit_status_is_another_failure(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    """Ends with 3 on models with an Erf, and with 4 on all others."""
    check = "sh -c 'grep -q Erf \"$1\" && exit 3; exit 4' sh"
    out = tmp_path / "small.onnx"
    assert invoke("reduce", model, "--check", check, "-o", out, "--exit-code", "3").exit_code == 0
    assert _types(out) == ["Erf"]


def test_a_signal_is_a_failure(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    check = "sh -c 'grep -q Sigmoid {} && kill -ABRT $$; exit 0'"
    out = tmp_path / "small.onnx"
    result = invoke("reduce", model, "--check", check, "-o", out, "--format", "json")
    document = json.loads(result.stdout)
    assert (document["exit_code"], document["check_status"]) == (0, 128 + 6)
    assert _types(out) == ["Sigmoid"]


def test_a_hang_is_a_failure(invoke: Invoke, tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { a = Relu(x) y = Ceil(a) }'
    source, out = tmp_path / "m.onnx", tmp_path / "small.onnx"
    onnx.save_model(onnx.parser.parse_model(text), source)
    check = "sh -c 'grep -q Ceil {} && sleep 600; exit 0'"
    result = invoke("reduce", source, "--check", check, "-o", out, "--timeout", "2s", "--format", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["check_status"] == 124
    assert _types(out) == ["Ceil"]


def test_bound_dimensions_are_bound_in_every_part(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    check = "sh -c 'grep -q batch {} && exit 1; grep -q Neg {} && exit 5; exit 0'"
    out = tmp_path / "small.onnx"
    assert invoke("reduce", model, "--check", check, "-o", out, "--exit-code", "5").exit_code == 1
    result = invoke("reduce", model, "--check", check, "-o", out, "--dim", "batch=3")
    assert result.exit_code == 0, result.output
    assert _types(out) == ["Neg"]
    (x,) = onnx.load_model(str(out)).graph.input
    assert [dim.dim_value for dim in x.type.tensor_type.shape.dim] == [3, 1000]


def test_the_library_of_what_korch_wrote_comes_along(invoke: Invoke, tmp_path: Path) -> None:
    """The check needs the library beside each model, and a node that it runs."""
    text = """<ir_version: 8, opset_import: ["" : 17, "korch.ab" : 1]> g (float[4] x) => (float[4] y) {
        a = Relu(x) b = korch.ab.k_one(a) c = korch.ab.k_two(b) y = Tanh(c) }
      <domain: "korch.ab", opset_import: ["" : 17]> k_one (v) => (r) { r = Neg(v) }
      <domain: "korch.ab", opset_import: ["" : 17]> k_two (v) => (r) { r = Abs(v) }"""
    source, out = tmp_path / "m.onnx", tmp_path / "small.onnx"
    onnx.save_model(onnx.parser.parse_model(text), source)
    (tmp_path / "m.korch.so").write_bytes(b"code")
    check = "sh -c 'grep -q code ${1%.onnx}.korch.so && grep -q k_two $1 && exit 6; exit 0' sh {}"
    result = invoke("reduce", source, "--check", check, "-o", out, "--format", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["written"] == [str(out), str(tmp_path / "small.korch.so")]
    assert json.loads(result.stdout)["operators"] == ["korch.ab::k_two"]
    assert [f.name for f in onnx.load_model(str(out)).functions] == ["k_two"]
    library = tmp_path / "small.korch.so"
    assert library.read_bytes() == b"code"
    assert not library.is_symlink()


def test_a_budget_that_runs_out_leaves_the_best_so_far(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    """The check never ends from its fourth run on."""
    out, runs = tmp_path / "small.onnx", tmp_path / "runs"
    check = f"sh -c 'echo >> {runs}; test $(wc -l < {runs}) -gt 3 && sleep 600; grep -q Erf {{}} && exit 7; exit 0'"
    result = invoke("reduce", model, "--check", check, "-o", out, "--budget", "8s", "--format", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["ended"] == "budget"
    assert "with more time" in document["reason"]
    assert 1 < len(_types(out)) <= 12
    assert "Erf" in _types(out)


def test_a_budget_too_small_for_one_check_has_its_code(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "small.onnx"
    assert invoke("reduce", model, "--check", "sh -c 'sleep 30'", "-o", out, "--budget", "0.1s").exit_code == 5
    assert not out.exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_leaves_the_best_so_far(number: signal.Signals, code: int, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "small.onnx"
    check = "sh -c 'sleep 0.5; grep -q Erf {} && exit 7; exit 0'"
    command = [sys.executable, "-m", "korch_cli", "reduce", str(model), "--check", check, "-o", str(out)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "CI": "true"}
    ) as process:
        assert process.stderr is not None
        while "Leaving out nodes" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(number)
        output, messages = process.communicate(timeout=60)
    assert process.returncode == code
    assert "REDUCED" in output
    assert "with more time" in output
    assert "Traceback" not in messages
    assert "Erf" in _types(out)


@pytest.mark.parametrize("check", ["", "a 'b", "/nowhere/program {}"])
def test_a_check_that_is_no_command_is_an_error_of_usage(
    invoke: Invoke, model: Path, tmp_path: Path, check: str
) -> None:
    result = invoke("reduce", model, "--check", check, "-o", tmp_path / "o.onnx", "-q")
    assert result.exit_code == 2
    assert result.stderr.startswith("error:")


def test_paths_are_looked_at_first(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.onnx"
    assert invoke("reduce", model, "--check", "false", "-o", model).exit_code == 2
    assert invoke("reduce", model, "--check", "false", "-o", tmp_path).exit_code == 2
    assert invoke("reduce", model, "--check", "false", "-o", out, "--report", model).exit_code == 2
    assert invoke("reduce", tmp_path / "none.onnx", "--check", "false", "-o", out).exit_code == 3
    assert invoke("reduce", model, "--check", "false", "-o", tmp_path / "no" / "o.onnx").exit_code == 4
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\xff\xff")
    assert invoke("reduce", broken, "--check", "false", "-o", out).exit_code == 3
    assert invoke("reduce", model, "--check", "false", "-o", out, "--dim", "n=2").exit_code == 2


def test_weights_in_another_file_are_never_overwritten(invoke: Invoke, tmp_path: Path) -> None:
    path, weights = tmp_path / "m.onnx", tmp_path / "weights"
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Add(x, w) }'
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "w"))
    onnx.save_model(proto, path, save_as_external_data=True, location=weights.name, size_threshold=0)
    before = weights.read_bytes()
    for command in (
        ["reduce", path, "--check", "false", "-o", weights],
        ["reduce", path, "--check", "false", "-o", tmp_path / "o.onnx", "--report", weights],
        ["inspect", path, "--report", weights],
        ["explain", path, "--report", weights],
        ["optimize", path, "-o", tmp_path / "o.onnx", "--report", weights],
    ):
        result = invoke(*command)
        assert result.exit_code == 2, result.output
        assert "would be overwritten" in result.stderr
        assert weights.read_bytes() == before


def test_words_are_split_as_a_shell_would() -> None:
    assert words_of("korch optimize {} -o '/tmp/a b.onnx'") == ("korch", "optimize", "{}", "-o", "/tmp/a b.onnx")
    with pytest.raises(UsageError, match="names no command"):
        words_of("  ")


@pytest.mark.slow
def test_a_bug_of_korch_itself_is_reduced(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    program, out = tmp_path / "korch.py", tmp_path / "small.onnx"
    program.write_text(_BROKEN_KORCH, encoding="utf-8")
    check = f"{sys.executable} {program} optimize {{}} -o {tmp_path / 'x.onnx'}"
    flags = ["--match", "ZeroDivisionError", "--dim", "batch=1", "--format", "json"]
    result = invoke("reduce", model, "--check", check, "-o", out, *flags)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["check_status"] == 70
    assert _types(out) == ["Erf"]
