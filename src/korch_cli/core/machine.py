"""What a machine can do, and what ONNX Runtime makes of a model on it."""

from __future__ import annotations

from dataclasses import dataclass

_FUSED = 2.0
"""A fused multiply-add does two operations in the time that the machine's limits give one."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a kernel cannot do without.

    Attributes:
        bytes_moved: operands read once, as far as results depend on them, and results written once.
        flops: arithmetic of each needed element once, in units of a float32 addition.
    """

    bytes_moved: int
    flops: float


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """Limits of this machine with `threads` threads, calibrated once and stored.

    Attributes:
        identity: processor model, instruction sets and thread count in one string; part of every store key.
        threads: threads that every timing uses.
        bandwidth: (footprint in bytes, bytes per second) pairs, ascending: the best streaming rate that was seen when
            that many bytes are touched; larger footprints leave the caches.
        flops_per_second: best rate of dependent-free float32 vector additions and products.
        dispatch_us: what one more custom operator costs in a session, with no work in it.
    """

    identity: str
    threads: int
    bandwidth: tuple[tuple[int, float], ...]
    flops_per_second: float
    dispatch_us: float

    def bytes_per_second(self, footprint_bytes: int) -> float:
        """The streaming rate for a working set of this size, never below the largest one's."""
        for size, rate in self.bandwidth:
            if footprint_bytes <= size:
                return rate
        return self.bandwidth[-1][1]

    def transfer_us(self, work: Work) -> float:
        """The least time in which the bytes can be moved.

        The best rate counts that was seen from the last calibrated size on that fits in: caches have no sharp edge.
        """
        fitting = (i for i, (size, _) in enumerate(self.bandwidth) if size <= work.bytes_moved)
        return work.bytes_moved / max(rate for _, rate in self.bandwidth[max(fitting, default=0) :]) * 1e6

    def arithmetic_us(self, work: Work) -> float:
        """The least time in which the operations can be done."""
        return work.flops / (_FUSED * self.flops_per_second) * 1e6

    def least_us(self, work: Work) -> float:
        """The dispatch time plus the larger of transfer and arithmetic time."""
        return self.dispatch_us + max(self.transfer_us(work), self.arithmetic_us(work))


@dataclass(frozen=True, slots=True)
class VendorNode:
    """A node of the graph that ONNX Runtime made of a model, and its time in place.

    Attributes:
        name: as ONNX Runtime names it.
        op_type: operator; `domain` "" is the default one, "com.microsoft.nchwc" works on blocked tensors.
        inputs: tensor names, "" for omitted.
        outputs: tensor names.
        time_us: a low percentile over many runs in place; scaled so that all nodes add up to `VendorProfile.total_us`.
    """

    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    time_us: float


@dataclass(frozen=True, slots=True)
class VendorProfile:
    """How ONNX Runtime runs a model: its own graph with a time on every node.

    Attributes:
        nodes: in execution order.
        total_us: median time of a run without profiling.
    """

    nodes: tuple[VendorNode, ...]
    total_us: float
