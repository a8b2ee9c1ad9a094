from __future__ import annotations

import ast
import hashlib
import importlib
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

_FOLDER = Path(__file__).parents[3] / "models"


@pytest.fixture
def fetching(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(_FOLDER))
    return importlib.import_module("fetch")


@pytest.fixture
def pip(fetching: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], list[list[str]]]:
    """Make pip download a wheel of one file with this content; return the commands that it gets."""

    def prepare(content: bytes) -> list[list[str]]:
        commands: list[list[str]] = []

        def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
            commands.append(command)
            folder = Path(command[command.index("--dest") + 1])
            with zipfile.ZipFile(folder / "package-1.0-py3-none-any.whl", "w") as wheel:
                wheel.writestr("package/model.onnx", content)
            return subprocess.CompletedProcess(command, 0)

        digest = hashlib.sha256(b"right").hexdigest()
        entry = {
            "source": "wheel",
            "package": "package",
            "version": "1.0",
            "member": "package/model.onnx",
            "sha256": digest,
        }
        monkeypatch.setattr(fetching, "catalogue", lambda: {"model": entry})
        monkeypatch.setattr(fetching.subprocess, "run", run)
        return commands

    return prepare


_KEYS = {
    "wheel": {"package", "version", "member", "sha256"},
    "build": {"builder"},
    "text": {"graph"},
    "export": {"network", "image", "exporter"},
}


def test_every_entry_is_complete(fetching: ModuleType) -> None:
    for name, entry in fetching.catalogue().items():
        assert entry.keys() == {"title", "source", "origin", "licence", "shapes"} | _KEYS[entry["source"]], name
        words = [value for key, value in entry.items() if key != "shapes"]
        assert all(isinstance(word, str) and word for word in words), name
        for shape in [*entry["shapes"].values(), entry.get("image", "1")]:
            assert all(int(extent) > 0 for extent in shape.split("x")), name


def test_no_two_entries_are_the_same_model(fetching: ModuleType) -> None:
    contents = [
        tuple(str(entry[key]) for key in sorted(_KEYS[entry["source"]]))
        + ((str(entry["shapes"]),) if entry["source"] == "text" else ())
        for entry in fetching.catalogue().values()
    ]
    assert len(contents) == len(set(contents))


def test_builders_and_networks_are_there(fetching: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A builder is imported, which must not need torch; a network, which may need it, is only read."""
    monkeypatch.setitem(sys.modules, "torch", None)
    for entry in fetching.catalogue().values():
        if entry["source"] == "build":
            monkeypatch.delitem(sys.modules, entry["builder"], raising=False)
            assert callable(importlib.import_module(entry["builder"]).build)
        elif entry["source"] == "export":
            text = (_FOLDER / "networks" / f"{entry['network']}.py").read_text(encoding="utf-8")
            functions = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
            assert "build" in functions


def test_every_network_is_written_by_both_exporters(fetching: ModuleType) -> None:
    exported = [entry for entry in fetching.catalogue().values() if entry["source"] == "export"]
    both = {(entry["network"], entry["image"], exporter) for entry in exported for exporter in ("dynamo", "script")}
    assert {(entry["network"], entry["image"], entry["exporter"]) for entry in exported} == both


def test_a_missing_exporter_is_named_with_what_to_do(
    fetching: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fetching.importlib.util, "find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(fetching.UnavailableError, match=r"^needs torch: pip install '\.\[export\]'"):
        fetching.fetch("candy-dynamo", tmp_path)
    assert not list(tmp_path.iterdir())


def test_all_leaves_out_what_cannot_be_had(
    fetching: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = fetching.catalogue()
    some = {name: entries[name] for name in ("candy-dynamo", "candy")}
    monkeypatch.setattr(fetching, "catalogue", lambda: some)
    monkeypatch.setattr(fetching.importlib.util, "find_spec", lambda _: None)
    assert _run(fetching, monkeypatch, "--all", "-o", str(tmp_path)) == 0
    said = capsys.readouterr()
    assert said.out == f"{tmp_path / 'candy.onnx'}\n"
    assert said.err.startswith("left out: candy-dynamo needs torch")
    assert _run(fetching, monkeypatch, "candy", "candy-dynamo", "-o", str(tmp_path)) == 1
    assert capsys.readouterr().out == f"{tmp_path / 'candy.onnx'}\n"


def test_models_must_be_named(fetching: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in ([], ["nothing"], ["--all", "candy"]):
        assert _run(fetching, monkeypatch, *arguments) == 2


def _run(fetching: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr(sys, "argv", ["fetch.py", *arguments])
    with pytest.raises(SystemExit) as left:
        fetching.main()
    return left.value.code


def test_flags_bind_every_input(fetching: ModuleType) -> None:
    assert fetching.flags("ppocr_rec") == ["--shape", "x=1x3x48x320"]
    assert fetching.flags("minilm") == ["--shape", "input_ids=1x128", "--shape", "attention_mask=1x128"]
    assert fetching.flags("candy") == []


def test_a_model_is_downloaded_once(fetching: ModuleType, pip: Any, tmp_path: Path) -> None:
    commands = pip(b"right")
    target = tmp_path / "new" / "model.onnx"
    assert fetching.fetch("model", tmp_path / "new") == target
    assert fetching.fetch("model", tmp_path / "new") == target
    assert target.read_bytes() == b"right"
    assert [command[-1] for command in commands] == ["package==1.0"]
    assert [path.name for path in target.parent.iterdir()] == ["model.onnx"]


def test_another_file_than_the_catalogue_describes_is_refused(fetching: ModuleType, pip: Any, tmp_path: Path) -> None:
    pip(b"wrong")
    with pytest.raises(RuntimeError, match="not the file"):
        fetching.fetch("model", tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_damaged_model_is_fetched_again(fetching: ModuleType, pip: Any, tmp_path: Path) -> None:
    pip(b"right")
    (tmp_path / "model.onnx").write_bytes(b"half")
    assert fetching.fetch("model", tmp_path).read_bytes() == b"right"


@pytest.mark.parametrize(("name", "shape"), [("candy", (1, 3, 224, 224)), ("resnet50", (1, 1000))])
def test_networks_that_are_made_run_on_images(
    fetching: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, shape: tuple[int, ...]
) -> None:
    path = fetching.fetch(name, tmp_path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (image,) = session.get_inputs()
    (output,) = session.run(None, {image.name: np.random.default_rng(0).random(image.shape, np.float32)})
    assert output.shape == shape
    assert np.isfinite(output).all()
    assert output.std() > 0


def test_a_network_that_is_made_is_always_the_same(fetching: ModuleType, tmp_path: Path) -> None:
    first, second = (fetching.fetch("candy", tmp_path / name).read_bytes() for name in ("a", "b"))
    assert first == second
    assert {node.op_type for node in onnx.ModelProto.FromString(first).graph.node} == {
        "Add",
        "Conv",
        "InstanceNormalization",
        "Pad",
        "Relu",
        "Resize",
    }
