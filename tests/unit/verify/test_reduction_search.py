"""The search for what a failure needs, on numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from korch_cli.verify.reduction.search import latest_start, minimise, shortest_prefix

_ITEMS = st.integers(1, 60)


@given(_ITEMS, st.data())
def test_ends_are_found_by_bisection(length: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, length - 1))
    last = data.draw(st.integers(first, length - 1))
    trials: list[int] = []

    def prefix_fails(k: int) -> bool:
        trials.append(k)
        return k > last

    def suffix_fails(k: int) -> bool:
        trials.append(k)
        return k <= first

    assert shortest_prefix(length, prefix_fails) == last + 1
    assert latest_start(length, suffix_fails) == first
    assert len(trials) <= 2 * math.ceil(math.log2(length)) if length > 1 else not trials


@given(_ITEMS, st.data())
def test_what_must_be_together_is_all_that_is_left(length: int, data: st.DataObject) -> None:
    needed = data.draw(st.frozensets(st.integers(0, length - 1), max_size=5))
    assert minimise(range(length), lambda kept: needed <= set(kept)) == tuple(sorted(needed))


@given(st.integers(1, 12), st.data())
def test_nothing_can_be_left_out_of_the_result_whatever_the_failure_is(length: int, data: st.DataObject) -> None:
    """The failing subsets are any at all: one part may make another matter, or hide it."""
    seed = data.draw(st.integers(0, 10**6))
    whole = tuple(range(length))

    def fails(kept: tuple[int, ...]) -> bool:
        return kept == whole or hash((seed, kept)) % 3 == 0

    found = minimise(whole, fails)
    assert fails(found)
    for i in range(len(found)):
        rest = found[:i] + found[i + 1 :]
        # The one that is empty is tried first, and does not fail unless it is the result.
        assert not fails(rest)


@pytest.mark.parametrize("length", [100, 1000])
def test_a_single_fault_takes_few_trials(length: int) -> None:
    trials = 0

    def fails(kept: tuple[int, ...]) -> bool:
        nonlocal trials
        trials += 1
        return 37 in kept

    assert minimise(range(length), fails) == (37,)
    assert trials < 4 * math.log2(length)


def test_two_distant_faults_take_few_trials() -> None:
    trials = 0

    def fails(kept: tuple[int, ...]) -> bool:
        nonlocal trials
        trials += 1
        return {3, 900} <= set(kept)

    assert minimise(range(1000), fails) == (3, 900)
    assert trials < 100
