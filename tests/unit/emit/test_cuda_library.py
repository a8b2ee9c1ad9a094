"""A library of CUDA kernels in ONNX Runtime, with a stand-in for the driver: its calls, its results, its errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from korch_cli.codegen import generate_cuda
from korch_cli.codegen.cuda import splitting
from korch_cli.core.artifact import CudaEntry
from korch_cli.core.errors import MissingError
from korch_cli.core.gpu import Image
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.interpreter import evaluate
from korch_cli.core.kernel import KernelBody
from korch_cli.core.launch import CudaKernel
from korch_cli.core.types import Array
from korch_cli.emit import probe_model, save_model
from korch_cli.toolchain import find_nvrtc
from tests.cuda_on_cpu.agreement import body_of
from tests.cuda_on_cpu.execution import build
from tests.cuda_on_cpu.library import (
    DOMAIN,
    Driver,
    SessionError,
    build_driver,
    build_library,
    compiled_images,
    run_session,
    written_images,
)
from tests.unit.codegen.body_graphs import softmax as softmax_graph
from tests.unit.codegen.drawing import draw_operand

BLOCKING = ("cuInit", "cuLibrary", "cuKernel", "cuDevice")
"""Calls that no run may make."""
REFUSED = (
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuCtxGetCurrent",
    "cuCtxPushCurrent_v2",
    "cuLibraryLoadData",
    "cuLibraryGetKernel",
    "cuKernelGetFunction",
    "cuLaunchKernel",
)


@dataclass(frozen=True)
class Case:
    """A kernel with a model that runs it."""

    body: KernelBody
    kernel: CudaKernel
    model: Path
    feeds: dict[str, Array]

    def entry(self, images: Sequence[Image]) -> CudaEntry:
        types = tuple(value.type for value in self.body.graph.inputs())
        results = tuple(self.body.graph.values[v].type for v in self.body.graph.outputs)
        return CudaEntry(self.kernel, types, results, tuple(images))

    def check(self, results: dict[str, Array]) -> None:
        feeds = dict(zip((v.id for v in self.body.graph.inputs()), self.feeds.values(), strict=True))
        expected = evaluate(self.body.graph, feeds, widen=True)
        for i, v in enumerate(self.body.graph.outputs):
            got, want = results[f"out{i}_0"], np.asarray(expected[v], np.float64)
            np.testing.assert_allclose(got.astype(np.float64), want.reshape(got.shape), rtol=2e-5, atol=2e-5)


def made(graph: PrimitiveGraph, folder: Path) -> Case:
    body = body_of(graph)
    kernel = generate_cuda(body)[0]
    proto, inputs = probe_model(body, kernel.name, DOMAIN, opset=18, replicas=1)
    path = folder / f"{kernel.name}.onnx"
    save_model(proto, folder, path)
    rng = np.random.default_rng(0)
    return Case(body, kernel, path, {name: draw_operand(typed, rng) for name, typed in inputs})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver(tmp_path_factory.mktemp("cuda"))


@pytest.fixture(scope="module")
def softmax(folder: Path) -> Case:
    return made(softmax_graph("f32", "30,37", "1", "30,1"), folder)


@pytest.fixture(scope="module")
def split(folder: Path) -> Case:
    """A reduction over few long rows: several launches that hand on scratch memory."""
    with pytest.MonkeyPatch.context() as patch:
        # Splitting starts at sizes that fibers are slow at.
        for name, size in (("_LONG", 128), ("_MUCH", 128), ("_LEAST_PART", 16)):
            patch.setattr(splitting, name, size)
        case = made(softmax_graph("f32", "2,1031", "1", "2,1"), folder)
    assert case.kernel.scratch
    assert len(case.kernel.launches) > 1
    return case


def images(case: Case, folder: Path) -> tuple[Image, ...]:
    """Real ones where NVRTC is installed."""
    try:
        return compiled_images(find_nvrtc(), case.kernel, folder, ["sm_80", "sm_90", "compute_80"])
    except MissingError:
        return written_images(case.kernel, folder, ["compute_80", "compute_90"])


def driver(case: Case, folder: Path, name: str, **settings: str) -> Driver:
    log = folder / f"{name}.log"
    log.unlink(missing_ok=True)
    return Driver(
        folder, build([case.kernel], folder), log, {f"KORCH_STAND_IN_{k.upper()}": v for k, v in settings.items()}
    )


def test_a_kernel_runs_on_what_was_loaded_with_the_session(softmax: Case, folder: Path) -> None:
    library = build_library([softmax.entry(images(softmax, folder))], folder / "softmax.so")
    cuda = driver(softmax, folder, "softmax")
    softmax.check(run_session(softmax.model, library, softmax.feeds, cuda, runs=3))
    calls = cuda.calls()
    launches = [i for i, call in enumerate(calls) if call.startswith("cuLaunchKernel")]
    assert len(launches) == 3 * len(softmax.kernel.launches)
    assert not any(call.startswith(BLOCKING) for call in calls[launches[0] : launches[-1]]), calls
    assert sum(call.startswith("cuLibraryLoadData") for call in calls) == 1
    assert f"cuLibraryGetKernel {softmax.kernel.launches[0].function}" in calls
    assert calls.count("cuCtxPushCurrent_v2") == calls.count("cuCtxPopCurrent_v2")
    assert calls.count("cuDevicePrimaryCtxRetain 0") == calls.count("cuDevicePrimaryCtxRelease_v2 0") == 1
    assert calls.count("cuLibraryUnload") == 1


def test_launches_hand_on_scratch_memory_also_where_runs_overlap(split: Case, folder: Path) -> None:
    library = build_library([split.entry(images(split, folder))], folder / "split.so")
    cuda = driver(split, folder, "split")
    split.check(run_session(split.model, library, split.feeds, cuda, runs=10, threads=2))
    names = [call.split()[1] for call in cuda.calls() if call.startswith("cuLaunchKernel")]
    assert names == 20 * [launch.function for launch in split.kernel.launches]


def test_several_kernels_in_a_library(softmax: Case, split: Case, folder: Path) -> None:
    entries = [case.entry(images(case, folder)) for case in (softmax, split)]
    library = build_library(entries, folder / "both.so")
    cuda = replace(driver(softmax, folder, "both"), kernels=build([softmax.kernel, split.kernel], folder))
    softmax.check(run_session(softmax.model, library, softmax.feeds, cuda))
    split.check(run_session(split.model, library, split.feeds, cuda))


def launched_on(calls: Sequence[str]) -> list[str]:
    """The devices of launches, in order."""
    return [call.split()[2] for call in calls if call.startswith("cuLaunchKernel")]


def test_a_session_on_another_device_uses_nothing_of_the_first(split: Case, folder: Path) -> None:
    library = build_library([split.entry(images(split, folder))], folder / "second.so")
    cuda = driver(split, folder, "second", devices="3")
    split.check(run_session(split.model, library, split.feeds, cuda, runs=2, devices=[2]))
    calls = cuda.calls()
    assert [call for call in calls if call.startswith("cuDeviceGet ")] == ["cuDeviceGet 2"]
    assert [call for call in calls if call.startswith("cuDevicePrimary")] == [
        "cuDevicePrimaryCtxRetain 2",
        "cuDevicePrimaryCtxRelease_v2 2",
    ]
    loaded = [call for call in calls if call.startswith("cuKernelGetFunction")]
    assert loaded == ["cuKernelGetFunction 2"] * len(split.kernel.launches)
    assert launched_on(calls) == ["2"] * 2 * len(split.kernel.launches)
    assert calls.count("cuCtxPushCurrent_v2") == calls.count("cuCtxPopCurrent_v2")


@pytest.mark.parametrize("threads", [1, 2])
def test_sessions_on_several_devices_have_each_kernel_in_its_own_context(
    split: Case, folder: Path, threads: int
) -> None:
    """The stand-in refuses to launch a function in another context than it was loaded in."""
    library = build_library([split.entry(images(split, folder))], folder / f"several{threads}.so")
    cuda = driver(split, folder, f"several{threads}", devices="2")
    devices = [0, 1, 0]
    split.check(
        run_session(split.model, library, split.feeds, cuda, runs=3, threads=threads, devices=devices, current=1)
    )
    calls, launches = cuda.calls(), len(split.kernel.launches)
    loaded = [call.split()[1] for call in calls if call.startswith("cuKernelGetFunction")]
    assert loaded == [device for device in "010" for _ in range(launches)]
    assert sorted(launched_on(calls)) == sorted("010" * 3 * threads * launches)
    for name in ("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"):
        assert calls.count(f"{name} 0") == 2
        assert calls.count(f"{name} 1") == 1 + threads
    assert calls.count("cuLibraryLoadData ptx") + calls.count("cuLibraryLoadData sm_90") == 3
    assert calls.count("cuLibraryUnload") == 3


def test_each_device_gets_the_image_and_the_shared_memory_that_are_for_it(softmax: Case, folder: Path) -> None:
    first, *others = softmax.kernel.launches
    large = replace(first, shared_bytes=100 << 10)
    case = replace(softmax, kernel=replace(softmax.kernel, launches=(large, *others)))
    try:
        made = compiled_images(find_nvrtc(), case.kernel, folder, ["sm_80", "compute_80", "sm_90"])
        chosen = ["sm_90", "sm_80", "ptx"]
    except MissingError:
        made, chosen = written_images(case.kernel, folder, ["compute_80"]), ["ptx"] * 3
    library = build_library([case.entry(made)], folder / "mixed.so")
    cuda = driver(case, folder, "mixed", devices="3", capability="90,86,120")
    case.check(run_session(case.model, library, case.feeds, cuda, devices=[0, 1, 2]))
    calls = cuda.calls()
    assert [call.split()[1] for call in calls if call.startswith("cuLibraryLoadData")] == chosen
    asked = [call for call in calls if call.startswith("cuKernelSetAttribute")]
    assert asked == [f"cuKernelSetAttribute 8 {100 << 10} {device}" for device in range(3)]


def test_a_device_that_is_not_there_is_an_error(softmax: Case, folder: Path) -> None:
    library = build_library([softmax.entry(images(softmax, folder))], folder / "absent.so")
    cuda = driver(softmax, folder, "absent", devices="2")
    with pytest.raises(SessionError, match="invalid device ordinal"):
        run_session(softmax.model, library, softmax.feeds, cuda, devices=[2])


@pytest.mark.parametrize("devices", [None, "0"], ids=["no driver", "no device"])
def test_without_a_device_nothing_is_registered_and_the_function_runs(
    softmax: Case, folder: Path, devices: str | None
) -> None:
    for name, opening in (("on_cpu", None), ("shipped", "")):
        entries = [softmax.entry(images(softmax, folder))]
        path = folder / f"{name}.so"
        library = build_library(entries, path) if opening is None else build_library(entries, path, opening=opening)
        cuda = None if devices is None else driver(softmax, folder, "none", devices=devices)
        softmax.check(run_session(softmax.model, library, softmax.feeds, cuda))
        if cuda is not None:
            assert not any(call.startswith("cuLaunch") for call in cuda.calls())


def test_what_ships_is_for_cuda_alone(softmax: Case, folder: Path) -> None:
    library = build_library([softmax.entry(images(softmax, folder))], folder / "ships.so", opening="")
    with pytest.raises(SessionError, match=softmax.kernel.name):
        run_session(softmax.model, library, softmax.feeds, driver(softmax, folder, "ships"))


@pytest.mark.parametrize(
    ("capability", "chosen"), [("80", "sm_80"), ("86", "sm_80"), ("89", "sm_80"), ("90", "sm_90"), ("120", "ptx")]
)
def test_the_nearest_image_is_taken(softmax: Case, folder: Path, capability: str, chosen: str) -> None:
    try:
        made = compiled_images(find_nvrtc(), softmax.kernel, folder, ["sm_80", "compute_80", "sm_90"])
    except MissingError as error:
        pytest.skip(str(error))
    library = build_library([softmax.entry(made)], folder / "nearest.so")
    cuda = driver(softmax, folder, f"nearest{capability}", capability=capability)
    softmax.check(run_session(softmax.model, library, softmax.feeds, cuda))
    assert [call for call in cuda.calls() if call.startswith("cuLibraryLoadData")] == [f"cuLibraryLoadData {chosen}"]


def test_a_gpu_without_an_image_is_named(softmax: Case, folder: Path) -> None:
    library = build_library([softmax.entry(written_images(softmax.kernel, folder, ["compute_90"]))], folder / "old.so")
    with pytest.raises(SessionError, match=r"compute capability 7\.5, and the library has compute_90; run korch with"):
        run_session(softmax.model, library, softmax.feeds, driver(softmax, folder, "old", capability="75"))


@pytest.mark.parametrize("function", REFUSED)
def test_what_the_driver_refuses_is_an_error_with_its_reason(split: Case, folder: Path, function: str) -> None:
    library = build_library([split.entry(written_images(split.kernel, folder, ["compute_80"]))], folder / "fails.so")
    cuda = driver(split, folder, f"fails{function}", fails=function)
    with pytest.raises(SessionError, match=rf"korch kernel {split.kernel.name}: .*: out of memory \(2\)"):
        run_session(split.model, library, split.feeds, cuda)
    calls = cuda.calls()
    retained = calls.count("cuDevicePrimaryCtxRetain 0") - (function == "cuDevicePrimaryCtxRetain")
    assert retained == calls.count("cuDevicePrimaryCtxRelease_v2 0")


def test_more_shared_memory_than_a_launch_has_by_itself_is_asked_for(softmax: Case, folder: Path) -> None:
    first, *others = softmax.kernel.launches
    large = replace(first, shared_bytes=100 << 10)
    case = replace(softmax, kernel=replace(softmax.kernel, launches=(large, *others)))
    library = build_library([case.entry(written_images(case.kernel, folder, ["compute_80"]))], folder / "large.so")
    cuda = driver(case, folder, "large")
    case.check(run_session(case.model, library, case.feeds, cuda))
    assert f"cuKernelSetAttribute 8 {100 << 10} 0" in cuda.calls()


def test_equal_kernels_make_equal_libraries(softmax: Case, folder: Path) -> None:
    entries = [softmax.entry(written_images(softmax.kernel, folder, ["compute_80"]))]
    one, other = (build_library(entries, folder / f"{name}.so", opening="") for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()
    assert str(folder).encode() not in one.read_bytes()
