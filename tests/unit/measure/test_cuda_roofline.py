"""The roofline: against figures worked out by hand, and what must hold for every kernel and every GPU."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from korch_cli.candidates import lower_bound_us
from korch_cli.codegen import generate_cuda
from korch_cli.core.errors import UsageError
from korch_cli.core.gpu import Gpu, Resources, capability_of
from korch_cli.core.kernel import KernelBody
from korch_cli.core.launch import CudaKernel, Launch
from korch_cli.measure.cuda import Roofline, Work, gpu_of, known_gpus, named_gpu
from tests.cuda_on_cpu.agreement import body_of
from tests.unit.codegen import test_cuda_kernels as cases
from tests.unit.codegen.body_graphs import softmax as softmax_graph

A100 = named_gpu("A100-40GB")
SMALL = Resources(registers=16, spill_bytes=0, shared_bytes=0)


def kernel(blocks: int, threads: int, moved: int, flops: int = 0) -> CudaKernel:
    launch = Launch("f", (blocks, 1, 1), (threads, 1, 1), 0, (("in", 0), ("out", 0)))
    return CudaKernel("f", "digest", "points", "", (launch,), (), moved // 2, moved - moved // 2, flops)


def test_traffic_of_a_large_kernel_is_that_of_the_memory() -> None:
    # 100 MB at 0.88 of 1,555 GB/s, and a launch of 2.5 us.
    large = kernel(100_000, 256, 100_000_000)
    expected = 2.5 + 100e6 / (0.88 * 1555e9) * 1e6
    assert Roofline(A100).kernel_us(large, {"f": SMALL}) == pytest.approx(expected)
    assert Roofline(A100).work_us(Work(100_000_000)) == pytest.approx(expected)


def test_what_fits_into_the_second_level_cache_is_faster() -> None:
    # 4.7 MB are below 0.6 of 40 MB.
    assert Roofline(A100).work_us(Work(4_700_000)) == pytest.approx(2.5 + 4.7e6 / (2.5 * 0.88 * 1555e9) * 1e6)


@pytest.mark.parametrize(
    ("gpu", "half", "rate"), [("A100-40GB", True, 312e12), ("A100-40GB", False, 156e12), ("T4", False, 8.1e12)]
)
def test_products_run_on_the_matrix_units(gpu: str, half: bool, rate: float) -> None:
    flops = 1e12
    time_us = Roofline(named_gpu(gpu)).work_us(Work(0, product_flops=flops, half=half))
    assert time_us == pytest.approx(2.5 + flops / (0.6 * rate) * 1e6)


@pytest.mark.parametrize(
    ("threads", "needs", "blocks"),
    [
        (256, SMALL, 8),  # 2,048 threads
        (32, SMALL, 32),  # blocks
        (256, Resources(64, 0, 0), 4),  # 65,536 registers
        (256, Resources(65, 0, 0), 3),  # given in steps of 256 a warp: 72 a thread
        (128, Resources(16, 0, 40 << 10), 4),  # 164 KB, 1 KB a block reserved
        (1024, Resources(255, 0, 0), 1),  # never none
    ],
)
def test_what_limits_the_blocks_of_a_multiprocessor(threads: int, needs: Resources, blocks: int) -> None:
    (launch,) = kernel(1, threads, 0).launches
    assert Roofline(A100).blocks_per_processor(launch, needs) == blocks


def test_few_threads_do_not_use_the_whole_gpu() -> None:
    roofline, moved = Roofline(A100), 50_000_000
    times = [roofline.kernel_us(kernel(blocks, 256, moved), {"f": SMALL}) for blocks in (1, 27, 108, 324, 10_000)]
    assert times == sorted(times, reverse=True)
    assert times[-2] == times[-1]
    # One block of 256 threads, where 768 a multiprocessor would be needed on 108 of them.
    assert times[0] - 2.5 == pytest.approx((times[-1] - 2.5) * 108 * 3)


def test_every_launch_is_paid_for() -> None:
    one = kernel(100_000, 256, 0)
    two = replace(one, launches=one.launches * 2)
    assert Roofline(A100).kernel_us(two, {"f": SMALL}) == 2 * Roofline(A100).kernel_us(one, {"f": SMALL}) == 5.0


@cache
def generated(norm: bool, shape: str) -> tuple[KernelBody, tuple[CudaKernel, ...]]:
    rows, width = shape.split(",")
    reduced = f"{rows},1"
    made = cases.normalization("f32", shape, "1", reduced, width) if norm else softmax_graph("f32", shape, "1", reduced)
    body = body_of(made)
    return body, generate_cuda(body)


@settings(max_examples=100, deadline=None)
@given(
    gpu=st.sampled_from(known_gpus()),
    shape=st.sampled_from(["3,5", "64,1024", "4096,4096", "20000,4099"]),
    registers=st.integers(16, 255),
    norm=st.booleans(),
)
def test_no_estimate_is_below_the_bound(gpu: Gpu, shape: str, registers: int, norm: bool) -> None:
    body, kernels = generated(norm, shape)
    roofline = Roofline(gpu)
    rounded = 1 - 1e-9
    for made in kernels:
        needs = {launch.function: Resources(registers, 0, 0) for launch in made.launches}
        assert roofline.kernel_us(made, needs) >= rounded * lower_bound_us(body, roofline.limits())


def test_the_catalogue_is_whole() -> None:
    names = [gpu.name for gpu in known_gpus()]
    assert len(set(names)) == len(names)
    for gpu in known_gpus():
        assert named_gpu(gpu.name.lower()) == gpu
        assert gpu_of(gpu.arch).capability == capability_of(gpu.arch)
        assert gpu.bytes_per_second < gpu.flops_per_second < gpu.half_flops_per_second
    with pytest.raises(UsageError, match="no figures of this GPU"):
        named_gpu("RTX-9999")
    with pytest.raises(UsageError, match="no figures of a GPU of this architecture"):
        gpu_of("sm_70")
