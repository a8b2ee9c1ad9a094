"""`scripts/cuda_check` on a small model: what is right, what is wrong, and what there was no time for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import onnxruntime
import pytest

from korch_cli.core.errors import MissingError
from korch_cli.core.launch import CudaKernel
from korch_cli.toolchain import CudaCompiler, find_nvrtc
from korch_cli.verify import CUDA_PROVIDER
from scripts import cuda_check
from scripts.cuda_check import Limits, Row, check, table, write
from scripts.prepare_gpu_check import planned_kernels
from tests.cuda_on_cpu.execution import Sanitizer
from tests.end_to_end.test_pipeline import attention_block

LIMITS = Limits(("sm_90", "sm_80"), "20s", (Sanitizer.ADDRESS, Sanitizer.THREAD), 1 << 20, lambda: False)
SHAPES = {"x": "1x3x24x40"}


@pytest.fixture(scope="module")
def nvrtc() -> CudaCompiler:
    try:
        return find_nvrtc()
    except MissingError as error:
        pytest.skip(f"{error.message}: {error.hint}")


@pytest.fixture(scope="module")
def source(nvrtc: CudaCompiler, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("check")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KORCH_CACHE_DIR", str(folder / "cache"))
        yield attention_block(folder / "block.onnx")


@pytest.fixture(scope="module")
def checked(source: Path, nvrtc: CudaCompiler) -> Row:
    """What is found where the model is not optimised yet."""
    return check(source, SHAPES, source.with_name("out"), nvrtc, LIMITS)


def test_a_model_is_optimised_compiled_run_and_opened(checked: Row, source: Path) -> None:
    planned = list(planned_kernels(source, source.with_name("out") / "block.cuda.onnx"))
    names = {kernel.name for _, kernel in planned}
    assert checked.failures == ()
    assert checked.kernels == len(names) > 1
    assert checked.resources.keys() == {"sm_90", "sm_80"}
    assert all(need.registers for need in checked.resources.values())
    sizes = sum(graph.values[v].type.elements for graph, _ in planned for v in graph.outputs)
    for sanitizer in ("ADDRESS", "THREAD"):
        found = checked.found[sanitizer]
        assert found.keys() == names
        assert sum(finding.elements for finding in found.values()) == sizes
        assert 0.0 < max(finding.worst for finding in found.values()) < 1.0
    gpu = CUDA_PROVIDER in onnxruntime.get_available_providers()
    assert checked.session.startswith("functions ran, onnxruntime-gpu" if gpu else "not checked")


def test_what_was_found_right_is_not_run_again(
    checked: Row, source: Path, nvrtc: CudaCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_check, "compare_with", None)
    again = check(source, SHAPES, source.with_name("out"), nvrtc, replace(LIMITS, late=lambda: True))
    assert again == checked


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (lambda kernel: replace(kernel, launches=()), "Not equal to tolerance"),
        (lambda kernel: replace(kernel, source=f"{kernel.source}\n#error"), "g++"),
        (lambda kernel: replace(kernel, source=kernel.source.replace("(r0 +", "(r0 + 4 +")), "AddressSanitizer"),
    ],
    ids=["nothing is launched", "no C++", "out of bounds"],
)
def test_a_kernel_that_is_wrong_is_named(
    checked: Row,
    source: Path,
    nvrtc: CudaCompiler,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[CudaKernel], CudaKernel],
    sentence: str,
) -> None:
    graph, kernel = next(found for found in planned_kernels(source, source.with_name("out") / "block.cuda.onnx"))
    monkeypatch.setattr(cuda_check, "planned_kernels", lambda *_: [(graph, fault(kernel))])
    monkeypatch.setattr(cuda_check, "_resources", lambda *_: {})
    limits = replace(LIMITS, sanitizers=(Sanitizer.ADDRESS,))
    row = check(source, SHAPES, source.with_name("out"), nvrtc, limits)
    (failure,) = row.failures
    assert failure.startswith(f"{kernel.name}, address sanitizer: ")
    assert sentence in failure
    assert "FAILED" in table([row], LIMITS)


def test_what_is_too_large_or_too_late_is_counted(
    checked: Row, source: Path, nvrtc: CudaCompiler, tmp_path: Path
) -> None:
    (source.with_name("out") / "right.json").rename(tmp_path / "right.json")
    late = check(source, SHAPES, source.with_name("out"), nvrtc, replace(LIMITS, late=lambda: True))
    assert late.failures == ()
    limits = replace(LIMITS, most=0)
    large = check(source, SHAPES, source.with_name("out"), nvrtc, limits)
    write([late, large], limits, tmp_path)
    rows = (tmp_path / "cuda-check.md").read_text().splitlines()[-4:-2]
    assert f"| 0 of {late.kernels} right |" in rows[0]
    assert f"{2 * late.kernels} runs left out, as time was up" in rows[0]
    assert f"{late.kernels} not run, larger than 0 elements" in rows[1]
    assert len(json.loads((tmp_path / "cuda-check.json").read_text())["models"]) == 2
