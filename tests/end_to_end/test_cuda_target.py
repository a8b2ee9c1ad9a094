"""`--target cuda` on a machine without a GPU: what is estimated, what is written, and what runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
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
from korch_cli.core.model import Bindings
from korch_cli.core.progress import Silent
from korch_cli.core.record import OptimizeRecord
from korch_cli.core.types import Array
from korch_cli.emit import cuda_registration_unit
from korch_cli.pipeline import Settings, optimize
from korch_cli.pipeline.cuda.laboratory import CudaLaboratory
from korch_cli.toolchain import find_nvrtc
from korch_cli.verify import CPU_PROVIDER, CUDA_PROVIDER, find_library, fitting_library
from scripts.prepare_gpu_check import copy_model, kernels_of_model
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("cuda")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KORCH_CACHE_DIR", str(made / "cache"))
        yield made


@pytest.fixture(scope="module")
def source(folder: Path) -> Path:
    return attention_block(folder / "in.onnx")


@pytest.fixture(scope="module")
def deployed(source: Path) -> tuple[Path, OptimizeRecord]:
    """What comes out, and the record of it."""
    output = source.with_name("deployed.onnx")
    return output, optimize(settings_for(source, output), Silent())


def settings_for(source: Path, output: Path, **rest: Any) -> Settings:
    bindings = Bindings({"batch": 1}, {})
    return Settings(source, output, bindings, portable=True, target="cuda", archs=ARCHS, **rest)


def feeds() -> dict[str, Array]:
    return {"x": np.random.default_rng(1).standard_normal((1, 3, 24, 40)).astype(np.float32)}


def reference(path: Path) -> dict[str, Array]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=[CPU_PROVIDER])
    return dict(zip(("y", "swish"), map(np.asarray, session.run(["y", "swish"], feeds())), strict=True))


def check(results: Mapping[str, Array], source: Path) -> None:
    expected = reference(source)
    assert results.keys() == expected.keys()
    for name, result in results.items():
        np.testing.assert_allclose(result, expected[name], rtol=1e-4, atol=1e-5)


def test_a_pair_that_can_be_deployed_is_written_and_every_figure_says_that_it_is_estimated(
    deployed: tuple[Path, OptimizeRecord],
) -> None:
    output, record = deployed
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


def test_without_a_gpu_sessions_run_the_functions_with_and_without_the_library(
    deployed: tuple[Path, OptimizeRecord], source: Path
) -> None:
    output, _ = deployed
    library = output.with_suffix(".korch.so")
    assert fitting_library(output, [CUDA_PROVIDER, CPU_PROVIDER]) == library
    assert fitting_library(output, [CPU_PROVIDER]) is None
    check(run_session(output, library, feeds(), None), source)
    names = ["y", "swish"]
    loaded = korch_cli.load_session(output).run(names, feeds())
    check(dict(zip(names, loaded, strict=True)), source)


def test_the_kernels_of_a_whole_model_compute_it(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library that ships, but for sessions on the CPU, with the stand-in for the driver."""
    on_cpu = "korch_cli.pipeline.cuda.laboratory.cuda_registration_unit"
    monkeypatch.setattr(on_cpu, lambda *given: ON_CPU + cuda_registration_unit(*given))
    shipped: list[CudaKernel] = []
    ship = CudaLaboratory.ship

    def recorded(self: Any, domain: str, kernels: Any, *rest: Any) -> None:
        shipped.extend(kernels)
        ship(self, domain, kernels, *rest)

    monkeypatch.setattr(CudaLaboratory, "ship", recorded)
    output = tmp_path / "out.onnx"
    record = optimize(settings_for(source, output), Silent())
    assert record.changed
    driver = Driver(build_driver(tmp_path), build(shipped, tmp_path / "kernels"), tmp_path / "calls.log")
    check(run_session(output, output.with_suffix(".korch.so"), feeds(), driver), source)
    launches = [call for call in driver.calls() if call.startswith("cuLaunchKernel")]
    uses = {kernel.name: kernel.uses for kernel in record.kernels}
    assert len(launches) == sum(uses[kernel.name] * len(kernel.launches) for kernel in shipped)


def test_the_same_bytes_come_out_again_and_from_the_plan(
    deployed: tuple[Path, OptimizeRecord], source: Path, tmp_path: Path
) -> None:
    first, _ = deployed
    again, planned = tmp_path / first.name, tmp_path / "planned" / first.name
    planned.parent.mkdir()
    records = [optimize(settings_for(source, again), Silent())]
    records.append(optimize(Settings(source, planned, plan=first.with_suffix(".plan.json")), Silent()))
    assert [record.estimated_for for record in records] == ["H100-SXM"] * 2
    for suffix in (".onnx", ".korch.so"):
        for other in (again, planned):
            assert other.with_suffix(suffix).read_bytes() == first.with_suffix(suffix).read_bytes()


def test_its_kernels_are_prepared_for_a_check_on_a_gpu(
    deployed: tuple[Path, OptimizeRecord], source: Path, tmp_path: Path
) -> None:
    output, record = deployed
    found = list(kernels_of_model(source, output))
    assert {kernel.name for *_, kernel in found} == {kernel.name for kernel in record.kernels}
    assert {group for group, *_ in found} == {source.stem}
    model = copy_model(source, output, tmp_path)
    assert model["shapes"] == {"x": [1, 3, 24, 40]}
    assert (tmp_path / model["input"]).read_bytes() == source.read_bytes()
    copied = tmp_path / model["output"]
    assert copied.read_bytes() == output.read_bytes()
    assert find_library(copied) == copied.with_suffix(".korch.so")


def korch_with(source: Path, output: Path, *flags: str) -> Result:
    command = ["optimize", str(source), "--dim", "batch=1", "-o", str(output), "-q", *flags]
    return CliRunner().invoke(korch, command)


def test_the_report_says_so(source: Path, tmp_path: Path) -> None:
    result = korch_with(source, tmp_path / "out.onnx", "--target", "cuda", "--gpu", "H200", "--arch", "sm_90,sm_80")
    assert result.exit_code == 0, result.stderr
    assert "H200, estimated" in result.stdout
    assert "(estimated for H200)" in result.stdout
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
def test_flags_that_make_no_sense(source: Path, tmp_path: Path, flags: list[str], message: str) -> None:
    output = tmp_path / "out.onnx"
    result = korch_with(source, output, *flags)
    assert result.exit_code == ExitCode.USAGE
    assert message in result.stderr
    assert not output.exists()


def test_a_missing_compiler_is_named_with_what_to_install(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("korch_cli.toolchain.nvrtc._places", lambda: iter(()))
    result = korch_with(source, tmp_path / "out.onnx", "--target", "cuda")
    assert result.exit_code == ExitCode.ENVIRONMENT
    assert "NVRTC" in result.stderr
    assert "pip install" in result.stderr


@pytest.mark.parametrize("command", [["profile", "{model}"], ["verify", "{model}", "{model}"]])
def test_what_needs_a_gpu_says_so(source: Path, command: list[str]) -> None:
    words = [word.format(model=source) for word in command]
    result = CliRunner().invoke(korch, [*words, "--dim", "batch=1", "--target", "cuda"])
    assert result.exit_code == ExitCode.ENVIRONMENT
    assert "NVIDIA driver" in result.stderr or "on a GPU" in result.stderr


@pytest.mark.parametrize(
    "change",
    [{"target": "tpu"}, {"target": 3}, {"archs": "sm_90"}, {"archs": ["90"]}, {"estimated_for": 1}],
    ids=str,
)
def test_a_plan_for_no_target_is_refused(
    deployed: tuple[Path, OptimizeRecord], source: Path, tmp_path: Path, change: dict[str, object]
) -> None:
    document = json.loads(deployed[0].with_suffix(".plan.json").read_text())
    plan = tmp_path / "damaged.plan.json"
    plan.write_text(json.dumps(document | change))
    with pytest.raises(UsageError, match="damaged"):
        optimize(Settings(source, tmp_path / "second.onnx", plan=plan), Silent())


def test_the_driver_and_its_gpus_are_described(tmp_path: Path) -> None:
    capability = {"KORCH_STAND_IN_CAPABILITY": "86"}
    driver = Driver(build_driver(tmp_path), tmp_path / "none.so", tmp_path / "calls.log", capability)
    command = [sys.executable, "-c", "from korch_cli.verify import find_driver; print(find_driver())"]
    environment = driver.environment() | {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, env=environment, text=True, capture_output=True, check=True)
    assert done.stdout.strip() == "CudaDriver(version=(13, 0), devices=(Device(name='Stand-in', capability=86),))"
