"""Random bodies: whatever fission could produce, the CUDA kernels compute what the primitives mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import Phase, given, settings

from korch_cli.codegen import generate_cuda
from korch_cli.core.errors import Refusal
from korch_cli.core.graph import PrimitiveGraph
from tests.cuda_on_cpu.agreement import body_of, check_cuda
from tests.cuda_on_cpu.execution import Sanitizer
from tests.unit.codegen.random_bodies import bodies

_SAMPLE = 24
_ALL = 200
_FEW_BLOCKS = 4


def _drawn(count: int) -> list[PrimitiveGraph]:
    """The same bodies every time, those refused left out."""
    found: list[PrimitiveGraph] = []

    @settings(max_examples=count, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
    @given(body=bodies())
    def collect(body: PrimitiveGraph) -> None:
        try:
            generate_cuda(body_of(body))
        except Refusal:
            return
        found.append(body)

    collect()
    return found


def test_a_sample_computes_what_the_primitives_mean(cuda_builds: Path) -> None:
    check_cuda(_drawn(_SAMPLE), cuda_builds, orders=("random:3",))


@pytest.mark.exhaustive
def test_all_compute_what_the_primitives_mean(cuda_builds: Path) -> None:
    bodies_drawn = _drawn(_ALL)
    assert len(bodies_drawn) > 3 * _ALL // 4
    for first in range(0, len(bodies_drawn), 20):
        check_cuda(bodies_drawn[first : first + 20], cuda_builds, orders=("reverse", "warp:5"))


@pytest.mark.exhaustive
def test_no_barrier_is_missing_in_small_ones(cuda_builds: Path) -> None:
    small = [body for body in _drawn(_ALL) if _blocks(body) <= _FEW_BLOCKS]
    assert len(small) >= 20
    check_cuda(small[:20], cuda_builds, Sanitizer.THREAD, orders=("forward",))


def _blocks(body: PrimitiveGraph) -> int:
    return max(sum(launch.grid[0] for launch in kernel.launches) for kernel in generate_cuda(body_of(body)))
