"""An estimate of what a kernel takes on a GPU that is not there.

A kernel takes its launch, and then as long as its memory traffic or its arithmetic, whichever is longer. Traffic runs
at the rate of the second-level cache where all of it fits there, else at that of the memory; and at less than that
where too few threads are resident: few blocks, a last wave that is nearly empty, or registers and shared memory that
leave no room.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from korch_cli.core.gpu import Gpu, Resources
from korch_cli.core.launch import CudaKernel, Launch
from korch_cli.core.machine import MachineLimits
from korch_cli.measure.cuda.catalogue import model_constants

_WARP = 32
_REGISTERS = 1 << 16
"""Of a multiprocessor; of every one since 2012."""
_REGISTER_STEP, _SHARED_STEP = 256, 1 << 10
"""A warp's registers and a block's shared memory are given in such steps."""
_RESERVED_SHARED = 1 << 10
_TENSOR_FLOAT32 = 80
"""From this compute capability on, ONNX Runtime runs float32 products on the matrix units by default, at half rate."""


@dataclass(frozen=True, slots=True)
class Work:
    """What has to be done, whoever does it.

    Attributes:
        bytes_moved: read and written.
        flops: of the general units.
        product_flops: of matrix products and convolutions.
        half: whether these are of 16 bits.
    """

    bytes_moved: int
    flops: float = 0.0
    product_flops: float = 0.0
    half: bool = False


@dataclass(frozen=True, slots=True)
class Roofline:
    """The model for one GPU."""

    gpu: Gpu

    def work_us(self, work: Work, launches: int = 1) -> float:
        """Return the time of kernels that use the whole GPU, such as those of the vendor's libraries."""
        constants = model_constants()
        arithmetic_s = work.flops / (constants["arithmetic_share"] * self.gpu.flops_per_second)
        product_s = work.product_flops / (constants["matrix_share"] * self._matrix_rate(half=work.half))
        transfer_s = work.bytes_moved / self._rate(work.bytes_moved)
        return launches * constants["launch_us"] + 1e6 * max(transfer_s, arithmetic_s + product_s)

    def kernel_us(self, kernel: CudaKernel, resources: Mapping[str, Resources]) -> float:
        """Return the time of a generated kernel, with what its functions need as the compiler reported it."""
        constants = model_constants()
        bytes_moved = kernel.read_bytes + kernel.written_bytes
        arithmetic_s = kernel.flops / (constants["arithmetic_share"] * self.gpu.flops_per_second)
        whole_s = max(bytes_moved / self._rate(bytes_moved), arithmetic_s)
        threads = [_threads(launch) for launch in kernel.launches]
        total = max(1, sum(threads))
        time_s = 0.0
        for launch, own in zip(kernel.launches, threads, strict=True):
            # What a launch has to do is taken to be proportional to its threads.
            time_s += whole_s * own / total / self.use(launch, resources[launch.function])
        return len(kernel.launches) * constants["launch_us"] + 1e6 * time_s

    def use(self, launch: Launch, needs: Resources) -> float:
        """Return the share of the GPU's rates that a launch can reach, by the threads that it keeps resident."""
        blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
        at_once = self.gpu.processors * self.blocks_per_processor(launch, needs)
        waves = -(-blocks // max(1, at_once))
        resident = _threads(launch) / max(1, waves)
        return min(1.0, max(resident, 1.0) / (self.gpu.processors * model_constants()["saturating_threads"]))

    def blocks_per_processor(self, launch: Launch, needs: Resources) -> int:
        """Return how many blocks of a launch a multiprocessor holds at a time, at least 1."""
        warps = -(-launch.block[0] * launch.block[1] * launch.block[2] // _WARP)
        registers = warps * _stepped(max(1, needs.registers) * _WARP, _REGISTER_STEP)
        shared = _stepped(needs.shared_bytes + launch.shared_bytes + _RESERVED_SHARED, _SHARED_STEP)
        limits = (
            self.gpu.blocks,
            self.gpu.threads // (warps * _WARP),
            _REGISTERS // registers,
            self.gpu.shared_bytes // shared,
        )
        return max(1, min(limits))

    def limits(self) -> MachineLimits:
        """Return what no estimate goes below, in the form in which kernels are bounded."""
        constants = model_constants()
        resident = int(constants["resident_share"] * self.gpu.cache_bytes)
        memory = constants["bandwidth_share"] * self.gpu.bytes_per_second
        return MachineLimits(
            identity=self.gpu.name,
            threads=self.gpu.processors,
            bandwidth=((resident, memory * constants["resident_speedup"]), (resident + 1, memory)),
            # In fused operations, which the bound counts as two.
            flops_per_second=constants["arithmetic_share"] * self.gpu.flops_per_second / 2,
            dispatch_us=constants["launch_us"],
        )

    def _rate(self, bytes_moved: int) -> float:
        constants = model_constants()
        rate = constants["bandwidth_share"] * self.gpu.bytes_per_second
        is_resident = bytes_moved <= constants["resident_share"] * self.gpu.cache_bytes
        return rate * (constants["resident_speedup"] if is_resident else 1.0)

    def _matrix_rate(self, *, half: bool) -> float:
        if half:
            return self.gpu.half_flops_per_second
        if self.gpu.capability >= _TENSOR_FLOAT32:
            return self.gpu.half_flops_per_second / 2
        return self.gpu.flops_per_second


def _threads(launch: Launch) -> int:
    (gx, gy, gz), (bx, by, bz) = launch.grid, launch.block
    return gx * gy * gz * bx * by * bz


def _stepped(amount: int, step: int) -> int:
    return -(-amount // step) * step
