"""The script that accepts or rejects models: what passes and what does not."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

_SCRIPT = Path(__file__).parents[3] / "scripts" / "acceptance.py"
_ENTRY = {"source": "wheel", "shapes": {"x": "1x4"}}


@pytest.fixture
def acceptance() -> ModuleType:
    spec = importlib.util.spec_from_file_location("acceptance", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["acceptance"] = module  # where dataclasses look for the names in annotations
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def model(tmp_path: Path) -> Path:
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="relu")], "g", info[:1], info[1:])
    path = tmp_path / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture
def judged(
    acceptance: ModuleType, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Any, list[tuple[object, ...]]]]:
    """Return what the script says of a model for which korch answers so, and the commands that it ran."""

    def judge(**answers: Any) -> tuple[Any, list[tuple[object, ...]]]:
        commands: list[tuple[object, ...]] = []

        def korch(*words: object, **_: object) -> Any:
            commands.append(words)
            return answers[str(words[0])]

        monkeypatch.setattr(acceptance, "korch", korch)
        row = acceptance.accept("small", model, _ENTRY, tmp_path / "out", acceptance.Limits("5m", "15s", 600.0))
        return row, commands

    return judge


def optimized(*, changed: bool = True, passed: bool = True) -> dict[str, Any]:
    return {
        "changed": changed,
        "reason": "so",
        "kernels": [{}, {}] if changed else [],
        "verdicts": [{"passed": passed}],
    }


def timed(value: float) -> dict[str, Any]:
    return {"comparison": {"speed_ups": [{"ratio": {"value": value, "low": value - 0.1, "high": value + 0.1}}]}}


def test_a_faster_model_that_is_right_passes(judged: Any) -> None:
    row, commands = judged(optimize=optimized(), verify={"status": "passed"}, profile=timed(1.5))
    assert (row.failure, row.verify, row.kernels, row.nodes, row.ratio) == ("", "pass", 2, 1, (1.5, 1.4, 1.6))
    assert [command[0] for command in commands] == ["optimize", "verify", "profile"]
    assert all(command[-2:] == ("--shape", "x=1x4") for command in commands)


def test_a_model_that_is_left_as_it_was_passes_without_timing(judged: Any) -> None:
    row, commands = judged(optimize=optimized(changed=False), verify={"status": "passed"})
    assert not row.changed
    assert (row.failure, row.ratio) == ("", None)
    assert [command[0] for command in commands] == ["optimize", "verify"]


@pytest.mark.parametrize(
    ("answers", "failure"),
    [
        ({"optimize": "took more than 10 minutes"}, "optimize: took more than 10 minutes"),
        ({"optimize": optimized(), "verify": {"status": "failed"}}, "verify: outputs differ"),
        ({"optimize": optimized(), "verify": "exit code 70: error"}, "verify: exit code 70"),
        ({"optimize": optimized(), "verify": {"status": "passed"}, "profile": timed(0.97)}, "slower than 0.98"),
        (
            {"optimize": optimized(), "verify": {"status": "passed"}, "profile": "exit code 4: x"},
            "profile: exit code 4",
        ),
    ],
)
def test_a_model_fails(judged: Any, answers: dict[str, Any], failure: str) -> None:
    row, _ = judged(**answers)
    assert row.failure.startswith(failure)


def test_the_table_says_why_a_model_was_left_as_it_was(acceptance: ModuleType) -> None:
    rows = [
        acceptance.Row("a", "wheel", 1, note="nothing | faster"),
        acceptance.Row("b", "wheel", 1, failure="verify: x"),
    ]
    unchanged, failed = acceptance.table(rows).splitlines()[2:4]
    assert unchanged.endswith("| unchanged: nothing \\| faster |")
    assert failed.endswith("| FAILED: verify: x |")


def test_korch_is_really_run(acceptance: ModuleType, model: Path) -> None:
    assert acceptance.korch("verify", model, model, "--shape", "x=1x4", "--runs", "1")["status"] == "passed"
    assert acceptance.korch("verify", model, model, "--shape", "z=1x4").startswith("exit code 2: ")
    assert acceptance.korch("verify", model, model, "--shape", "x=1x4", longest_s=0.01).startswith("took more than")


@pytest.mark.parametrize("failure", ["", "verify: outputs differ"])
def test_the_exit_code_and_both_files_tell_the_result(
    acceptance: ModuleType, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    monkeypatch.setattr(acceptance, "accept", lambda name, *_: acceptance.Row(name, "wheel", 1, failure=failure))
    (tmp_path / "out").mkdir()
    shutil.copy(model, tmp_path / "ppocr_rec.onnx")
    monkeypatch.setattr(sys, "argv", ["acceptance.py", str(tmp_path), "-o", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as left:
        acceptance.main()
    assert left.value.code == bool(failure)
    document = json.loads((tmp_path / "out" / "acceptance.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in document["models"]] == ["ppocr_rec"]
    last = (tmp_path / "out" / "acceptance.md").read_text(encoding="utf-8").splitlines()[-1]
    assert last == f"{int(not failure)} of 1 models pass."
