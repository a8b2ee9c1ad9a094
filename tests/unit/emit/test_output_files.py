"""Files appear whole or not at all, and external data follows its model."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from korch_cli.core.errors import MissingError, ModelError
from korch_cli.emit import copy_model, save_model, staging, write_set

GENERATOR = np.random.default_rng(3)
WEIGHTS = {name: GENERATOR.normal(size=(rows, 3)).astype(np.float32) for name, rows in (("v", 5), ("w", 7))}


def model_with_external_data(folder: Path) -> onnx.ModelProto:
    """A model whose weights are ranges of `weights.bin`, one of them in a subgraph."""
    blob = b"header"
    tensors = {}
    for name, array in WEIGHTS.items():
        tensor = numpy_helper.from_array(array, name)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "weights.bin"), ("offset", len(blob)), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        blob += array.tobytes()
        tensors[name] = tensor
    (folder / "weights.bin").write_bytes(blob)
    made = helper.make_tensor_value_info("sum", TensorProto.FLOAT, (3,))
    constant = helper.make_node("Constant", [], ["inner"], value=tensors["w"])
    reduced = helper.make_node("ReduceSum", ["inner", "axes"], ["sum"], keepdims=0)
    branch = helper.make_graph([constant, reduced], "branch", [], [made])
    other = helper.make_tensor_value_info("other", TensorProto.FLOAT, (3,))
    largest = helper.make_node("ReduceMax", ["v"], ["other"], axes=[0], keepdims=0)
    otherwise = helper.make_graph([largest], "else", [], [other])
    graph = helper.make_graph(
        [
            helper.make_node("If", ["flag"], ["a"], then_branch=branch, else_branch=otherwise),
            helper.make_node("Add", ["a", "v"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("flag", TensorProto.BOOL, ())],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (5, 3))],
        [tensors["v"], numpy_helper.from_array(np.array([0], np.int64), "axes")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_external_data_is_copied_beside_the_model(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    proto = model_with_external_data(source)
    before = proto.SerializeToString(deterministic=True)
    save_model(proto, source, target / "out.onnx")
    assert proto.SerializeToString(deterministic=True) == before
    assert sorted(p.name for p in target.iterdir()) == ["out.onnx", "out.onnx.data"]
    (source / "weights.bin").unlink()
    session = onnxruntime.InferenceSession(str(target / "out.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"flag": np.array(True)})
    np.testing.assert_allclose(found, WEIGHTS["v"] + WEIGHTS["w"].sum(axis=0), rtol=1e-5)


def test_a_model_without_external_data_is_its_bytes(tmp_path: Path) -> None:
    proto = helper.make_model(helper.make_graph([], "g", [], []))
    save_model(proto, tmp_path, tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == proto.SerializeToString(deterministic=True)
    assert [p.name for p in tmp_path.iterdir()] == ["out.onnx"]


def shorten(folder: Path, proto: onnx.ModelProto) -> None:
    path = folder / "weights.bin"
    path.write_bytes(path.read_bytes()[:-8])


def remove(folder: Path, proto: onnx.ModelProto) -> None:
    (folder / "weights.bin").unlink()


def escape(folder: Path, proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].external_data[0].value = "../weights.bin"


@pytest.mark.parametrize(
    ("spoil", "word"), [(shorten, "8 bytes early"), (remove, "cannot be read"), (escape, "outside")]
)
def test_bad_external_data_leaves_nothing_behind(
    tmp_path: Path, spoil: Callable[[Path, onnx.ModelProto], None], word: str
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    proto = model_with_external_data(source)
    spoil(source, proto)
    with pytest.raises(ModelError, match=word):
        save_model(proto, source, target / "out.onnx")
    assert not list(target.iterdir())


def test_a_copy_of_a_model_is_byte_for_byte(tmp_path: Path) -> None:
    source = tmp_path / "in.onnx"
    # A field that protobuf does not know stays too.
    source.write_bytes(helper.make_model(helper.make_graph([], "g", [], [])).SerializeToString() + b"\xfa\x7f\x01x")
    copy_model(source, tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == source.read_bytes()


def test_a_copy_takes_external_data_along(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    onnx.save(model_with_external_data(source), source / "in.onnx")
    copy_model(source / "in.onnx", target / "out.onnx")
    (source / "weights.bin").unlink()
    session = onnxruntime.InferenceSession(str(target / "out.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"flag": np.array(False)})
    np.testing.assert_allclose(found, WEIGHTS["v"] + WEIGHTS["v"].max(axis=0), rtol=1e-6)


def prepared(folder: Path, *, old: tuple[str, ...]) -> tuple[dict[Path, Path], Path]:
    """Three finished files in a staging folder, and old versions of some of them in place."""
    staged = folder / "staged"
    staged.mkdir()
    files = {}
    for name in ("out.so", "out.json", "out.onnx"):
        (staged / name).write_text(f"new {name}")
        files[folder / name] = staged / name
    for name in old:
        (folder / name).write_text(f"old {name}")
    return files, staged


def contents(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in folder.iterdir() if p.is_file()}


def test_a_set_is_moved_into_place(tmp_path: Path) -> None:
    files, staged = prepared(tmp_path, old=("out.onnx",))
    write_set(files)
    assert contents(tmp_path) == {f"out.{e}": f"new out.{e}" for e in ("so", "json", "onnx")}
    assert not list(staged.iterdir())


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("old", [(), ("out.so", "out.onnx"), ("out.so", "out.json", "out.onnx")])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int, old: tuple[str, ...], error: BaseException
) -> None:
    files, _ = prepared(tmp_path, old=old)
    before = contents(tmp_path)
    move = os.replace
    calls = iter(range(100))

    def replace(source: Path, target: Path) -> None:
        if next(calls) == failing:
            raise error
        move(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(MissingError if isinstance(error, OSError) else KeyboardInterrupt):
        write_set(files)
    assert contents(tmp_path) == before


def test_a_folder_in_the_way_is_found_before_anything_moves(tmp_path: Path) -> None:
    files, _ = prepared(tmp_path, old=("out.so",))
    (tmp_path / "out.onnx").mkdir()
    with pytest.raises(MissingError, match="is none"):
        write_set(files)
    assert contents(tmp_path) == {"out.so": "old out.so"}


def test_a_finished_file_that_is_missing_moves_nothing(tmp_path: Path) -> None:
    files, staged = prepared(tmp_path, old=("out.so",))
    (staged / "out.onnx").unlink()
    with pytest.raises(MissingError, match="cannot be written"):
        write_set(files)
    assert contents(tmp_path) == {"out.so": "old out.so"}


def test_staging_is_inside_the_folder_and_goes_away(tmp_path: Path) -> None:
    with staging(tmp_path) as staged:
        (staged / "file").write_text("x")
        assert staged.parent == tmp_path
    assert not list(tmp_path.iterdir())


def test_staging_goes_away_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), staging(tmp_path):
        raise RuntimeError
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["missing", "file"])
def test_a_folder_that_is_none_is_said_so(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MissingError, match="does not exist") as staged, staging(tmp_path / name):
        pass
    assert staged.value.hint
    assert staged.value.exit_code == 4
    with pytest.raises(MissingError, match="does not exist"):
        save_model(onnx.ModelProto(), tmp_path, tmp_path / name / "out.onnx")
    with pytest.raises(MissingError, match="does not exist"):
        write_set({tmp_path / name / "out.onnx": tmp_path / "file"})


@pytest.mark.skipif(os.access("/", os.W_OK), reason="this user can write everywhere")
def test_a_folder_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(MissingError, match="cannot be written"), staging(tmp_path):
            pass
    finally:
        tmp_path.chmod(0o700)
