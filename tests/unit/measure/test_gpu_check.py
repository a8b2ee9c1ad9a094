"""`scripts/gpu_check` from preparing to its findings, with stand-ins for NVRTC's images and for CuPy."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from korch_cli.core.errors import MissingError
from korch_cli.core.gpu import Resources
from korch_cli.core.text import parse_graph, print_graph
from korch_cli.measure.cuda import Roofline, named_gpu
from korch_cli.toolchain import find_nvrtc
from scripts import gpu_check, prepare_gpu_check
from scripts.gpu_bench import SIZES, WORKLOADS, calibration, case_of
from scripts.gpu_plans import SCHEMA, Plans, PreparedKernel, read_plans, write_plans
from scripts.gpu_process import Child
from scripts.gpu_workloads import DTYPES, Workload, workloads
from scripts.prepare_gpu_check import kernels_of
from tests.cuda_on_cpu.cupy_on_cpu import Clock, cupy_on_cpu
from tests.cuda_on_cpu.execution import build
from tests.processes import ends
from tests.unit.codegen import test_cuda_kernels as cases

LAUNCH_US = 5.0
NEEDS = Resources(16, 0, 0)


STAND_IN = """
import sys
from pathlib import Path
from korch_cli.measure.cuda import device
from tests.cuda_on_cpu.cupy_on_cpu import Clock, cupy_on_cpu
device._SERIES_US, device._MOST_COPIES, device._WARM_UP_US, device._ROUNDS = 40.0, 2, 1.0, 2
made = cupy_on_cpu(Path({library!r}), Clock())
whole = made.RawModule
def raw_module(*, path):
    content = Path(path).read_bytes()
    if content != b"an image":
        exec(content.decode(), {{"cupy": made}})
    return whole(path=path)
made.RawModule = raw_module
sys.modules["cupy"] = made
"""
"""A module `cupy` for the processes of a check. An image that is no image is what happens when it is loaded."""
CRASHES = b"import os; os.abort()"
HANGS = b"import time; time.sleep(600)"
REFUSED = b"raise RuntimeError('no kernel image is available')"
LOST = b"""
def refuse(): raise RuntimeError('an illegal memory access was encountered')
cupy.cuda.runtime.deviceSynchronize = refuse
refuse()
"""


@pytest.fixture(scope="module")
def found() -> list[prepare_gpu_check.Found]:
    """A kernel of every group; the workload is one of those that there are, at a size that fibers can do."""
    gate = next(workload for workload in workloads() if "SiLU" in workload.name)
    small = parse_graph(gate.text("f32").replace("4096,4096", "5,33"))
    return [
        *list(kernels_of(SIZES, "points, f32", cases.pointwise("f32", "35", "1")))[:1],
        *list(kernels_of(WORKLOADS, f"{gate.name}, f32", small))[:1],
        *list(kernels_of("a model", "rows", cases.reduction("f16", ["sum"], "5,37", "1", "5,1")))[:1],
    ]


@pytest.fixture(scope="module")
def library(found: list[prepare_gpu_check.Found], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build([kernel for *_, kernel in found], tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def folder(
    found: list[prepare_gpu_check.Found], library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """As `prepare_gpu_check` writes it; images are never looked at by the stand-in."""
    made = tmp_path / "prepared"
    made.mkdir()
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "cupy.py").write_text(STAND_IN.format(library=str(library)))
    here = Path(__file__).parents[3]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (modules, here / "src", here))))
    monkeypatch.setitem(sys.modules, "cupy", cupy_on_cpu(library, Clock()))
    prepared = []
    for group, label, graph, kernel in found:
        (made / f"{kernel.name}.cubin").write_bytes(b"an image")
        resources = {launch.function: NEEDS for launch in kernel.launches}
        text = print_graph(graph)
        bare = replace(kernel, source="")
        prepared.append(PreparedKernel(group, label, text, bare, {90: f"{kernel.name}.cubin"}, {90: resources}))
    write_plans(Plans({"korch": "0"}, tuple(prepared), {}), made)
    return made


def findings(folder: Path, *flags: str) -> tuple[int, dict[str, Any]]:
    output = folder.parent / "found.json"
    code = gpu_check.main([str(folder), "-o", str(output), *flags])
    return code, json.loads(output.read_text())


def test_every_kernel_is_checked_and_those_that_count_are_timed(folder: Path) -> None:
    code, document = findings(folder)
    assert code == 0
    assert document["complete"]
    machine = {"gpu": "NVIDIA H200", "capability": 90, "estimates_for": "H200", "driver": 13000, "cupy": "14.2.0"}
    assert document["machine"] == machine
    assert [entry["failure"] for entry in document["kernels"]] == [None] * 3
    assert [entry["us"] for entry in document["kernels"]] == [LAUNCH_US] * 3
    assert all(entry["estimated_us"] > 0 for entry in document["kernels"])
    assert document["calibration"]["launch_us"] == LAUNCH_US
    assert document["calibration"]["bandwidth_share"] is None
    (rival,) = document["rivals"].values()
    assert rival.keys() == {"cupy_us", "torch_us", "torch_compiled_us"}
    # The stand-in has none of CuPy's own kernels.
    for missing in (document["sanitizer"], document["products"], *rival.values()):
        assert missing["left_out"]
    assert document["models"] == {}


def test_what_is_wrong_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plans = read_plans(folder)
    broken = replace(plans.kernels[0], kernel=replace(plans.kernels[0].kernel, launches=()))
    write_plans(replace(plans, kernels=(broken, *plans.kernels[1:])), folder)
    code, document = findings(folder)
    assert code == 1
    assert "nan instead of" in document["kernels"][0]["failure"]
    assert "us" not in document["kernels"][0]
    assert document["kernels"][1]["failure"] is None
    assert "FAILED  sizes: points, f32" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("image", "failure"),
    [
        (CRASHES, "its process ended with -6"),
        (HANGS, "it took longer than 2 s"),
        (REFUSED, "RuntimeError: no kernel image is available"),
        (LOST, "RuntimeError: an illegal memory access was encountered"),
    ],
    ids=["crash", "hang", "refused", "lost GPU"],
)
@pytest.mark.parametrize("at", [0, 2])
def test_a_kernel_that_fails_ends_nothing_else(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    image: bytes,
    failure: str,
    at: int,
) -> None:
    monkeypatch.setitem(gpu_check._STEP_S, "kernels", 2.0)
    (folder / read_plans(folder).kernels[at].images[90]).write_bytes(image)
    code, document = findings(folder)
    assert code == 1
    assert document["complete"]
    failures = [entry.pop("failure") for entry in document["kernels"]]
    assert failures.pop(at).startswith(failure)
    assert failures == [None, None]
    assert [entry["group"] for entry in document["kernels"]] == [SIZES, WORKLOADS, "a model"]
    assert failure in capsys.readouterr().err


def test_what_is_found_is_written_while_the_check_runs(folder: Path) -> None:
    """A check that is stopped leaves what it found, and no process of its own."""
    (folder / read_plans(folder).kernels[1].images[90]).write_bytes(HANGS)
    output = folder.parent / "found.json"
    command = [sys.executable, "-m", "scripts.gpu_check", str(folder), "-o", str(output)]
    here = Path(__file__).parents[3]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=here) as running:
        until = time.monotonic() + 60
        while not output.exists() and time.monotonic() < until:
            time.sleep(0.1)
        running.send_signal(signal.SIGTERM)
        assert "kernels: 1 of 3" in running.communicate(timeout=60)[1]
    document = json.loads(output.read_text())
    assert not document["complete"]
    assert [entry["failure"] for entry in document["kernels"]] == [None]


def test_a_process_is_ended_with_what_it_started() -> None:
    script = (
        "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True); import time; time.sleep(600)"
    )
    with Child([sys.executable, "-c", script]) as child:
        started = child.line(30.0)
        assert child.line(0.1) is None
        assert child.why == "it took longer than 0 s"
    assert ends(started)


def test_time_that_is_up_leaves_out_the_rest_by_name(folder: Path) -> None:
    code, document = findings(folder, "--seconds", "-1")
    assert code == 0
    assert {entry["left_out"] for entry in document["kernels"]} == {"time is up"}
    (rival,) = document["rivals"].values()
    assert {found["left_out"] for found in rival.values()} == {"time is up"}


def test_a_bare_check_is_of_all_sizes_and_nothing_else(folder: Path) -> None:
    _, document = findings(folder, "--bare")
    assert [entry["group"] for entry in document["kernels"]] == [SIZES]
    assert "us" not in document["kernels"][0]
    assert "rivals" not in document


def test_an_image_for_another_gpu_is_left_out(folder: Path) -> None:
    plans = read_plans(folder)
    other = [replace(k, images={80: "a.cubin"}, resources={80: k.resources[90]}) for k in plans.kernels]
    write_plans(replace(plans, kernels=tuple(other)), folder)
    _, document = findings(folder)
    assert {entry["left_out"] for entry in document["kernels"]} == {"no image runs on sm_90"}


@pytest.mark.parametrize(
    ("missing", "message"), [("cupy", "cupy"), ("GPU", "no driver"), ("plans", "kernels.json"), ("version", "version")]
)
def test_what_is_missing_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str, message: str
) -> None:
    def no_driver() -> int:
        raise RuntimeError("no driver")

    if missing == "cupy":
        monkeypatch.setitem(sys.modules, "cupy", None)
    elif missing == "GPU":
        monkeypatch.setattr(sys.modules["cupy"].cuda.runtime, "getDeviceCount", no_driver)
    elif missing == "plans":
        (folder / "kernels.json").unlink()
    else:
        text = (folder / "kernels.json").read_text()
        (folder / "kernels.json").write_text(text.replace(SCHEMA, "korch.gpu-check-plans/0"))
    assert gpu_check.main([str(folder)]) == 4
    assert message in capsys.readouterr().err


def test_plans_come_back_as_they_were(folder: Path) -> None:
    plans = read_plans(folder)
    write_plans(plans, folder)
    assert read_plans(folder) == plans


def test_constants_of_the_roofline_come_out_of_times_that_it_made() -> None:
    roofline = Roofline(named_gpu("H200"))
    rate = 0.8 * roofline.gpu.bytes_per_second
    large, cached, busy = 1 << 29, 1 << 23, 10**9
    entries = [
        {"label": "points, f32; vectors", "us": 9.0, "resident_us": 2.0},
        {"label": "scale, 32 Mi elements, f32; a", "us": 2 + large / rate * 1e6, "bytes": large, "flops": 0},
        {"label": "scale, 1 Mi elements, f32; a", "us": 9, "resident_us": 2 + cached / rate / 3 * 1e6, "bytes": cached},
        {
            "label": "40 products and sums, 4 Mi elements, f32; a",
            "us": 2 + busy / roofline.gpu.flops_per_second / 0.5 * 1e6,
            "bytes": 0,
            "flops": busy,
        },
    ]
    assert calibration(entries, roofline) == pytest.approx(
        {"launch_us": 2.0, "bandwidth_share": 0.8, "resident_speedup": 3.0, "arithmetic_share": 0.5}
    )


def smaller(extents: re.Match[str]) -> str:
    """The same shape with extents below 100, equal where they were equal."""
    return f"[{','.join(str(int(n) % 89 + 2) if int(n) > 99 else n for n in extents[1].split(','))}]"


@pytest.mark.parametrize("workload", workloads(), ids=lambda workload: workload.name)
def test_workloads_are_what_cupy_computes(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """On few elements, with numpy in CuPy's place: what they use has the same names."""
    special = types.ModuleType("cupyx.scipy.special")
    special.__dict__["erf"] = np.vectorize(math.erf)
    for name in ("cupyx", "cupyx.scipy"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "cupyx.scipy.special", special)
    case = case_of(re.sub(r"\[([\d,]+)\]", smaller, workload.text("f32")))
    (expected,) = case.expected
    np.testing.assert_allclose(workload.cupy(np, *case.operands), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("workload", workloads(), ids=lambda workload: workload.name)
@pytest.mark.parametrize("dtype", DTYPES)
def test_workloads_are_generated_at_their_size(workload: Workload, dtype: str) -> None:
    graph = parse_graph(workload.text(dtype))
    found = list(kernels_of(WORKLOADS, workload.name, graph))
    assert found
    for *_, kernel in found:
        assert kernel.read_bytes + kernel.written_bytes >= max(value.type.size_bytes for value in graph.inputs())


@pytest.mark.exhaustive
def test_what_is_prepared_compiles_and_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        find_nvrtc()
    except MissingError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    folder = tmp_path / "prepared"
    monkeypatch.setattr(sys, "argv", ["prepare_gpu_check", "-o", str(folder), "--arch", "sm_90"])
    prepare_gpu_check.main()
    plans = read_plans(folder)
    assert {kernel.group for kernel in plans.kernels} == {SIZES, WORKLOADS}
    assert len({kernel.kernel.schedule for kernel in plans.kernels}) > 10
    for kernel in plans.kernels:
        assert (folder / kernel.images[90]).read_bytes().startswith(b"\x7fELF")
        assert kernel.resources[90].keys() == {launch.function for launch in kernel.kernel.launches}


@pytest.fixture
def sanitizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the place of compute-sanitizer: it runs what it is given and has something to say of it."""
    program = tmp_path / "programs" / "compute-sanitizer"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nshift 4\n"$@"\necho "========= Invalid read of size 4"\nexit 9\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return program


def test_the_sanitizer_sees_the_kernels_of_all_sizes(folder: Path, sanitizer: Path) -> None:
    _, document = findings(folder)
    said = ["========= Invalid read of size 4"]
    assert document["sanitizer"] == {
        tool: {"status": 9, "ran": "1 of 1", "failed": [], "log": said}
        for tool in ("memcheck", "racecheck", "synccheck")
    }


def test_what_the_sanitizer_said_stays_where_its_time_is_up(
    folder: Path, sanitizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sanitizer.write_text('#!/bin/sh\necho "========= Invalid read of size 4"\nsleep 600\n')
    budget = gpu_check.Budget(time.monotonic(), 6.0)
    checked = gpu_check.Findings(None, budget)
    gpu_check._sanitize(folder, checked, 1)
    for found in checked.document["sanitizer"].values():
        assert found["status"] is None
        assert found["log"] == ["========= Invalid read of size 4"]
        assert found["ran"] == "0 of 1"
