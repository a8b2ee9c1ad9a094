"""`--target cuda` on a machine without a GPU: what is estimated, what is written, and what runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner, Result

import korch_cli
from korch_cli.cli.entry import korch
from korch_cli.core.errors import ExitCode, MissingError, UsageError
from korch_cli.core.launch import CudaKernel
from korch_cli.core.progress import Silent
from korch_cli.core.record import OptimizeRecord
from korch_cli.core.types import Array
from korch_cli.emit import cuda_registration_unit
from korch_cli.pipeline import Settings, optimize
from korch_cli.toolchain import find_nvrtc
from korch_cli.verify import CPU_PROVIDER, CUDA_PROVIDER, fitting_library
from tests.cuda_on_cpu.execution import build
from tests.cuda_on_cpu.library import ON_CPU, Driver, build_driver, run_session
from tests.end_to_end.test_pipeline import attention_block

ARCHS = ("sm_90", "sm_80")


@pytest.fixture(scope="module", autouse=True)
def nvrtc() -> None:
    try:
        find_nvrtc()
    except MissingError as error:
        pytest.skip(f"{error.message}: {error.hint}")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "cache"))
    return attention_block(tmp_path / "in.onnx")


def settings_for(source: Path, output: Path, **rest: Any) -> Settings:
    return Settings(source, output, portable=True, target="cuda", archs=ARCHS, **rest)


def feeds_of(path: Path) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    inputs = onnx.load(path).graph.input
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in inputs}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def reference(path: Path, feeds: dict[str, Array]) -> Array:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (result,) = onnxruntime.InferenceSession(str(path), options, providers=[CPU_PROVIDER]).run(None, feeds)
    return np.asarray(result)


def test_a_pair_that_can_be_deployed_is_written_and_every_figure_says_that_it_is_estimated(
    source: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.onnx"
    record = optimize(settings_for(source, output), Silent())
    assert record.changed
    assert "Estimated to be" in record.reason
    assert "nothing was measured" in record.reason
    assert record.estimated_for == "H100-SXM"
    assert record.kernels
    assert {kernel.source for kernel in record.kernels} == {"estimated"}
    assert all(kernel.registers is not None and kernel.spill_bytes == 0 for kernel in record.kernels)
    assert record.comparison is None
    assert record.contest == ()
    assert [verdict.passed for verdict in record.verdicts] == [True, True]
    assert any("Not checked" in note for note in record.notes)
    assert record.environment["archs"] == "sm_90,sm_80"
    document = json.loads(output.with_suffix(".plan.json").read_text())
    assert document["target"] == "cuda"
    assert document["archs"] == list(ARCHS)
    assert document["estimated_for"] == "H100-SXM"
    assert record.search.plan_us < record.search.vendor_us
    onnx.checker.check_model(str(output), full_check=True)
    library = output.with_suffix(".korch.so").read_bytes()
    assert library.count(b"\x7fELF") == 1 + len(ARCHS) * len(record.kernels)
    assert library.count(b".target sm_80") == len(record.kernels)


def test_without_a_gpu_sessions_run_the_functions_with_and_without_the_library(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    assert optimize(settings_for(source, output), Silent()).changed
    feeds = feeds_of(source)
    expected = reference(source, feeds)
    library = output.with_suffix(".korch.so")
    assert fitting_library(output, [CUDA_PROVIDER, CPU_PROVIDER]) == library
    assert fitting_library(output, [CPU_PROVIDER]) is None
    registered = run_session(output, library, feeds, None)
    loaded = korch_cli.load_session(output)
    for result in (*registered.values(), *loaded.run(None, feeds)):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_the_kernels_of_a_whole_model_compute_it(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library that ships, but for sessions on the CPU, with the stand-in for the driver."""
    on_cpu = "korch_cli.pipeline.cuda.laboratory.cuda_registration_unit"
    monkeypatch.setattr(on_cpu, lambda *given: ON_CPU + cuda_registration_unit(*given))
    shipped: list[CudaKernel] = []
    ship = korch_cli.pipeline.cuda.laboratory.CudaLaboratory.ship

    def recorded(self: Any, domain: str, kernels: Any, *rest: Any) -> None:
        shipped.extend(kernels)
        ship(self, domain, kernels, *rest)

    monkeypatch.setattr("korch_cli.pipeline.cuda.laboratory.CudaLaboratory.ship", recorded)
    output = tmp_path / "out.onnx"
    record = optimize(settings_for(source, output), Silent())
    assert record.changed
    driver = Driver(build_driver(tmp_path), build(shipped, tmp_path / "kernels"), tmp_path / "calls.log")
    feeds = feeds_of(source)
    (result,) = run_session(output, output.with_suffix(".korch.so"), feeds, driver).values()
    np.testing.assert_allclose(result, reference(source, feeds), rtol=1e-4, atol=1e-5)
    launches = [call for call in driver.calls() if call.startswith("cuLaunchKernel")]
    uses = {kernel.name: kernel.uses for kernel in record.kernels}
    assert len(launches) == sum(uses[kernel.name] * len(kernel.launches) for kernel in shipped)


def test_the_same_bytes_come_out_again_and_from_the_plan(source: Path, tmp_path: Path) -> None:
    outputs = [tmp_path / f"{name}.onnx" for name in ("first", "again", "planned")]
    records: list[OptimizeRecord] = [optimize(settings_for(source, output), Silent()) for output in outputs[:2]]
    plan = outputs[0].with_suffix(".plan.json")
    records.append(optimize(Settings(source, outputs[2], plan=plan), Silent()))
    assert [record.estimated_for for record in records] == ["H100-SXM"] * 3
    for suffix in (".onnx", ".korch.so"):
        first, *others = (output.with_suffix(suffix).read_bytes() for output in outputs)
        assert all(other == first for other in others)


def korch_with(source: Path, *flags: str) -> Result:
    command = ["optimize", str(source), "-o", str(source.with_name("out.onnx")), "-q", *flags]
    return CliRunner().invoke(korch, command)


def test_the_report_says_so(source: Path) -> None:
    result = korch_with(source, "--target", "cuda", "--gpu", "A100-40GB", "--arch", "sm_80,sm_90")
    assert result.exit_code == 0, result.stderr
    assert "A100-40GB, estimated" in result.stdout
    assert "(estimated for A100-40GB)" in result.stdout
    assert "estimated time" in result.stdout
    assert "nothing was measured" in result.stdout
    assert " timed" not in result.stdout


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--arch", "sm_90"], "--arch and --gpu are for --target cuda"),
        (["--gpu", "T4"], "--arch and --gpu are for --target cuda"),
        (["--target", "cuda", "--gpu", "nonsense"], "no figures of this GPU"),
        (["--target", "cuda", "--arch", "sm_35"], "no figures of a GPU of this architecture"),
        (["--target", "cuda", "--gpu", "T4", "--arch", "sm_35"], "NVRTC"),
        (["--target", "cuda", "--arch", "90"], "names no architectures"),
        (["--target", "cuda", "--force-fusion"], "--force-fusion is for --target cpu"),
    ],
)
def test_flags_that_make_no_sense(source: Path, flags: list[str], message: str) -> None:
    result = korch_with(source, *flags)
    assert result.exit_code == ExitCode.USAGE
    assert message in result.stderr
    assert not source.with_name("out.onnx").exists()


def test_a_missing_compiler_is_named_with_what_to_install(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("korch_cli.toolchain.nvrtc._places", lambda: iter(()))
    result = korch_with(source, "--target", "cuda")
    assert result.exit_code == ExitCode.ENVIRONMENT
    assert "NVRTC" in result.stderr
    assert "pip install" in result.stderr


@pytest.mark.parametrize("command", [["profile", "{model}"], ["verify", "{model}", "{model}"]])
def test_what_needs_a_gpu_says_so(source: Path, command: list[str]) -> None:
    words = [word.format(model=source) for word in command]
    result = CliRunner().invoke(korch, [*words, "--target", "cuda"])
    assert result.exit_code == ExitCode.ENVIRONMENT
    assert "NVIDIA driver" in result.stderr or "on a GPU" in result.stderr


def damaged(change: Callable[[dict[str, Any]], None], plan: Path) -> None:
    document = json.loads(plan.read_text())
    change(document)
    plan.write_text(json.dumps(document))


@pytest.mark.parametrize(
    "change",
    [{"target": "tpu"}, {"target": 3}, {"archs": "sm_90"}, {"archs": ["90"]}, {"estimated_for": 1}],
    ids=str,
)
def test_a_plan_for_no_target_is_refused(source: Path, tmp_path: Path, change: dict[str, object]) -> None:
    first = tmp_path / "first.onnx"
    optimize(settings_for(source, first), Silent())
    plan = first.with_suffix(".plan.json")
    damaged(lambda document: document.update(change), plan)
    with pytest.raises(UsageError, match="damaged"):
        optimize(Settings(source, tmp_path / "second.onnx", plan=plan), Silent())


def test_the_driver_and_its_gpus_are_described(tmp_path: Path) -> None:
    capability = {"KORCH_STAND_IN_CAPABILITY": "86"}
    driver = Driver(build_driver(tmp_path), tmp_path / "none.so", tmp_path / "calls.log", capability)
    command = [sys.executable, "-c", "from korch_cli.verify import find_driver; print(find_driver())"]
    environment = driver.environment() | {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, env=environment, text=True, capture_output=True, check=True)
    assert done.stdout.strip() == "CudaDriver(version=(13, 0), devices=(Device(name='Stand-in', capability=86),))"
