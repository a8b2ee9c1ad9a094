from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

from korch_cli.core.errors import MissingError, ModelError
from korch_cli.core.progress import Silent
from korch_cli.core.types import Array
from korch_cli.measure import ProfileStore, calibrate, profile_model
from korch_cli.toolchain import compile_units, find_compiler, link
from tests.compilers import CLANG

FEEDS = {"x": np.ones((1, 4, 8, 8), np.float32)}
NAMES = ('a "conv"', "back\\slash, and a kernel_time", "ü\n_kernel_time")

_CALIBRATION = importlib.import_module("korch_cli.measure.calibrate")
"""The module, whose name the package gives to its function."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Conv, Relu, Add, with names that are hard to write down."""
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.standard_normal((4, 4, 3, 3)).astype(np.float32), "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name=NAMES[0], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name=NAMES[1]),
        helper.make_node("Add", ["r", "x"], ["y"], name=NAMES[2]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 8, 8])],
        [weight],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.parametrize("optimize", [False, True])
def test_every_node_of_the_saved_model_has_a_time(model: Path, tmp_path: Path, optimize: bool) -> None:
    times = profile_model(model, FEEDS, threads=1, optimize=optimize, folder=tmp_path, seconds=0.3)
    saved = onnx.load(times.optimized)
    assert {node.name for node in saved.graph.node} == set(times.times_us)
    assert times.total_us > 0
    assert all(time >= 0 for time in times.times_us.values())
    assert any(time > 0 for time in times.times_us.values())
    if optimize:
        assert "Relu" not in {node.op_type for node in saved.graph.node}
    else:
        assert set(times.times_us) == set(NAMES)
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize(
    ("text", "feeds"),
    [
        ("(bfloat16[3] x) => (bfloat16[3] y) { y = Identity(x) }", {"x": np.ones(3, ml_dtypes.bfloat16)}),
        ("(string[2] x) => (string[2] y) { y = Identity(x) }", {"x": np.array(["a", "b"], object)}),
        ("(float[2] x) => (seq(float[2]) y) { y = SequenceConstruct(x) }", {"x": np.ones(2, np.float32)}),
        ("(float[2] x) => (optional(float[2]) y) { y = Optional(x) }", {"x": np.ones(2, np.float32)}),
    ],
)
def test_a_model_of_any_type_has_a_profile(tmp_path: Path, text: str, feeds: dict[str, Array]) -> None:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}')
    onnx.save(proto, tmp_path / "m.onnx")
    times = profile_model(tmp_path / "m.onnx", feeds, threads=1, optimize=False, folder=tmp_path, seconds=0.1)
    assert times.total_us > 0


@pytest.mark.parametrize("declared", ["float[6]", "float[1, 5]", "float[2, 3, 1]", "float[a]"])
def test_a_model_that_declares_a_false_shape_has_a_profile(tmp_path: Path, declared: str) -> None:
    text = f"(float[6] x, int64[2] shape) => ({declared} y) {{ y = Reshape(x, shape) }}"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}'), tmp_path / "m.onnx")
    feeds = {"x": np.ones(6, np.float32), "shape": np.array([2, 3])}
    assert profile_model(tmp_path / "m.onnx", feeds, threads=1, optimize=False, folder=tmp_path, seconds=0.1).times_us


def test_a_model_that_does_not_run_is_the_users(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"model\.onnx"):
        profile_model(model, {}, threads=1, optimize=False, folder=tmp_path, seconds=0.1)


def test_limits_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_CALIBRATION, "_is_busy", lambda: False)
    built: list[Path] = []

    def build(text: str, exports: tuple[str, ...]) -> Path:
        (unit,) = compile_units(find_compiler(), {"m": text}, {}, tmp_path, jobs=1, progress=Silent()).values()
        assert isinstance(unit, Path), unit
        link(find_compiler(), [unit], tmp_path / "m.so", exports=exports)
        built.append(unit)
        return tmp_path / "m.so"

    store = ProfileStore(tmp_path)
    limits = calibrate(1, find_compiler().identity, store, build)
    sizes = [size for size, _ in limits.bandwidth]
    assert sizes == sorted(set(sizes))
    assert sizes[0] <= 64 << 10
    assert sizes[-1] == 128 << 20
    assert all(rate > 0 for _, rate in limits.bandwidth)
    assert limits.flops_per_second > 0
    assert limits.dispatch_us > 0
    assert limits.threads == 1
    assert limits.bytes_per_second(1 << 40) == limits.bandwidth[-1][1]
    assert calibrate(1, find_compiler().identity, store, build) == limits
    assert len(built) == 1
    calibrate(1, "another compiler", store, build)
    assert len(built) == 2
    store.close()


_STREAM = """
import ctypes, sys
import numpy as np
library = ctypes.CDLL(sys.argv[1])
library.korch_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
for start in range(0, 64, 4):
    a, b = (np.arange(1040, dtype=np.float32) for _ in range(2))
    library.korch_stream(a.ctypes.data + start, b.ctypes.data + start, 1024, 1)
    assert (b[start // 4:][:1024] == 1.5 * a[start // 4:][:1024]).all()
"""


@pytest.mark.parametrize("command", ["g++", CLANG], ids=["g++", "clang"])
def test_limits_are_measured_on_floats_wherever_they_lie(tmp_path: Path, command: str) -> None:
    compiler = find_compiler(command)
    (unit,) = compile_units(compiler, {"m": _CALIBRATION._SOURCE}, {}, tmp_path, jobs=1, progress=Silent()).values()
    assert isinstance(unit, Path), unit
    link(compiler, [unit], tmp_path / "m.so", exports=_CALIBRATION._EXPORTS)
    subprocess.run([sys.executable, "-c", _STREAM, str(tmp_path / "m.so")], check=True)


def test_limits_of_a_busy_machine_are_measured_again_and_the_best_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = iter([(3.0, 50.0), (5.0, 40.0), (4.0, 60.0)])
    busy = iter([True, True, False])
    hours = iter(range(100))
    monkeypatch.setattr(_CALIBRATION.time, "time", lambda: 4000.0 * next(hours))

    class Machine:
        def __enter__(self) -> Machine:
            return self

        def __exit__(self, *_: object) -> None: ...

        def ask(self, _request: object, _limit_s: float) -> dict[str, object]:
            bandwidth, flops = next(rates)
            return {"bandwidth": [[1024, bandwidth], [4096, 2.0]], "flops_per_second": flops}

    monkeypatch.setattr(_CALIBRATION, "Worker", Machine)
    monkeypatch.setattr(_CALIBRATION, "_is_busy", lambda: next(busy))
    store = ProfileStore(tmp_path)
    found = [calibrate(1, "compiler", store, lambda text, exports: tmp_path / "m.so") for _ in range(4)]
    assert [limits.bandwidth[0][1] for limits in found] == [3.0, 5.0, 5.0, 5.0]
    assert [limits.flops_per_second for limits in found] == [50.0, 50.0, 60.0, 60.0]
    store.close()


def test_a_library_that_cannot_be_loaded_is_explained(tmp_path: Path) -> None:
    library = tmp_path / "m.so"
    library.write_bytes(os.urandom(100))
    store = ProfileStore(tmp_path)
    with pytest.raises(MissingError, match="limits"):
        calibrate(1, find_compiler().identity, store, lambda text, exports: library)
    store.close()
