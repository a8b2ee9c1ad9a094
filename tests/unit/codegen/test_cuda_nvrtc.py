"""NVRTC compiles every kind of generated CUDA text, without warnings, and its variables stay in registers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from korch_cli.codegen import cuda_headers, generate_cuda
from korch_cli.core.errors import MissingError
from korch_cli.core.gpu import Image
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.launch import CudaKernel
from korch_cli.core.progress import Silent
from korch_cli.toolchain import compile_images, find_nvrtc
from korch_cli.toolchain.nvrtc import read_resources
from korch_cli.toolchain.nvrtc_worker import Nvrtc
from scripts.prepare_gpu_check import catalogue
from tests.cuda_on_cpu.agreement import body_of
from tests.unit.codegen import test_cuda_kernels as cases
from tests.unit.codegen.body_graphs import softmax

PARKED_BYTES = 8
"""Stored by a thread: ptxas parks up to two registers around a loop even where many are left."""
MANY = 64
"""Registers, of the 255 that a thread may have."""
NAMED_FOR = (13, 5)
SPILLING = {
    "sm_80": {"workloads: add, layer normalization, 8192 x 1024, f32; row a block, registers"},
    "sm_90": set[str](),
}
"""Kernels of the catalogue in which that version of NVRTC does so."""


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    try:
        return Nvrtc(find_nvrtc().library)
    except MissingError as error:
        pytest.skip(f"{error.message}: {error.hint}")


def _compiles_well(nvrtc: Nvrtc, kernel: CudaKernel, architecture: str) -> None:
    options = [f"-arch={architecture}", "-std=c++17", "--ptxas-options=-v"]
    _, log = nvrtc.compile(kernel.source, cuda_headers(), options, cubin=True)
    assert "warning" not in log, f"{log}\n{kernel.source}"
    assert read_resources(log).keys() == {launch.function for launch in kernel.launches}
    stored = [int(size) for size in re.findall(r"(\d+) bytes spill stores", log)]
    assert max(stored) <= PARKED_BYTES, f"{log}\n{kernel.source}"


def _bodies(dtype: str) -> Sequence[PrimitiveGraph]:
    rows = [softmax(dtype, f"300,{n}", "1", "300,1") for n in (37, 1024, 4096, 20000)]
    norms = [cases.normalization(dtype, f"512,{n}", "1", "512,1", str(n)) for n in (96, 768, 1024, 1031, 8192)]
    long = [softmax(dtype, "2,500000", "1", "2,1"), cases.normalization(dtype, "1,300000", "1", "1,1", "300000")]
    columns = [softmax(dtype, "2,40,24", "1", "2,1,24"), cases.reduction(dtype, ["sum"], "50000,64", "0", "1,64")]
    points = [cases.pointwise(dtype, "8,64,7,7", "1,64,1,1"), cases.pointwise(dtype, "4099", "1")]
    small = [cases.stencil(dtype), cases.small_product(dtype), cases.transpose(dtype, "370,410", "410,370", "1,0")]
    return [*rows, *norms, *long, *columns, *points, *small]


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", cases.FLOATS)
def test_kernels_compile_and_spill_nothing(nvrtc: Nvrtc, dtype: str, architecture: str) -> None:
    for body in _bodies(dtype):
        for kernel in generate_cuda(body_of(body)):
            _compiles_well(nvrtc, kernel, architecture)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_of_the_whole_catalogue_only_named_kernels_spill(architecture: str, tmp_path: Path) -> None:
    try:
        nvrtc = find_nvrtc()
    except MissingError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    if nvrtc.version != NAMED_FOR:
        pytest.skip(f"the exceptions are those of NVRTC {NAMED_FOR}")
    labels = {kernel.name: f"{group}: {label}" for group, label, _, kernel in catalogue()}
    units = {kernel.name: kernel.source for *_, kernel in catalogue()}
    built = compile_images(nvrtc, units, cuda_headers(), [architecture], tmp_path, jobs=2, progress=Silent())
    spilling = {}
    for (name, _), image in built.items():
        assert isinstance(image, Image), image
        assert image.resources, name
        if any(need.spill_bytes for need in image.resources.values()):
            spilling[labels[name]] = max(need.registers for need in image.resources.values())
    assert spilling.keys() == SPILLING[architecture]
    assert all(registers <= MANY for registers in spilling.values()), spilling


@pytest.mark.parametrize("dtype", cases.INTEGERS)
def test_so_do_those_of_integers(nvrtc: Nvrtc, dtype: str) -> None:
    functions = ["max", "min"] if dtype == "bool" else ["sum", "max"]
    bodies = [
        cases.pointwise(dtype, "8,64,7,7", "1,64,1,1"),
        cases.transpose(dtype, "370,410", "410,370", "1,0"),
        cases.reduction(dtype, functions, "500,1031", "1", "500,1"),
        cases.reduction(dtype, functions, "500,35", "0", "1,35"),
    ]
    for body in bodies:
        for kernel in generate_cuda(body_of(body)):
            _compiles_well(nvrtc, kernel, "sm_80")
