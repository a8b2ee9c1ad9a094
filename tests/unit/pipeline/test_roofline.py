"""Kernels of an output model beside what the machine could do at best."""

from __future__ import annotations

import pytest

from korch_cli.core.machine import MachineLimits, Work
from korch_cli.core.record import NodeTime
from korch_cli.pipeline.roofline import against_limits

# A byte a nanosecond up to a size of 1 MiB, where it becomes half of that; 4 operations a nanosecond; 2 us to begin.
LIMITS = MachineLimits("", 1, ((1000, 1e9), (1 << 20, 5e8)), 2e9, 2.0)


def entry(name: str, size_bytes: int, flops: int) -> dict[str, object]:
    return {"name": name, "bytes": size_bytes, "flops": flops, "schedule": "row", "nodes": [["a", "b"], ["c"]]}


def test_kernels_are_held_against_the_slower_of_memory_and_arithmetic() -> None:
    nodes = [
        NodeTime("n0", "k_copy", "korch.1", 30.0, 0.1),
        NodeTime("n1", "k_copy", "korch.1", 10.0, 0.1),
        NodeTime("n2", "k_math", "korch.1", 100.0, 0.1),
        NodeTime("n3", "Conv", "", 500.0, 0.7),
    ]
    plan = {"kernels": [entry("k_copy", 8000, 400), entry("k_math", 800, 192_000), entry("k_not_run", 8, 8)]}
    math, copy = against_limits(plan, nodes, LIMITS)
    assert (math.name, math.uses, math.limited_by, math.nodes) == ("k_math", 1, "arithmetic", (("a", "b"), ("c",)))
    assert math.limit_us == pytest.approx(2 + 48)
    assert math.share_of_limit == pytest.approx(0.5)
    assert (copy.name, copy.uses, copy.time_us, copy.limited_by) == ("k_copy", 2, 20.0, "memory")
    assert copy.limit_us == pytest.approx(2 + 8)
    assert copy.share_of_limit == pytest.approx(0.5)


def test_no_kernel_is_beyond_its_limit() -> None:
    plan = {"kernels": [entry("k", 1 << 30, 1)]}
    (kernel,) = against_limits(plan, [NodeTime("n", "k", "korch.1", 1.0, 1.0)], LIMITS)
    assert kernel.share_of_limit == 1.0
    assert LIMITS.least_us(Work(0, 0.0)) == LIMITS.dispatch_us
