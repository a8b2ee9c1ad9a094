"""Random bodies: whatever fission could produce, the kernels compute what the primitives mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from korch_cli.codegen import generate
from korch_cli.core.errors import Refusal
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Kernel, KernelBody
from tests.unit.codegen.random_bodies import MOVES, bodies

Check = Callable[[Sequence[PrimitiveGraph]], list[Kernel]]


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=bodies())
def test_kernels_compute_what_the_primitives_mean(check_kernels: Check, body: PrimitiveGraph) -> None:
    inputs = tuple(v.id for v in body.inputs())
    try:
        generate(KernelBody("digest", body, inputs, body.outputs))
    except Refusal:
        return
    check_kernels([body])


def accepted(drawn: Sequence[PrimitiveGraph]) -> list[PrimitiveGraph]:
    found = []
    for body in drawn:
        try:
            generate(KernelBody("digest", body, tuple(v.id for v in body.inputs()), body.outputs))
        except Refusal:
            continue
        found.append(body)
    return found


@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(bodies(), min_size=6, max_size=6))
def test_so_do_kernels_as_they_are_shipped(check_shipped_kernels: Check, drawn: list[PrimitiveGraph]) -> None:
    check_shipped_kernels(accepted(drawn))


@settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(bodies(), min_size=12, max_size=12))
def test_so_do_kernels_from_clang(check_clang_kernels: Check, drawn: list[PrimitiveGraph]) -> None:
    check_clang_kernels(accepted(drawn))


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(bodies(MOVES) | bodies(), min_size=6, max_size=6))
def test_kernels_stay_inside_their_operands_and_tables(check_clean_kernels: Check, drawn: list[PrimitiveGraph]) -> None:
    check_clean_kernels(accepted(drawn))


def test_few_random_bodies_are_refused() -> None:
    counts = {True: 0, False: 0}

    @settings(max_examples=150, deadline=None, derandomize=True, database=None)
    @given(body=bodies())
    def count(body: PrimitiveGraph) -> None:
        try:
            generate(KernelBody("digest", body, tuple(v.id for v in body.inputs()), body.outputs))
            counts[True] += 1
        except Refusal:
            counts[False] += 1

    count()
    assert counts[True] > 3 * counts[False]
