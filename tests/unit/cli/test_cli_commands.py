"""`verify`, `profile` and `doctor` on real models and the real stages."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from click.testing import Result

from korch_cli.cli.profile import distinct_names, judge
from korch_cli.core.errors import ExitCode, MissingError
from korch_cli.core.record import Comparison, Ratio, Samples

Invoke = Callable[..., Result]


def _write(path: Path, body: str) -> Path:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] x) => (float[n, 4] y) {{ {body} }}'
    onnx.save_model(onnx.parser.parse_model(text), path)
    return path


@pytest.fixture
def relu(tmp_path: Path) -> Path:
    return _write(tmp_path / "relu.onnx", "y = Relu(x)")


@pytest.fixture
def clipped(tmp_path: Path) -> Path:
    """Computes what Relu does, in another way."""
    return _write(tmp_path / "clipped.onnx", "zero = Sub(x, x) y = Max(x, zero)")


@pytest.fixture
def absolute(tmp_path: Path) -> Path:
    return _write(tmp_path / "absolute.onnx", "y = Abs(x)")


def test_verify_passes_models_that_agree(invoke: Invoke, relu: Path, clipped: Path) -> None:
    result = invoke("verify", relu, clipped, "--dim", "n=3", "--runs", "2")
    assert result.exit_code == 0, result.output
    assert "PASS as it is · 2 input sets" in result.stdout
    assert result.stdout.endswith("PASSED\n")


def test_verify_fails_models_that_differ(invoke: Invoke, relu: Path, absolute: Path) -> None:
    result = invoke("verify", relu, absolute, "--shape", "x=3x4", "--format", "json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert (document["status"], document["exit_code"]) == ("failed", 1)
    (worst,) = document["verdicts"][0]["worst"]
    assert worst["output"] == "y"
    assert worst["mismatches"] > 0


def test_verify_wants_dimensions(invoke: Invoke, relu: Path, clipped: Path) -> None:
    result = invoke("verify", relu, clipped)
    assert result.exit_code == 2
    assert "--dim n=1" in result.stderr


@pytest.mark.parametrize("command", [["verify", "relu.onnx", "none.onnx"], ["profile", "none.onnx"]])
def test_a_missing_model_is_a_bad_model(
    invoke: Invoke, relu: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(relu.parent)
    result = invoke(*command)
    assert result.exit_code == 3
    assert "none.onnx" in result.stderr


def test_what_is_no_model_is_a_bad_model(invoke: Invoke, relu: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\xff\xff not a model")
    assert invoke("profile", broken).exit_code == 3
    assert invoke("verify", broken, relu).exit_code == 3


def test_profile_compares_and_judges(invoke: Invoke, relu: Path, clipped: Path) -> None:
    flags = ["--dim", "n=3", "--seconds", "0.5s", "--threads", "1", "--per-node", "--format", "json"]
    result = invoke("profile", relu, "--against", clipped, *flags, "--fail-above-us", "0")
    assert result.exit_code == 1, result.output
    assert "failed: the median of relu.onnx" in result.stderr
    document = json.loads(result.stdout)
    assert [s["name"] for s in document["comparison"]["samples"]] == ["relu.onnx", "clipped.onnx"]
    assert all(time > 0 for s in document["comparison"]["samples"] for time in s["times_us"])
    assert [node["op_type"] for node in document["nodes"]] == ["Relu"]


def test_profile_of_one_model_is_a_table(invoke: Invoke, relu: Path) -> None:
    result = invoke("profile", relu, "--dim", "n=3", "--seconds", "0.3s", "--threads", "1", "-q")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert {"median", "p5", "p95"} <= set(result.stdout.split())


def test_profile_needs_something_to_be_slower_than(invoke: Invoke, relu: Path) -> None:
    result = invoke("profile", relu, "--fail-if-slower", "5")
    assert result.exit_code == 2
    assert "--against" in result.stderr


@pytest.mark.parametrize(
    ("high", "percent", "code"),
    [
        (1.0, 5.0, ExitCode.OK),
        (0.96, 5.0, ExitCode.OK),
        (0.95, 5.0, ExitCode.ANSWER_IS_NO),
        (0.99, 0.0, ExitCode.ANSWER_IS_NO),
    ],
)
def test_slower_means_that_the_whole_interval_is(high: float, percent: float, code: ExitCode) -> None:
    ratio = Ratio(1 / 0.8, 1 / high, 1 / 0.7, 9)
    comparison = Comparison((Samples("a", (8.0,)), Samples("b", (10.0,))), (ratio,), 1)
    assert judge(comparison, percent, None) is code


def test_the_median_is_judged() -> None:
    comparison = Comparison((Samples("a", (1.0, 5.0, 100.0)),), (), 1)
    assert judge(comparison, None, 5.0) is ExitCode.OK
    assert judge(comparison, None, 4.9) is ExitCode.ANSWER_IS_NO


def test_models_of_the_same_file_name_keep_their_paths() -> None:
    assert distinct_names([Path("a/m.onnx"), Path("b/n.onnx")]) == ("m.onnx", "n.onnx")
    assert distinct_names([Path("a/m.onnx"), Path("b/m.onnx")]) == ("a/m.onnx", "b/m.onnx")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_doctor_looks_at_everything(invoke: Invoke, cache: Path) -> None:
    result = invoke("doctor", "--format", "json")
    assert result.exit_code == 0, result.output
    checks = {check["subject"]: check for check in json.loads(result.stdout)["checks"]}
    assert {"python", "onnx", "ortools", "onnxruntime", "compiler", "processor", "cache", "gpu"} <= checks.keys()
    assert str(cache) in checks["cache"]["finding"]


def test_doctor_is_strict_only_when_asked(invoke: Invoke, cache: Path) -> None:
    arguments = ("doctor", "--cxx", "/nowhere/g++")
    relaxed, strict = invoke(*arguments), invoke(*arguments, "--strict")
    assert (relaxed.exit_code, strict.exit_code) == (0, 1)
    assert any(line.startswith("problem") and "/nowhere/g++" in line for line in relaxed.stdout.splitlines())


def test_doctor_tells_of_a_cache_that_cannot_be_written(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KORCH_CACHE_DIR", "/proc/korch")
    checks = json.loads(invoke("doctor", "--format", "json").stdout)["checks"]
    (cache,) = (check for check in checks if check["subject"] == "cache")
    assert cache["level"] == "problem"
    assert "KORCH_CACHE_DIR" in cache["advice"]


def test_doctor_goes_on_after_a_problem(invoke: Invoke, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise MissingError("ONNX Runtime is not installed", hint="pip install it")

    monkeypatch.setattr("korch_cli.verify.require_onnxruntime", missing)
    result = invoke("doctor")
    assert "ONNX Runtime is not installed" in result.stdout
    assert "pip install it" in result.stdout
    assert "gpu" in result.stdout


def test_a_missing_runtime_ends_verify_with_the_code_of_the_environment(
    invoke: Invoke, relu: Path, clipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> str:
        raise MissingError("ONNX Runtime is not installed")

    monkeypatch.setattr("korch_cli.verify.require_onnxruntime", missing)
    assert invoke("verify", relu, clipped, "--dim", "n=3").exit_code == 4


def test_the_pipeline_takes_every_setting_that_the_command_gives() -> None:
    from korch_cli.pipeline.settings import Settings

    expected = {"source", "output", "bindings", "threads", "jobs", "seed", "inputs", "rtol", "atol", "gap"}
    expected |= {"budget_s", "solver_time_s", "max_primitives", "compiler", "processor", "plan", "portable"}
    expected |= {"force_fusion", "target", "archs", "gpu"}
    assert set(inspect.signature(Settings).parameters) == expected


LONG = "a" * 300 + ".onnx"
NEARLY = "a" * 249 + ".onnx"  # fits, but the library's name beside it does not


@pytest.mark.parametrize(
    "command",
    [
        ["inspect", LONG],
        ["profile", LONG],
        ["verify", "{relu}", LONG],
        ["optimize", LONG, "-o", "out.onnx"],
        ["optimize", "{relu}", "-o", LONG],
        ["optimize", "{relu}", "-o", NEARLY],
        ["inspect", "{relu}", "--report", LONG],
        ["reduce", "{relu}", "--check", "false", "-o", LONG],
    ],
    ids=lambda command: " ".join(word[:8] for word in command),
)
def test_a_name_that_is_too_long_is_the_users(
    invoke: Invoke, relu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(*(word.format(relu=relu) for word in command))
    assert result.exit_code in (ExitCode.USAGE, ExitCode.BAD_MODEL), result.stderr
    assert "too long" in result.stderr.lower()
    assert [path.name for path in tmp_path.iterdir()] == [relu.name]
