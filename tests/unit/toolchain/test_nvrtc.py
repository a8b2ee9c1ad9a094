"""Compiling CUDA text in child processes: each once, and one that crashes or hangs costs only itself."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from korch_cli.core.errors import MissingError, UsageError
from korch_cli.core.gpu import Image, Resources
from korch_cli.core.progress import Silent
from korch_cli.toolchain import BuildFailure, CudaCompiler, compile_images, find_nvrtc
from korch_cli.toolchain import nvrtc as module
from korch_cli.toolchain.nvrtc import read_resources

ARCHS = ("sm_80", "sm_90", "compute_80")
HEADERS = {"a.h": "header"}
KERNEL = """\
extern "C" __global__ void twice(float* x) {
  __shared__ float s[64];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[63 - threadIdx.x];
}
"""


class Counter:
    """Counts the images that were compiled."""

    def __init__(self) -> None:
        self.done = 0

    def stage(self, text: str) -> None:
        raise AssertionError(text)

    def step(self, done: int, total: int, text: str = "") -> None:
        assert 0 <= done <= total
        self.done = done


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> CudaCompiler:
    library = tmp_path_factory.mktemp("nvrtc") / "libnvrtc.so"
    source = Path(__file__).with_name("fake_nvrtc.c")
    subprocess.run(["gcc", "-w", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return CudaCompiler(str(library), (13, 2), (80, 90))


def compiled(
    compiler: CudaCompiler, units: dict[str, str], cache: Path, counter: Counter | None = None, timeout_s: float = 60.0
) -> dict[tuple[str, str], Image | BuildFailure]:
    progress = counter or Silent()
    return compile_images(compiler, units, HEADERS, ARCHS, cache, jobs=2, progress=progress, timeout_s=timeout_s)


def test_an_image_is_compiled_once_and_again_when_anything_changes(fake: CudaCompiler, tmp_path: Path) -> None:
    first = compiled(fake, {"a": "one", "b": "two"}, tmp_path, counter := Counter())
    assert counter.done == 6
    paths = {key: image.path for key, image in first.items() if isinstance(image, Image)}
    assert len(set(paths.values())) == 6
    assert paths["a", "sm_80"].read_text() == "one"
    assert paths["b", "compute_80"].read_text() == "ptx"
    again = compiled(fake, {"a": "one", "b": "two"}, tmp_path, counter := Counter())
    assert again == first
    assert counter.done == 0
    for compiler, units in ((fake, {"a": "three"}), (replace(fake, version=(13, 3)), {"a": "one"})):
        compiled(compiler, units, tmp_path, counter := Counter())
        assert counter.done == 3


def test_the_folder_may_be_named_from_where_one_is(
    fake: CudaCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = compiled(fake, {"a": "one"}, Path("cache"))
    assert all(isinstance(image, Image) and image.path.is_file() for image in found.values())


def test_the_assembler_is_asked_for_figures_and_ptx_has_none(fake: CudaCompiler, tmp_path: Path) -> None:
    images = compiled(fake, {"a": "one"}, tmp_path)
    logs = {
        arch: Path(f"{image.path}.log").read_text() for (_, arch), image in images.items() if isinstance(image, Image)
    }
    assert logs["sm_90"].split() == ["-arch=sm_90", "-std=c++17", "--ptxas-options=-v"]
    assert logs["compute_80"].split() == ["-arch=compute_80", "-std=c++17"]


@pytest.mark.parametrize(
    ("word", "sentence", "timeout_s"),
    [("FAIL", "error: no such thing", 60.0), ("CRASH", "the compiler ended with", 60.0), ("HANG", "more than", 0.1)],
)
def test_one_that_does_not_compile_costs_only_itself(
    fake: CudaCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, sentence: str, timeout_s: float
) -> None:
    monkeypatch.setattr(module, "_START_S", 1.0)
    units = {"first": "one", "bad": word, "last": "two"}
    images = compiled(fake, units, tmp_path, timeout_s=timeout_s)
    for (name, _), image in images.items():
        if name == "bad":
            assert isinstance(image, BuildFailure)
            assert sentence in image.sentence
        else:
            assert isinstance(image, Image)
    assert not list(tmp_path.glob("build-*"))


def test_an_unknown_architecture_is_named_with_those_that_are_known(fake: CudaCompiler) -> None:
    fake.require(["sm_80", "compute_90"])
    with pytest.raises(UsageError, match="sm_70") as caught:
        fake.require(["sm_90", "sm_70"])
    assert caught.value.hint == "sm_80, sm_90"


def test_where_there_is_no_nvrtc_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_places", lambda: iter(["/nowhere/libnvrtc.so"]))
    with pytest.raises(MissingError, match="NVRTC") as caught:
        find_nvrtc()
    assert caught.value.hint is not None
    assert "pip install" in caught.value.hint


def test_nvrtc_is_found_in_wheels_in_toolkits_and_by_the_loader(
    fake: CudaCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOADER", ())
    monkeypatch.setattr("sys.path", [str(tmp_path / "site")])
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    for place in ("cuda/lib64/libnvrtc.so", "site/nvidia/cu13/lib/libnvrtc.so.13"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).symlink_to(fake.library)
        assert find_nvrtc() == replace(fake, library=str(tmp_path / place))


def test_figures_are_read_by_function() -> None:
    log = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'a_1' for 'sm_90'
ptxas info    : Function properties for a_1
    8 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 8 bytes cumulative stack size, 4224 bytes smem
ptxas info    : Compiling entry function 'a_2' for 'sm_90'
ptxas info    : Function properties for a_2
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
"""
    assert read_resources(log) == {"a_1": Resources(32, 12, 4224), "a_2": Resources(10, 0, 0)}
    assert read_resources("") == {}


def test_the_real_one_compiles_and_tells_what_a_kernel_needs(tmp_path: Path) -> None:
    try:
        nvrtc = find_nvrtc()
    except MissingError as error:
        pytest.skip(error.message)
    units = {"good": KERNEL, "bad": KERNEL.replace("float s", "flot s")}
    images = compile_images(nvrtc, units, {}, ["sm_80", "compute_80"], tmp_path, jobs=2, progress=Silent())
    cubin, ptx, bad = images["good", "sm_80"], images["good", "compute_80"], images["bad", "sm_80"]
    assert isinstance(cubin, Image)
    assert isinstance(ptx, Image)
    assert cubin.path.read_bytes().startswith(b"\x7fELF")
    assert b".entry twice(" in ptx.path.read_bytes()
    assert cubin.resources["twice"].shared_bytes == 256
    assert cubin.resources["twice"].registers > 0
    assert isinstance(bad, BuildFailure)
    assert "flot" in bad.sentence
