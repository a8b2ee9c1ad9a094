from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

from korch_cli.cli.entry import korch
from korch_cli.cli.feeding import draw_shared_inputs, read_inputs
from korch_cli.core.errors import UsageError
from korch_cli.core.model import Bindings
from korch_cli.core.types import Array


def model(path: Path, batch: int | str) -> Path:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "test",
        [info("x", TensorProto.FLOAT, [batch, 4])],
        [info("y", TensorProto.FLOAT, [batch, 4])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A model with a symbolic batch, and the same with the batch that it was optimised for."""
    return model(tmp_path / "in.onnx", "batch"), model(tmp_path / "out.onnx", 2)


@pytest.mark.parametrize("static_first", [True, False])
@pytest.mark.parametrize("dims", [{"batch": 2}, {}])
def test_the_model_that_the_flags_fit_says_what_is_fed(
    pair: tuple[Path, Path], static_first: bool, dims: dict[str, int]
) -> None:
    paths = pair[::-1] if static_first else pair
    (feeds,) = draw_shared_inputs(paths, Bindings(dims, {}), seed=0, runs=1)
    assert feeds["x"].shape == (2, 4)


def test_flags_that_fit_no_model_are_an_error_about_the_first(pair: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match="nonsense"):
        draw_shared_inputs(pair, Bindings({"nonsense": 1}, {}), seed=0, runs=1)


def test_verify_takes_the_dimension_that_the_original_was_bound_with(pair: tuple[Path, Path]) -> None:
    done = CliRunner().invoke(korch, ["verify", str(pair[1]), str(pair[0]), "--dim", "batch=2", "-q"])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("command", [["verify"], ["profile", "--against"]])
@pytest.mark.parametrize("broken_first", [True, False])
def test_any_file_that_holds_no_model_is_an_error_about_it(
    pair: tuple[Path, Path], command: list[str], broken_first: bool
) -> None:
    broken = pair[0].with_name("broken.onnx")
    broken.write_bytes(b"no model at all")
    paths = [str(broken), str(pair[1])]
    done = CliRunner().invoke(korch, [*command, *(paths if broken_first else paths[::-1]), "-q"])
    assert done.exit_code == 3, done.output
    assert "broken.onnx" in done.output


def picky(path: Path) -> Path:
    """A model that runs on some integers alone."""
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Range", ["zero", "n", "one"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["y"]),
        helper.make_node("Neg", ["x"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        [info("x", TensorProto.INT64, ["k"]), info("n", TensorProto.INT64, [])],
        [info("y", TensorProto.INT64, ["k"]), info("z", TensorProto.INT64, ["k"])],
        [helper.make_tensor(name, TensorProto.INT64, [], [value]) for name, value in (("zero", 0), ("one", 1))],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(proto.SerializeToString())
    return path


def test_inputs_from_a_file_are_fed_as_they_are_and_say_their_shapes(tmp_path: Path) -> None:
    path = picky(tmp_path / "picky.onnx")
    np.savez(tmp_path / "given.npz", x=np.arange(50), n=np.array(50))
    given, bindings = read_inputs(tmp_path / "given.npz", Bindings({}, {}))
    sets = draw_shared_inputs([path], bindings, seed=0, runs=2, given=given)
    assert all((feeds["n"] == 50) and (feeds["x"] == np.arange(50)).all() for feeds in sets)

    done = CliRunner().invoke(korch, ["verify", str(path), str(path), "--inputs", str(tmp_path / "given.npz"), "-q"])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(korch, ["verify", str(path), str(path), "--shape", "x=50", "-q"])
    assert done.exit_code == 1, done.output


def test_optimize_runs_on_the_inputs_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "cache"))
    path = picky(tmp_path / "picky.onnx")
    np.savez(tmp_path / "given.npz", x=np.arange(50), n=np.array(50))
    arguments = ["optimize", str(path), "-o", str(tmp_path / "out.onnx"), "--force-fusion", "-q"]
    done = CliRunner().invoke(korch, [*arguments, "--inputs", str(tmp_path / "given.npz")])
    assert done.exit_code == 0, done.output
    assert "PASS" in done.output


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"nonsense": np.zeros(3)}, "no input 'nonsense'"),
        ({"x": np.zeros((2, 4))}, "float64"),
        ({"x": np.zeros((3, 4), np.float32)}, "does not fit"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    tmp_path: Path, pair: tuple[Path, Path], arrays: dict[str, Array], words: str
) -> None:
    np.savez(tmp_path / "given.npz", **arrays)  # type: ignore[arg-type]
    done = CliRunner().invoke(korch, ["verify", str(pair[1]), str(pair[1]), "--inputs", str(tmp_path / "given.npz")])
    assert done.exit_code == 2, done.output
    assert words in done.output


def archived(name: str, content: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr(name, content)
    return held.getvalue()


_SHAPE = b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 9999), }"
_HUGE = b"\x93NUMPY\x01\x00v\x00" + _SHAPE.ljust(117) + b"\n"
"""An array that says it has more elements than there is memory."""


def _damaged(*, compressed: bool, at: int, by: int) -> bytes:
    """An archive of which bytes are others: of the elements, the flags (1 is a password) or the way to compress."""
    held = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(held, x=np.random.default_rng(0).random((30, 40)))
    content = bytearray(held.getvalue())
    entry = content.find(b"PK\x01\x02")
    for place in range(at, at + 200) if compressed else (at, entry + at + 2):
        content[place] ^= by
    return bytes(content)


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"not an archive",
        b"PK\x03\x04 broken",
        archived("x.npy", b"no array"),
        archived("x.npy", b"\x93NUMPY\x01\x00 cut"),
        archived("x.txt", b"no array"),
        archived("x.npy", _HUGE),
        _damaged(compressed=True, at=60, by=0x5A),
        _damaged(compressed=False, at=6, by=1),
        _damaged(compressed=False, at=8, by=99),
    ],
    ids=range(11),
)
def test_files_without_arrays_are_refused(tmp_path: Path, pair: tuple[Path, Path], content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "given.npz").write_bytes(content)
    done = CliRunner().invoke(korch, ["verify", str(pair[1]), str(pair[1]), "--inputs", str(tmp_path / "given.npz")])
    assert done.exit_code == 2, done.output
    assert "savez" in done.output
