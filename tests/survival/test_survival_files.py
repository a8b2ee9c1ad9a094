"""What `korch optimize` does to files: weights that are too large to hold, and whatever else lies around."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from survival_agreement import run
from survival_row import external, floats, model

from korch_cli.cli.entry import korch

_HUGE_ROWS, _HUGE_COLUMNS = 1 << 15, 17_000
_HUGE_BYTES = 4 * _HUGE_ROWS * _HUGE_COLUMNS
_LEFT_OVER_BYTES = 1 << 30
_MOST_MEMORY_BYTES = 1 << 30
_OPTIMISE = """
import json, resource, sys
from pathlib import Path
from korch_cli.core.model import Bindings
from korch_cli.pipeline import build_fusions, plan_fusion
from korch_cli.toolchain import find_compiler

source, output, scratch = map(Path, sys.argv[1:])
fusion = plan_fusion(source, Bindings({}, {}))
build_fusions([fusion], [output], scratch / "kernels.so", find_compiler(None), scratch / "objects", 2)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"kernels": fusion.kernels, "peak": peak}))
"""


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[Path]:
    """A folder with room for two copies of the huge weights, which go away at once."""
    if shutil.disk_usage(tmp_path).free < 2 * _HUGE_BYTES + _LEFT_OVER_BYTES:
        pytest.skip("there is no room on the disk")
    folder = tmp_path / "huge"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
def test_weights_that_no_protobuf_holds_are_never_in_memory(roomy: Path) -> None:
    signature = f"(float[1,{_HUGE_ROWS}] x) => (float[1,{_HUGE_COLUMNS}] y)"
    proto = model(f"g {signature} {{ a = Exp(x) m = MatMul(a, w) y = Neg(m) }}")
    proto.graph.initializer.append(external("w", (_HUGE_ROWS, _HUGE_COLUMNS), "w.bin", offset=0, length=_HUGE_BYTES))
    source, output = roomy / "in" / "in.onnx", roomy / "out" / "out.onnx"
    source.parent.mkdir()
    output.parent.mkdir()
    source.write_bytes(proto.SerializeToString())
    with (source.parent / "w.bin").open("wb") as file:
        file.truncate(_HUGE_BYTES)
    command = [sys.executable, "-c", _OPTIMISE, str(source), str(output), str(roomy)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["kernels"] == 2
    assert told["peak"] < _MOST_MEMORY_BYTES
    assert {path.name for path in output.parent.iterdir()} == {"out.onnx", "out.onnx.data"}
    assert (output.parent / "out.onnx.data").stat().st_size == _HUGE_BYTES
    assert output.stat().st_size < 100_000
    onnx.checker.check_model(str(output))


def _model_with_weights(folder: Path, location: str = "w.bin", name: str = "in.onnx") -> Path:
    """Write a model whose weights lie in another file."""
    folder.mkdir(parents=True, exist_ok=True)
    proto = model("g (float[2,4] x) => (float[2,3] y) { a = Exp(x) m = MatMul(a, w) y = Neg(m) }")
    proto.graph.initializer.append(external("w", (4, 3), location))
    (folder / location).write_bytes(floats(4, 3).tobytes())
    (folder / name).write_bytes(proto.SerializeToString())
    return folder / name


def _optimize(source: Path, output: Path) -> Result:
    return CliRunner().invoke(korch, ["optimize", str(source), "-o", str(output), "-q", "--force-fusion"])


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with files that have the names of those that korch writes."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name in ("out.onnx", "out.onnx.data", "out.korch.so", "out.plan.json", "w.bin", "in.onnx", "prepared.onnx"):
        (folder / name).write_text(f"somebody's {name}", encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "cache"))
    return folder


def _assert_untouched(folder: Path) -> None:
    for path in folder.iterdir():
        assert path.read_text(encoding="utf-8") == f"somebody's {path.name}"
    assert len(list(folder.iterdir())) == 7


@pytest.mark.slow
def test_files_elsewhere_are_left_alone(tmp_path: Path, elsewhere: Path) -> None:
    source = _model_with_weights(tmp_path / "in")
    output = tmp_path / "out" / "out.onnx"
    output.parent.mkdir()
    (output.parent / "out.onnx.data.bak").write_bytes(b"a backup")
    result = _optimize(source, output)
    assert result.exit_code == 0, result.output
    names = {"out.onnx", "out.onnx.data", "out.korch.so", "out.plan.json", "out.onnx.data.bak"}
    assert {path.name for path in output.parent.iterdir()} == names
    assert {path.name for path in source.parent.iterdir()} == {"in.onnx", "w.bin"}
    _assert_untouched(elsewhere)
    feeds = {"x": floats(2, 4)}
    (wanted,), (got,) = run(source, feeds, None, ()), run(output, feeds, output.with_suffix(".korch.so"), ())
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


@pytest.mark.parametrize("name", ["out.onnx", "out.onnx.data", "out.korch.so", "out.plan.json"])
def test_a_pipe_in_the_place_of_any_file_to_write_stays(tmp_path: Path, elsewhere: Path, name: str) -> None:
    source = _model_with_weights(tmp_path / "in")
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / name)
    result = _optimize(source, tmp_path / "out" / "out.onnx")
    assert result.exit_code == 2
    assert name in result.stderr
    assert [path.is_fifo() for path in (tmp_path / "out").iterdir()] == [True]
    _assert_untouched(elsewhere)


@pytest.mark.slow
def test_paths_may_be_relative_and_odd(tmp_path: Path, elsewhere: Path) -> None:
    _model_with_weights(elsewhere / "naïve ☃ folder", name="a model.v1.2.onnx")
    result = _optimize(Path("naïve ☃ folder/a model.v1.2.onnx"), Path("naïve ☃ folder/fast model"))
    assert result.exit_code == 0, result.output
    names = {path.name for path in (elsewhere / "naïve ☃ folder").iterdir()}
    written = {"fast model", "fast model.data", "fast model.korch.so", "fast model.plan.json"}
    assert names == {"a model.v1.2.onnx", "w.bin"} | written
    shutil.rmtree(elsewhere / "naïve ☃ folder")
    _assert_untouched(elsewhere)


@pytest.mark.parametrize("location", ["out.onnx.data", "out.onnx", "out.korch.so", "out.plan.json"])
def test_the_weights_of_the_input_are_never_overwritten(tmp_path: Path, elsewhere: Path, location: str) -> None:
    source = _model_with_weights(tmp_path / "in", location=location)
    weights = (source.parent / location).read_bytes()
    result = _optimize(source, source.with_name("out.onnx"))
    assert (source.parent / location).read_bytes() == weights
    assert result.exit_code == 2, result.output
    assert location in result.stderr
    assert {path.name for path in source.parent.iterdir()} == {"in.onnx", location}


@pytest.mark.slow
def test_an_output_of_korch_can_be_optimised_again(tmp_path: Path, elsewhere: Path) -> None:
    source = _model_with_weights(tmp_path / "in")
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    assert _optimize(source, first).exit_code == 0
    result = _optimize(first, second)
    assert result.exit_code == 0, result.output
    proto = onnx.load(str(second))
    assert [i.name for i in proto.graph.input] == ["x"]
    assert {node.op_type for node in proto.graph.node if not node.domain} == {"MatMul"}
    feeds = {"x": floats(2, 4)}
    (wanted,), (got,) = run(source, feeds, None, ()), run(second, feeds, second.with_suffix(".korch.so"), ())
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    (alone,) = run(second, feeds, None, ())
    np.testing.assert_allclose(alone, wanted, rtol=1e-5)


@pytest.mark.parametrize("way", ["same", "symbolic link", "hard link"])
def test_the_input_is_never_the_output_whatever_it_is_called(tmp_path: Path, elsewhere: Path, way: str) -> None:
    source = _model_with_weights(tmp_path / "in")
    before = source.read_bytes()
    output = source if way == "same" else source.with_name("other.onnx")
    if way == "symbolic link":
        output.symlink_to(source)
    if way == "hard link":
        output.hardlink_to(source)
    result = _optimize(source, output)
    assert result.exit_code == 2
    assert "the same file" in result.stderr
    assert source.read_bytes() == before


@pytest.mark.parametrize("ending", ["prototxt", "textproto", "json", "onnxtxt", "txt", "pb", "model"])
def test_endings_of_names_mean_nothing(tmp_path: Path, elsewhere: Path, ending: str) -> None:
    source = _model_with_weights(tmp_path / "in")
    source = source.rename(source.with_suffix(f".{ending}"))
    output = tmp_path / f"out.{ending}"
    # The second time there are files to look at before they are replaced.
    for _ in range(2):
        result = _optimize(source, output)
        assert result.exit_code == 0, result.output
    feeds = {"x": floats(2, 4)}
    (wanted,), (got,) = run(source, feeds, None, ()), run(output, feeds, None, ())
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_a_folder_that_is_not_there(tmp_path: Path, elsewhere: Path) -> None:
    source = _model_with_weights(tmp_path / "in")
    result = _optimize(source, tmp_path / "none" / "out.onnx")
    assert result.exit_code == 4
    assert "none" in result.stderr
    assert not (tmp_path / "none").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_model_that_may_not_be_read(tmp_path: Path, elsewhere: Path) -> None:
    source = _model_with_weights(tmp_path / "in")
    source.chmod(0)
    assert _optimize(source, tmp_path / "out.onnx").exit_code == 3
