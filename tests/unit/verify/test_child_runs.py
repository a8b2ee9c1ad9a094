"""Everything that runs models in child processes: agreement, guilt, speed, profile."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

from korch_cli.core.errors import MissingError, ModelError
from korch_cli.core.progress import Silent
from korch_cli.core.record import Verdict
from korch_cli.core.types import Array
from korch_cli.verify import Subject, compare_speed, find_guilty, profile_nodes, verify_models
from korch_cli.verify.child import ChildError, child
from tests.processes import ends, is_running

ModelWriter = Callable[..., Path]
DOMAIN = "korch.test"
FEEDS = ({"x": np.array([0.5, 1.0, 2.0, 3.0], np.float32)}, {"x": np.array([-1.0, 0.0, 0.25, 9.0], np.float32)})


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before


def children() -> set[int]:
    return {int(pid) for task in Path("/proc/self/task").glob("*/children") for pid in task.read_text().split()}


def verdict(a: Path, b: Path, *, library: Path | None = None, feeds: tuple[dict[str, Array], ...] = FEEDS) -> Verdict:
    subjects = Subject("a", a, None, optimize=False), Subject("b", b, library, optimize=True)
    return verify_models(*subjects, feeds, rtol=1e-4, atol=1e-5, variant="v", threads=1)


def test_equal_models_agree_and_nan_is_equal_to_itself(write_model: ModelWriter) -> None:
    found = verdict(write_model("a.onnx", "Neg", "Sqrt"), write_model("b.onnx", "Neg", "Sqrt"))
    assert found.passed
    assert (found.failure, found.runs, found.variant) == (None, 2, "v")
    assert [(e.output, e.mismatches, e.elements) for e in found.worst] == [("y", 0, 4)]


def test_different_models_do_not_and_the_worst_run_is_told(write_model: ModelWriter) -> None:
    found = verdict(write_model("a.onnx", "Identity"), write_model("b.onnx", "Abs"))
    assert not found.passed
    assert found.failure is None
    assert [(e.max_abs, e.worst_index, e.mismatches) for e in found.worst] == [(2.0, (0,), 1)]


def test_an_output_of_another_shape_or_type_is_a_failure(tmp_path: Path, write_model: ModelWriter) -> None:
    def other(path: Path, kind: int, *nodes: onnx.NodeProto) -> Path:
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4,))]
        graph = helper.make_graph(list(nodes), "g", inputs, [helper.make_tensor_value_info("y", kind, None)])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
        return path

    reference = write_model("a.onnx", "Identity")
    shorter = other(tmp_path / "b.onnx", TensorProto.FLOAT, helper.make_node("ReduceMax", ["x"], ["y"], keepdims=1))
    found = verdict(reference, shorter)
    assert not found.passed
    assert found.failure == "Output 'y' has shape (1,) instead of (4,)."
    wider = other(
        tmp_path / "c.onnx", TensorProto.DOUBLE, helper.make_node("Cast", ["x"], ["y"], to=TensorProto.DOUBLE)
    )
    assert verdict(reference, wider).failure == "Output 'y' has element type float64 instead of float32."


def test_outputs_are_matched_by_name_before_position(tmp_path: Path) -> None:
    def two(path: Path, first: str, second: str, names: tuple[str, str]) -> Path:
        nodes = [helper.make_node(op, ["x"], [name]) for op, name in zip((first, second), names, strict=True)]
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4,))]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (4,)) for name in names]
        graph = helper.make_graph(nodes, "g", inputs, outputs)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
        return path

    reference = two(tmp_path / "a.onnx", "Neg", "Exp", ("p", "q"))
    assert verdict(reference, two(tmp_path / "b.onnx", "Exp", "Neg", ("q", "p"))).passed
    assert verdict(reference, two(tmp_path / "c.onnx", "Neg", "Exp", ("r", "s"))).passed
    assert not verdict(reference, two(tmp_path / "d.onnx", "Exp", "Neg", ("p", "q"))).passed


def test_models_that_do_not_run_fail_with_a_reason(write_model: ModelWriter, tmp_path: Path) -> None:
    model = write_model("a.onnx", "Neg")
    (tmp_path / "bad.onnx").write_bytes(b"nonsense")
    for a, b, named in ((model, tmp_path / "bad.onnx", "'b'"), (tmp_path / "bad.onnx", model, "'a'")):
        found = verdict(a, b)
        assert not found.passed
        assert found.failure is not None
        assert found.failure.startswith(f"The model {named} did not run: ONNX Runtime cannot load it: ")
    found = verdict(model, write_model("b.onnx", "Neg", shape=(5,)))
    assert found.failure is not None
    assert "cannot run it" in found.failure


def test_a_crash_is_a_failure_of_the_model_and_not_of_the_check(
    write_model: ModelWriter, aborting_library: Path
) -> None:
    model = write_model("a.onnx", "Neg")
    found = verdict(model, model, library=aborting_library)
    assert not found.passed
    assert found.failure == "The model 'b' did not run: its process ended with SIGABRT."


def test_a_refused_library_is_told_from_a_broken_model(write_model: ModelWriter, tmp_path: Path) -> None:
    model = write_model("a.onnx", "Neg")
    (tmp_path / "a.korch.so").write_bytes(b"no library")
    subject = Subject("a", model, tmp_path / "a.korch.so", optimize=True)
    with pytest.raises(MissingError, match="refuses its library"):
        profile_nodes(subject, FEEDS[0], threads=1)
    with pytest.raises(ModelError, match="cannot run it"):
        profile_nodes(Subject("a", model, None, optimize=True), {}, threads=1)


@pytest.mark.parametrize("shape", [(2, 3), (), (0, 2)])
def test_bfloat16_goes_in_and_comes_out(tmp_path: Path, shape: tuple[int, ...]) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    g (bfloat16{list(shape) if shape else ""} x, float[2] z) => (bfloat16 y, float w, float[2] n) {{
        y = Identity(x) w = Cast <to = 1> (x) n = Neg(z)
    }}"""
    proto = onnx.parser.parse_model(text)
    for output in proto.graph.output:
        output.type.tensor_type.ClearField("shape")
    onnx.save(proto, tmp_path / "m.onnx")
    x = np.random.default_rng(0).standard_normal(shape).astype(ml_dtypes.bfloat16)
    z = np.array([1, -2], np.float32)
    with child() as process:
        process.open(Subject("m", tmp_path / "m.onnx", None, optimize=False), 1)
        found = dict(process.run({"x": x, "z": z}))
    assert found["y"].dtype == x.dtype
    np.testing.assert_array_equal(found["y"], x)
    np.testing.assert_array_equal(found["w"], x.astype(np.float32))
    np.testing.assert_array_equal(found["n"], -z)


def test_a_child_that_takes_too_long_is_ended(write_model: ModelWriter) -> None:
    with child() as process:
        process.open(Subject("a", write_model("a.onnx", "Neg"), None, optimize=True), 1)
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(ChildError, match="did not finish") as caught:
            process.run(FEEDS[0], 0.2)
        assert caught.value.stage == "time"


def test_a_child_ends_with_its_parent() -> None:
    program = "from korch_cli.verify.child import Child; c = Child(); print(c.pid, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.kill()
    assert ends(pid)


def test_a_library_agrees_with_the_functions_of_its_model(write_model: ModelWriter, library: Path) -> None:
    reference = write_model("a.onnx", "right", "right", domain=DOMAIN)
    assert verdict(reference, reference, library=library).passed
    wrong = write_model("b.onnx", "right", "wrong", domain=DOMAIN)
    assert verdict(reference, wrong).passed
    assert not verdict(reference, wrong, library=library).passed


def test_guilty_are_the_kernels_that_deviate_and_those_that_crash(write_model: ModelWriter, library: Path) -> None:
    model = write_model("m.onnx", "right", "wrong", "right", "crashes", "right", "absent", "right", domain=DOMAIN)
    found = dict(find_guilty(model, library, DOMAIN, FEEDS, rtol=1e-4, atol=1e-5, threads=1))
    assert found.keys() == {"wrong", "crashes", "absent"}
    assert "'wrong_t1' differs from its function's in 1 of 4 elements, by up to 0.5" in found["wrong"]
    assert "SIGABRT" in found["crashes"]
    assert "cannot load" in found["absent"]


def test_nobody_is_guilty_of_sound_kernels_or_of_a_broken_model(write_model: ModelWriter, library: Path) -> None:
    def guilty(model: Path, *feeds: dict[str, Array]) -> tuple[tuple[str, str], ...]:
        return find_guilty(model, library, DOMAIN, feeds, rtol=1e-4, atol=1e-5, threads=1)

    assert guilty(write_model("m.onnx", "right", "right", domain=DOMAIN), *FEEDS) == ()
    assert guilty(write_model("m.onnx", "wrong", domain=DOMAIN), {}) == ()


def test_speed_keeps_raw_samples_and_gives_finite_ratios(write_model: ModelWriter, library: Path) -> None:
    subjects = [
        Subject("a", write_model("a.onnx", "Neg"), None, optimize=True),
        Subject("b", write_model("b.onnx", *["right"] * 3, domain=DOMAIN), library, optimize=True),
        Subject("c", write_model("c.onnx", "Exp", "Neg"), None, optimize=False),
    ]
    found = compare_speed(subjects, FEEDS[0], threads=1, seconds=0.3, progress=Silent())
    assert [s.name for s in found.samples] == ["a", "b", "c"]
    for samples in found.samples:
        assert 0 < len(samples.times_us) <= 2000
        assert all(0.0 < t < math.inf for t in samples.times_us)
    assert len(found.ratios) == 2
    for ratio in found.ratios:
        assert 0.0 < ratio.low <= ratio.value <= ratio.high < math.inf
        assert ratio.pairs >= 5
    assert found.threads == 1


def test_speed_of_a_model_that_crashes_is_an_error(write_model: ModelWriter, library: Path) -> None:
    subject = Subject("b", write_model("b.onnx", "crashes", domain=DOMAIN), library, optimize=True)
    with pytest.raises(ModelError, match="SIGABRT"):
        compare_speed([subject, subject], FEEDS[0], threads=1, seconds=0.1, progress=Silent())


def test_an_interrupt_leaves_no_process(write_model: ModelWriter) -> None:
    class Interrupting(Silent):
        def step(self, done: int, total: int, text: str = "") -> None:
            raise KeyboardInterrupt

    subject = Subject("a", write_model("a.onnx", "Neg"), None, optimize=True)
    with pytest.raises(KeyboardInterrupt):
        compare_speed([subject, subject], FEEDS[0], threads=1, seconds=0.1, progress=Interrupting())


def test_a_profile_lists_the_nodes_that_run(write_model: ModelWriter, library: Path) -> None:
    model = write_model("a.onnx", "right", "wrong", "right", domain=DOMAIN)
    found = profile_nodes(Subject("a", model, library, optimize=True), FEEDS[0], threads=1)
    assert {(n.name, n.op_type, n.domain) for n in found} == {
        ("right_t0", "right", DOMAIN),
        ("wrong_t1", "wrong", DOMAIN),
        ("right_y", "right", DOMAIN),
    }
    assert sum(n.share for n in found) == pytest.approx(1.0)
    assert [n.time_us for n in found] == sorted((n.time_us for n in found), reverse=True)
