"""The whole of `korch optimize` on a small model: real kernels, real ONNX Runtime, settled times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import korch_cli
from korch_cli.codegen import generate
from korch_cli.core.artifact import KernelResult
from korch_cli.core.errors import MissingError
from korch_cli.core.kernel import Kernel, KernelBody, Timing, TimingSource
from korch_cli.core.machine import MachineLimits
from korch_cli.core.model import Bindings
from korch_cli.core.progress import Silent
from korch_cli.core.record import Comparison, Contest, Ratio, Samples
from korch_cli.measure import machine_identity, measure_kernels
from korch_cli.pipeline import Settings, build_fusions, optimize, plan_fusion
from korch_cli.toolchain import find_compiler

SHAPE = [1, 16, 24, 40]


def attention_block(path: Path) -> Path:
    """A convolution, a written-out hard swish, a gate by the mean, and a softmax over what is left."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> TensorProto:
        values = (rng.standard_normal(shape) * 0.3).astype(np.float32)
        return helper.make_tensor(name, TensorProto.FLOAT, shape, values.ravel())

    scalars = {"three": 3.0, "zero": 0.0, "six": 6.0, "scale": 0.73194856, "shift": 0.1294857}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Mul", ["c", "scale"], ["m"], name="scale it"),
        helper.make_node("Add", ["m", "shift"], ["s"]),
        helper.make_node("Add", ["s", "three"], ["h0"]),
        helper.make_node("Clip", ["h0", "zero", "six"], ["h1"]),
        helper.make_node("Mul", ["s", "h1"], ["h2"]),
        helper.make_node("Div", ["h2", "six"], ["swish"]),
        helper.make_node("GlobalAveragePool", ["swish"], ["mean"]),
        helper.make_node("Sigmoid", ["mean"], ["gate"]),
        helper.make_node("Mul", ["swish", "gate"], ["gated"]),
        helper.make_node("Transpose", ["gated"], ["moved"], perm=[0, 2, 3, 1]),
        helper.make_node("Softmax", ["moved"], ["y"], axis=-1),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "block",
        [info("x", TensorProto.FLOAT, ["batch", 3, 24, 40])],
        [info("y", TensorProto.FLOAT, ["batch", 24, 40, 16]), info("swish", TensorProto.FLOAT, ["batch", 16, 24, 40])],
        [
            weight("w", 16, 3, 3, 3),
            *(helper.make_tensor(n, TensorProto.FLOAT, [], [v]) for n, v in scalars.items()),
        ],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    proto.metadata_props.add(key="author", value="somebody")
    path.write_bytes(proto.SerializeToString())
    return path


def settled(time_us: float) -> Timing:
    return Timing(time_us, time_us, time_us, 1, TimingSource.MEASURED)


@pytest.fixture
def settled_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kernels are measured, and so checked; then each takes a microsecond, and the output is twice as fast.

    The machine's limits are those of a quiet one, however busy it is.
    """

    def measured(*args: Any, **kwargs: Any) -> Iterator[KernelResult]:
        for result in measure_kernels(*args, **kwargs):
            yield replace(result, timing=result.timing and settled(1.0), alternative=result.timing and settled(9.0))

    def compared(subjects: Any, _feeds: object, *, threads: int, **_: object) -> Comparison:
        samples = tuple(Samples(s.name, (2.0 - i, 2.0 - i)) for i, s in enumerate(subjects))
        return Comparison(samples, (Ratio(2.0, 1.9, 2.1, 9),), threads)

    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("korch_cli.pipeline.laboratory.measure_kernels", measured)

    def contested(subjects: Any, *_: object, **__: object) -> Contest:
        samples = tuple(Samples(s.name, (1.0, 1.0)) for s in subjects)
        later = Ratio(1.1, 1.05, 1.15, 9), Ratio(0.9, 0.85, 0.95, 9)
        return Contest(samples, tuple(tuple(later[i >= j] for j in range(len(subjects))) for i in range(len(subjects))))

    def quiet(threads: int, *_: object) -> MachineLimits:
        bandwidth = ((1 << 14, 1.5e11), (1 << 18, 8e10), (1 << 22, 4e10), (1 << 27, 1.5e10))
        return MachineLimits(machine_identity(threads), threads, bandwidth, 8e10, 0.16)

    monkeypatch.setattr("korch_cli.pipeline.target.calibrate", quiet)
    monkeypatch.setattr("korch_cli.pipeline.delivery.compare_speed", compared)
    monkeypatch.setattr("korch_cli.pipeline.choice.compare_all", contested)


def settings_for(source: Path, output: Path) -> Settings:
    return Settings(source, output, Bindings({"batch": 1}, {}), threads=1, jobs=2)


def run(model: Path, feeds: dict[str, Any], library: Path | None, *, optimize: bool) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if library is not None:
        options.register_custom_ops_library(str(library))
    return list(onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"]).run(None, feeds))


FEEDS = {"x": np.random.default_rng(1).standard_normal((1, 3, 24, 40)).astype(np.float32)}


@pytest.mark.usefixtures("settled_times")
@pytest.mark.slow
def test_a_model_is_optimised_written_and_equal_everywhere(tmp_path: Path) -> None:
    source = attention_block(tmp_path / "in.onnx")
    (tmp_path / "out").mkdir()
    output = tmp_path / "out" / "fast.onnx"
    record = optimize(settings_for(source, output), Silent())
    assert record.changed
    assert record.reason.startswith("2.00 times as fast")
    assert [v.passed for v in record.verdicts] == [True, True]
    assert record.kernels
    assert not record.guilty
    assert {p.name for p in output.parent.iterdir()} == {"fast.onnx", "fast.korch.so", "fast.plan.json"}

    library = output.with_suffix(".korch.so")
    expected = run(source, FEEDS, None, optimize=False)
    for found in (
        run(output, FEEDS, library, optimize=True),
        run(output, FEEDS, library, optimize=False),
        run(output, FEEDS, None, optimize=True),
        ReferenceEvaluator(str(output)).run(None, FEEDS),
        korch_cli.load_session(output).run(None, FEEDS),
    ):
        for got, want in zip(found, expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)

    proto = onnx.load(str(output))
    onnx.checker.check_model(proto, full_check=True)
    assert [i.name for i in proto.graph.input] == ["x"]
    assert [o.name for o in proto.graph.output] == ["y", "swish"]
    assert [(p.key, p.value) for p in proto.metadata_props] == [("author", "somebody")]
    custom = [node for node in proto.graph.node if node.domain.startswith("korch.")]
    assert custom
    assert len(proto.graph.node) < 12
    assert {f.name for f in proto.functions} == {node.op_type for node in custom}

    plan = json.loads(output.with_suffix(".plan.json").read_text(encoding="utf-8"))
    assert plan["schema"] == "korch.plan/2"
    assert {k["name"] for k in plan["kernels"]} == {node.op_type for node in custom}

    again = tmp_path / "out" / "again.onnx"
    second = optimize(settings_for(source, again), Silent())
    assert again.read_bytes() == output.read_bytes()
    assert again.with_suffix(".plan.json").read_bytes() == output.with_suffix(".plan.json").read_bytes()
    assert again.with_suffix(".korch.so").read_bytes() == library.read_bytes()
    assert second.search.measured == 0
    assert second.search.from_store == record.search.measured


@pytest.mark.usefixtures("settled_times")
@pytest.mark.slow
def test_a_kernel_that_computes_something_else_is_found_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def believed(jobs: Any, **_: object) -> Iterator[KernelResult]:
        return (KernelResult(job.name, settled(1.0), None, None) for job in jobs)

    monkeypatch.setattr("korch_cli.pipeline.laboratory.measure_kernels", believed)
    sources: dict[str, str] = {}

    def recorded(body: KernelBody) -> tuple[Kernel, ...]:
        made = generate(body)
        sources.update((kernel.name, kernel.source) for kernel in made)
        return made

    monkeypatch.setattr("korch_cli.pipeline.target.generate", recorded)
    source = attention_block(tmp_path / "in.onnx")
    honest = optimize(settings_for(source, tmp_path / "honest.onnx"), Silent())
    victim = next(kernel.name for kernel in honest.kernels if " exp_(" in sources[kernel.name])

    def sabotaged(body: KernelBody) -> tuple[Kernel, ...]:
        return tuple(
            replace(k, source=k.source.replace(" exp_(", " tanh_(")) if k.name == victim else k for k in generate(body)
        )

    monkeypatch.setattr("korch_cli.pipeline.target.generate", sabotaged)
    output = tmp_path / "fast.onnx"
    record = optimize(settings_for(source, output), Silent())
    assert [name for name, _ in record.guilty] == [victim]
    assert record.changed
    assert victim not in {kernel.name for kernel in record.kernels}
    expected = run(source, FEEDS, None, optimize=False)
    for got, want in zip(run(output, FEEDS, output.with_suffix(".korch.so"), optimize=True), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("settled_times")
@pytest.mark.slow
@pytest.mark.parametrize("found", [(0.97,), (1.2, 0.97), (1.2, 1.01, 0.97)])
def test_what_is_not_faster_each_time_is_written_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: tuple[float, ...]
) -> None:
    ratios = iter(found)

    def slower(subjects: Any, _feeds: object, *, threads: int, **_: object) -> Comparison:
        ratio = next(ratios, 0.97)
        samples = tuple(Samples(s.name, (1.0,)) for s in subjects)
        return Comparison(samples, (Ratio(ratio, ratio - 0.02, ratio + 0.02, 9),), threads)

    monkeypatch.setattr("korch_cli.pipeline.delivery.compare_speed", slower)
    source = attention_block(tmp_path / "in.onnx")
    output = tmp_path / "fast.onnx"
    output.with_suffix(".korch.so").write_bytes(b"of an earlier run")
    output.with_suffix(".plan.json").write_text('{"schema": "korch.plan/2"}', encoding="utf-8")
    record = optimize(settings_for(source, output), Silent())
    assert not record.changed
    assert "0.97 times as fast" in record.reason
    assert output.read_bytes() == source.read_bytes()
    assert not output.with_suffix(".korch.so").exists()
    assert json.loads(output.with_suffix(".plan.json").read_text(encoding="utf-8"))["changed"] is False


def test_a_missing_compiler_is_noticed_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "cache"))
    source = attention_block(tmp_path / "in.onnx")
    (tmp_path / "out").mkdir()
    settings = replace(settings_for(source, tmp_path / "out" / "fast.onnx"), compiler=str(tmp_path / "no-compiler"))
    with pytest.raises(MissingError, match="no such program"):
        optimize(settings, Silent())
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.slow
def test_forced_fusion_leaves_no_operator_that_can_be_generated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "cache"))
    source = attention_block(tmp_path / "in.onnx")
    output = tmp_path / "fast.onnx"
    record = optimize(replace(settings_for(source, output), force_fusion=True), Silent())
    assert record.changed
    assert record.comparison is None
    assert record.search.measured == 0
    assert [v.passed for v in record.verdicts] == [True, True]
    left = {node.op_type for node in onnx.load(str(output)).graph.node if not node.domain.startswith("korch.")}
    assert left <= {"Conv", "MatMul", "Gemm", "Reshape"}

    fusion = plan_fusion(source, Bindings({"batch": 1}, {}))
    assert fusion.kernels == sum(n.domain.startswith("korch.") for n in onnx.load(str(output)).graph.node)
    library = tmp_path / "own.so"
    build_fusions([fusion], [tmp_path / "own.onnx"], library, find_compiler(None), tmp_path / "cache" / "objects", 2)
    expected = run(source, FEEDS, None, optimize=False)
    for got, want in zip(run(tmp_path / "own.onnx", FEEDS, library, optimize=True), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
