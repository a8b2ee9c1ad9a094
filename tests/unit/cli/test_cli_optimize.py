from __future__ import annotations

import errno
import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import Result

from korch_cli.cli.failure import Terminated
from korch_cli.core.errors import BudgetError, KorchError, MissingError, ModelError, UsageError
from korch_cli.core.model import Bindings

Invoke = Callable[..., Result]


def test_the_result_alone_is_on_stdout(invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path) -> None:
    result = invoke("optimize", model, "-o", tmp_path / "out.onnx")
    assert result.exit_code == 0, result.output
    assert "OPTIMIZED" in result.stdout
    assert "] Optimizing" in result.stderr
    assert "] Optimizing" not in result.stdout


def test_quiet_leaves_stderr_empty(invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path) -> None:
    assert invoke("optimize", model, "-o", tmp_path / "out.onnx", "-q").stderr == ""


def test_json_goes_to_stdout_and_to_the_report(
    invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    result = invoke("optimize", model, "-o", tmp_path / "out.onnx", "--format", "json", "--report", report)
    document = json.loads(result.stdout)
    assert document["schema"] == "korch.optimize/1"
    assert json.loads(report.read_text(encoding="utf-8")) == document


def test_flags_reach_the_pipeline(invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    flags = "--dim batch=1 --dim p2o.Dim.0=7 --shape x=1x3x48x320 --shape a=b=4 --threads 3 --jobs 5"
    more = "--seed 9 --rtol 0.1 --atol 0.2 --gap 0.05 --budget 1.5m --solver-time 90s --max-kernel-size 4"
    last = "--cxx clang++ --cpu x86-64-v3 --portable --force-fusion --target cuda --arch sm_90,sm_80,sm_90 --gpu H200"
    result = invoke("optimize", model, "-o", output, *flags.split(), *more.split(), *last.split())
    assert result.exit_code == 0, result.output
    assert vars(pipeline.settings) == {
        "source": model,
        "output": output,
        "bindings": Bindings({"batch": 1, "p2o.Dim.0": 7}, {"x": (1, 3, 48, 320), "a=b": (4,)}),
        "threads": 3,
        "jobs": 5,
        "seed": 9,
        "inputs": {},
        "plan": None,
        "rtol": 0.1,
        "atol": 0.2,
        "gap": 0.05,
        "budget_s": 90.0,
        "solver_time_s": 90.0,
        "max_primitives": 4,
        "compiler": "clang++",
        "processor": "x86-64-v3",
        "portable": True,
        "target": "cuda",
        "archs": ("sm_90", "sm_80"),
        "gpu": "H200",
        "force_fusion": True,
    }


def test_defaults(invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path) -> None:
    invoke("optimize", model, "-o", tmp_path / "out.onnx")
    processors = len(os.sched_getaffinity(0))
    given = pipeline.settings
    assert (given.threads, given.jobs, given.seed) == (processors, processors, 0)
    assert (given.rtol, given.atol, given.gap) == (1e-4, 1e-5, 0.02)
    assert (given.budget_s, given.solver_time_s, given.compiler, given.processor) == (600.0, 60.0, None, None)
    assert (given.target, given.archs, given.gpu, given.portable) == ("cpu", (), None, False)


def test_a_gpu_has_operators_of_onnx_alone(invoke: Invoke, pipeline: SimpleNamespace, model: Path) -> None:
    invoke("optimize", model, "-o", model.with_name("out.onnx"), "--target", "cuda")
    assert pipeline.settings.portable


@pytest.mark.parametrize(
    ("flag", "value", "example"),
    [
        ("--budget", "10", "90s"),
        ("--budget", "0s", "90s"),
        ("--budget", "-1m", "90s"),
        ("--solver-time", "soon", "5m"),
        ("--shape", "x=1x3x", "x=1x3x48x320"),
        ("--shape", "1x3", "x=1x3x48x320"),
        ("--shape", "x=", "x=1x3x48x320"),
        ("--dim", "batch", "batch=1"),
        ("--dim", "batch=0", "batch=1"),
        ("--dim", "=1", "batch=1"),
        ("--dim", "batch=1.5", "batch=1"),
        ("--dim", f"batch={'1' * 5000}", "batch=1"),
        ("--shape", f"x={'1' * 5000}x3", "x=1x3x48x320"),
        ("--budget", f"{'9' * 400}h", "90s"),
        ("--gap", "2", "0<=x<=1"),
        ("--threads", "0", "x>=1"),
        ("--format", "xml", "json"),
        ("--cpu", "pentium", "x86-64-v3"),
    ],
)
def test_malformed_values_are_errors_of_usage_with_an_example(
    invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path, flag: str, value: str, example: str
) -> None:
    result = invoke("optimize", model, "-o", tmp_path / "out.onnx", flag, value)
    assert result.exit_code == 2
    assert example in result.stderr
    assert pipeline.settings is None


@pytest.mark.parametrize("flag", ["--shape x=1 --shape x=2", "--dim n=1 --dim n=2"])
def test_two_values_for_one_name_are_an_error_of_usage(
    invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path, flag: str
) -> None:
    result = invoke("optimize", model, "-o", tmp_path / "out.onnx", *flag.split())
    assert result.exit_code == 2
    assert "two different values" in result.stderr


def test_a_missing_output_is_an_error_of_usage(invoke: Invoke, model: Path) -> None:
    result = invoke("optimize", model)
    assert result.exit_code == 2
    assert "--output" in result.stderr


@pytest.mark.parametrize("way", ["same", "dots", "symlink", "hardlink"])
def test_the_input_is_never_the_output(
    invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path, way: str
) -> None:
    output = {"same": model, "dots": tmp_path / ".." / tmp_path.name / "in.onnx"}.get(way, tmp_path / "link.onnx")
    if way == "symlink":
        output.symlink_to(model)
    if way == "hardlink":
        output.hardlink_to(model)
    result = invoke("optimize", model, "-o", output)
    assert result.exit_code == 2
    assert "the same file" in result.stderr
    assert pipeline.settings is None


@pytest.mark.parametrize("name", ["out.ort", "out.ORT"])
def test_the_output_is_not_called_what_onnx_runtime_takes_for_another_format(
    invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path, name: str
) -> None:
    result = invoke("optimize", model, "-o", tmp_path / name)
    assert result.exit_code == 2
    assert "another format" in result.stderr
    assert pipeline.settings is None


@pytest.mark.parametrize("name", ["out.korch.so", "out.plan.json", "out.onnx.data"])
def test_the_input_is_none_of_the_files_beside_the_output(
    invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path, name: str
) -> None:
    model.rename(tmp_path / name)
    result = invoke("optimize", tmp_path / name, "-o", tmp_path / "out.onnx")
    assert result.exit_code == 2
    assert "beside OUT" in result.stderr
    assert pipeline.settings is None


@pytest.mark.parametrize("name", ["out.onnx", "out.korch.so", "out.plan.json", "out.onnx.data"])
def test_the_arrays_to_feed_are_never_overwritten(
    invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path, name: str
) -> None:
    np.savez(tmp_path / "arrays.npz", x=np.zeros((2, 3), np.float32))
    (tmp_path / "arrays.npz").rename(tmp_path / name)
    result = invoke("optimize", model, "-o", tmp_path / "out.onnx", "--inputs", tmp_path / name)
    assert result.exit_code == 2
    assert "--inputs" in result.stderr
    assert pipeline.settings is None


@pytest.mark.parametrize("name", ["in.onnx", "out.onnx", "out.korch.so", "out.plan.json", "out.onnx.data"])
def test_the_report_never_overwrites_a_model_or_what_lies_beside_it(
    invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path, name: str
) -> None:
    result = invoke("optimize", model, "-o", tmp_path / "out.onnx", "--report", tmp_path / name)
    assert result.exit_code == 2
    assert pipeline.settings is None


@pytest.mark.parametrize("flag", ["--inputs", "--from-plan"])
def test_the_report_never_overwrites_what_is_read(
    invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path, flag: str
) -> None:
    read = tmp_path / "read"
    with read.open("wb") as file:
        np.savez(file, x=np.zeros(3))
    before = read.read_bytes()
    result = invoke("optimize", model, "-o", tmp_path / "out.onnx", flag, read, "--report", read)
    assert result.exit_code == 2
    assert "would overwrite" in result.stderr
    assert read.read_bytes() == before
    assert pipeline.settings is None


def test_an_output_that_is_a_folder_is_an_error_of_usage(
    invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path
) -> None:
    assert invoke("optimize", model, "-o", tmp_path).exit_code == 2


def test_an_output_that_is_no_regular_file_is_refused_and_stays(
    invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path
) -> None:
    pipe, here = tmp_path / "pipe.onnx", tmp_path / "socket.onnx"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(here))
        for place in (pipe, here, Path("/dev/null"), Path("/dev/stdout")):
            assert invoke("optimize", model, "-o", place).exit_code == 2
    assert pipe.is_fifo()
    assert here.is_socket()
    assert Path("/dev/null").is_char_device()
    assert pipeline.settings is None


def test_a_report_goes_into_a_pipe_or_a_device_and_leaves_it_there(
    invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path
) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    assert invoke("optimize", model, "-o", tmp_path / "out.onnx", "--report", pipe).exit_code == 0
    reader.join(timeout=30)
    assert json.loads(read[0])["schema"] == "korch.optimize/1"
    assert invoke("optimize", model, "-o", tmp_path / "out.onnx", "--report", "/dev/null").exit_code == 0
    assert Path("/dev/null").is_char_device()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.onnx", "pipe"]


@pytest.mark.parametrize("number", ["nan", "inf", "-1", "1e999"])
@pytest.mark.parametrize("flag", ["--rtol", "--atol", "--gap"])
def test_a_number_is_finite_and_not_negative(
    invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path, flag: str, number: str
) -> None:
    assert invoke("optimize", model, "-o", tmp_path / "out.onnx", f"{flag}={number}").exit_code == 2
    assert pipeline.settings is None


def test_a_missing_model_is_a_bad_model(invoke: Invoke, pipeline: SimpleNamespace, tmp_path: Path) -> None:
    result = invoke("optimize", tmp_path / "none.onnx", "-o", tmp_path / "out.onnx")
    assert result.exit_code == 3
    assert result.stderr == f"error: there is no such file ({tmp_path / 'none.onnx'})\n"


def test_a_folder_is_a_bad_model(invoke: Invoke, pipeline: SimpleNamespace, tmp_path: Path) -> None:
    assert invoke("optimize", tmp_path, "-o", tmp_path / "out.onnx").exit_code == 3


@pytest.mark.parametrize("folder", ["nowhere", "/proc"])
def test_an_output_folder_that_takes_no_files_is_found_before_any_work(
    invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path, folder: str
) -> None:
    result = invoke("optimize", model, "-o", tmp_path / folder / "out.onnx")
    assert result.exit_code == 4
    assert folder in result.stderr
    assert pipeline.settings is None


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (UsageError("no"), 2),
        (ModelError("no"), 3),
        (MissingError("no"), 4),
        (BudgetError("no"), 5),
        (KorchError("no"), 70),
        (MemoryError("no"), 4),
        (OSError(errno.ENOSPC, "no space"), 4),
        (OSError(errno.EMFILE, "too many files", Path("there")), 4),
        (KeyboardInterrupt(), 130),
        (Terminated(), 143),
    ],
)
def test_each_failure_has_its_exit_code(
    invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path, failure: BaseException, code: int
) -> None:
    pipeline.failure = failure
    result = invoke("optimize", model, "-o", tmp_path / "out.onnx", "-q")
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.strip().splitlines()[1:] in ([], ["  give the model's inputs smaller shapes, or free some"])


def test_a_failure_says_where_and_what_to_do(
    invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path
) -> None:
    pipeline.failure = ModelError("an input is a sequence", where="x", hint="export it as a tensor")
    result = invoke("optimize", model, "-o", tmp_path / "out.onnx", "-q")
    assert result.stderr == "error: an input is a sequence (x)\n  export it as a tensor\n"


def test_a_bug_leaves_a_file_and_no_traceback(
    invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pipeline.failure = ZeroDivisionError("oops")
    result = invoke("optimize", model, "-o", tmp_path / "out.onnx", "-q")
    assert result.exit_code == 70
    assert "Traceback" not in result.output
    assert "ZeroDivisionError: oops" in result.stderr
    (crash,) = tmp_path.glob("korch-crash-*.txt")
    assert str(crash) in result.stderr
    assert "Traceback" in crash.read_text(encoding="utf-8")


def test_a_bug_without_a_place_for_the_file_is_still_explained(
    invoke: Invoke, pipeline: SimpleNamespace, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("korch_cli.cli.failure.tempfile.mkstemp", refuse)
    pipeline.failure = ZeroDivisionError()
    result = invoke("optimize", model, "-o", tmp_path / "out.onnx", "-q")
    assert result.exit_code == 70
    assert "disk full" in result.stderr
