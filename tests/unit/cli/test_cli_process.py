from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from korch_cli.version import __version__

_HEAVY = ("numpy", "onnx", "onnxruntime", "ortools", "onnx_graphsurgeon", "rich", "ml_dtypes")


def _python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        ["optimize", "--help"],
        ["inspect", "--help"],
        ["reduce", "--help"],
        ["cache", "stats", "--help"],
    ],
)
def test_what_needs_no_model_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print(sorted(set({_HEAVY!r}) & set(sys.modules)), file=sys.stderr))\n"
        "from korch_cli.cli import main\n"
        "main()\n"
    )
    done = _python(code, *arguments)
    assert done.returncode == 0
    assert done.stderr.strip() == "[]"
    assert done.stdout


def test_the_module_runs_as_a_program() -> None:
    command = [sys.executable, "-m", "korch_cli", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"korch {__version__}\n")


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
@pytest.mark.parametrize("form", ["text", "json"])
def test_names_that_the_encoding_lacks_are_shown(encoding: str, form: str, tmp_path: Path) -> None:
    path, report = os.fsencode(tmp_path / "名") + b"\xff.onnx", tmp_path / "report.json"
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "my.ops" : 1]> g (float[2] x) => (float[2] y) { y = my.ops.Foo(x) }'
    )
    proto.graph.node[0].name = "œuvre 名"
    Path(os.fsdecode(path)).write_bytes(proto.SerializeToString())
    command: list[str | bytes | Path] = [
        sys.executable,
        "-m",
        "korch_cli",
        "inspect",
        path,
        "--format",
        form,
        "-v",
        "--report",
        report,
    ]
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, check=False, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    shown = json.loads(report.read_text(encoding="utf-8"))
    assert shown["opaque"][0]["name"] == "œuvre 名"
    if form == "json":
        assert json.loads(done.stdout) == shown
    else:
        assert b"Foo" in done.stdout


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_stream_may_be_closed(closed: str, tmp_path: Path) -> None:
    path, report = tmp_path / "m.onnx", tmp_path / "report.json"
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    onnx.save_model(onnx.parser.parse_model(text), path)
    arguments = [sys.executable, "-m", "korch_cli", "inspect", str(path), "--report", str(report)]
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *arguments], capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(report.read_text(encoding="utf-8"))["status"] == "passed"


def test_a_current_folder_that_is_gone_is_explained(tmp_path: Path) -> None:
    (tmp_path / "in.onnx").write_bytes(b"model")
    (tmp_path / "gone").mkdir()
    program = [sys.executable, "-m", "korch_cli", "optimize", str(tmp_path / "in.onnx"), "-o", "out.onnx"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        ["/bin/sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", *program],
        cwd=tmp_path / "gone",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 4, done.stderr
    assert "current folder" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no device that is always full")
def test_a_full_disk_is_not_a_bug() -> None:
    command = [sys.executable, "-m", "korch_cli", "doctor"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert done.returncode == 4
    assert "bug" not in done.stderr
    assert "space" in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_signals_end_the_process_with_their_code(number: signal.Signals, code: int, tmp_path: Path) -> None:
    (tmp_path / "in.onnx").write_bytes(b"model")
    program = (
        "import signal, sys, time, types\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # which whoever runs the tests may have been told to ignore
        "stub = types.ModuleType('korch_cli.pipeline')\n"
        "stub.Settings = lambda **fields: None\n"
        "def optimize(settings, progress):\n"
        "    progress.stage('waiting')\n"
        "    time.sleep(60)\n"
        "stub.optimize = optimize\n"
        "sys.modules['korch_cli.pipeline'] = stub\n"
        "from korch_cli.cli import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", program, "optimize", "in.onnx", "-o", "out.onnx"]
    environment = {**os.environ, "CI": "true"}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert "waiting" in process.stderr.readline()
        process.send_signal(number)
        output, messages = process.communicate(timeout=30)
    assert process.returncode == code
    assert output == ""
    assert "nothing was written" in messages
    assert "Traceback" not in messages
    assert [path.name for path in tmp_path.iterdir()] == ["in.onnx"]
