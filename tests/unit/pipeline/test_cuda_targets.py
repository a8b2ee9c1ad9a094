"""Which GPU a run is for, and what can be done with it: for every machine and every request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from korch_cli.codegen import generate
from korch_cli.core.errors import KorchError, MissingError, UsageError
from korch_cli.core.kernel import Candidate, KernelBody
from korch_cli.core.progress import Silent
from korch_cli.pipeline import Settings, dry_run, optimize
from korch_cli.pipeline.cuda import target as module
from korch_cli.pipeline.cuda.target import CudaTarget, cuda_target, find_gpu_tools
from korch_cli.pipeline.execution import Execution
from korch_cli.pipeline.laboratory import Bench
from korch_cli.toolchain import Compiler, CudaCompiler
from korch_cli.verify import CPU_PROVIDER, CUDA_PROVIDER, CudaDriver, Device

NVRTC = CudaCompiler("libnvrtc.so", (13, 0), (75, 80, 86, 89, 90, 100, 120))
A10, A100, UNKNOWN = Device("NVIDIA A10", 86), Device("NVIDIA A100-SXM4-80GB", 80), Device("NVIDIA RTX 6000", 89)
HERE, LOADS, NOTHING = (
    Execution(provider=CUDA_PROVIDER),
    Execution(runs_kernels=False),
    Execution(registers=False, runs_kernels=False),
)


def chosen(
    monkeypatch: pytest.MonkeyPatch,
    *devices: Device | None,
    provider: bool = True,
    cupy: bool = True,
    **asked: Any,
) -> CudaTarget:
    def driver() -> CudaDriver:
        found = tuple(device for device in devices if device is not None)
        if not found:
            raise MissingError("none")
        return CudaDriver((13, 0), found)

    def require() -> None:
        if not provider:
            raise MissingError("none")

    monkeypatch.setattr(module, "find_nvrtc", lambda: NVRTC)
    monkeypatch.setattr(module, "find_driver", driver)
    monkeypatch.setattr(module, "require_cuda", require)
    monkeypatch.setattr(module, "can_measure", lambda: cupy)
    compiler = Compiler(("g++",), ("-march=native", "-O2"), "g++ 12", oldest="x86-64")
    store: Any = None
    bench = Bench(compiler, store, "a machine", Path(), 2, 2, 0, 17, generate)
    settings = Settings(Path("in.onnx"), Path("out.onnx"), target="cuda", **asked)
    return cuda_target(find_gpu_tools(settings), bench)


@pytest.mark.parametrize(
    ("device", "asked", "gpu", "archs", "execution"),
    [
        (None, {}, "A100-40GB", ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"), LOADS),
        (None, {"archs": ("sm_90", "sm_80")}, "H100-SXM", ("sm_90", "sm_80"), LOADS),
        (None, {"gpu": "h200", "archs": ("sm_80",)}, "H200", ("sm_90", "sm_80"), LOADS),
        (A10, {}, "A10", ("sm_86",), HERE),
        (A100, {}, "A100-80GB", ("sm_80",), HERE),
        (A10, {"archs": ("sm_90", "sm_86")}, "A10", ("sm_86", "sm_90"), HERE),
        (UNKNOWN, {}, "NVIDIA RTX 6000", ("sm_89",), HERE),
        (A10, {"archs": ("sm_90",)}, "H100-SXM", ("sm_90",), NOTHING),
        (A10, {"gpu": "T4", "archs": ("sm_75",)}, "T4", ("sm_75",), NOTHING),
    ],
)
def test_the_gpu_that_is_asked_for_or_the_one_that_is_here(
    monkeypatch: pytest.MonkeyPatch,
    device: Device | None,
    asked: dict[str, Any],
    gpu: str,
    archs: tuple[str, ...],
    execution: Execution,
) -> None:
    target = chosen(monkeypatch, device, **asked)
    assert target.roofline.gpu.name == gpu
    assert target.archs == archs
    assert target.bench.execution == execution
    assert bool(target.devices) == execution.runs_kernels
    assert target.bench.estimated_for == (None if target.devices else gpu)
    assert "-march=native" not in target.bench.compiler.flags


@pytest.mark.parametrize(
    ("provider", "cupy", "measures", "execution"),
    [(False, True, True, NOTHING), (True, False, False, HERE), (False, False, False, NOTHING)],
)
def test_what_is_missing_on_a_machine_with_a_gpu_is_done_without(
    monkeypatch: pytest.MonkeyPatch, provider: bool, cupy: bool, measures: bool, execution: Execution
) -> None:
    target = chosen(monkeypatch, A10, provider=provider, cupy=cupy)
    assert bool(target.devices) == measures
    assert target.bench.execution == execution

    def cut(candidate: Candidate) -> KernelBody:
        raise AssertionError(candidate)

    assert execution.provider == (CUDA_PROVIDER if execution.runs_kernels else CPU_PROVIDER)
    laboratory = target.laboratory(cut, {}, Silent())
    said = " ".join(laboratory.caveats(changed=True))
    assert ("nothing was measured" in said) == (not measures and not execution.runs_kernels)
    assert ("whole models were timed" in said) == (not measures and execution.runs_kernels)
    assert ("kernels were measured" in said) == measures


@pytest.mark.parametrize(
    ("devices", "asked", "used"),
    [
        ((A10,), {}, (0,)),
        ((A10, A10, A100, A10), {}, (0, 1, 3)),
        ((A100, A10), {"archs": ("sm_86",)}, ()),
        ((A10, A10), {"gpu": "A10"}, ()),
    ],
)
def test_kernels_are_measured_on_all_gpus_that_are_like_the_first(
    monkeypatch: pytest.MonkeyPatch, devices: tuple[Device, ...], asked: dict[str, Any], used: tuple[int, ...]
) -> None:
    assert chosen(monkeypatch, *devices, **asked).devices == used


@pytest.mark.parametrize("run", [optimize, dry_run])
@pytest.mark.parametrize(
    ("asked", "kind", "message"),
    [
        ({"target": "cuda", "archs": ("sm_35",)}, UsageError, "no figures of a GPU of this architecture"),
        ({"target": "cuda", "archs": ("sm_90", "sm_91")}, UsageError, "does not compile for this architecture"),
        ({"target": "cuda", "gpu": "T4", "archs": ("sm_35",)}, UsageError, "does not compile for this architecture"),
        ({"target": "cuda", "gpu": "nonsense"}, UsageError, "no figures of this GPU"),
        ({"target": "cuda", "force_fusion": True}, UsageError, "--force-fusion is for --target cpu"),
        ({"target": "cuda", "processor": "x86-64-v3"}, UsageError, "--cpu is for --target cpu"),
        ({"target": "cuda", "compiler": "no-such-compiler"}, MissingError, "no-such-compiler"),
        ({"archs": ("sm_90",)}, UsageError, "--arch and --gpu are for --target cuda"),
        ({"gpu": "T4"}, UsageError, "--arch and --gpu are for --target cuda"),
        ({"compiler": "no-such-compiler"}, MissingError, "no-such-compiler"),
    ],
    ids=str,
)
def test_what_cannot_be_built_for_is_said_before_a_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    run: Any,
    asked: dict[str, Any],
    kind: type[KorchError],
    message: str,
) -> None:
    """The model does not exist: whoever opens it says that instead."""

    def none() -> CudaDriver:
        raise MissingError("none")

    monkeypatch.setattr(module, "find_nvrtc", lambda: NVRTC)
    monkeypatch.setattr(module, "find_driver", none)
    settings = Settings(tmp_path / "missing.onnx", tmp_path / "out.onnx", **asked)
    with pytest.raises(kind, match=message):
        run(settings, Silent())
    assert not list(tmp_path.iterdir())
