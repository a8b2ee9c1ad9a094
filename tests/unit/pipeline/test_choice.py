"""Which of several plans wins a contest."""

from __future__ import annotations

import pytest

from korch_cli.core.record import Contest, Ratio, Samples
from korch_cli.pipeline.choice import winner
from korch_cli.pipeline.stored import decode_contest, encode_contest


def contest(times: list[float], doubt: float) -> Contest:
    """Models with these times; ratios may be wrong by the share `doubt`."""
    ratios = tuple(tuple(Ratio(a / b, a / b * (1 - doubt), a / b * (1 + doubt), 9) for b in times) for a in times)
    return Contest(tuple(Samples(f"model {i}", (t,)) for i, t in enumerate(times)), ratios)


@pytest.mark.parametrize(
    ("times", "doubt", "expected"),
    [
        ([10.0, 9.0], 0.01, 1),
        ([10.0, 9.0, 8.0], 0.01, 2),
        ([10.0, 9.0, 8.9], 0.05, 1),
        ([10.0, 9.0, 9.2, 8.0], 0.01, 3),
        # Faster than the second one, which was no better than the first: the first one stays.
        ([10.0, 9.0, 9.3, 8.9], 0.02, 1),
        # The input does not take part: whether it is beaten is asked afterwards.
        ([5.0, 9.0, 8.0], 0.01, 2),
    ],
)
def test_the_simpler_plan_wins_unless_the_other_is_faster_beyond_doubt(
    times: list[float], doubt: float, expected: int
) -> None:
    assert winner(contest(times, doubt)) == expected


def test_a_contest_survives_the_store() -> None:
    found = contest([10.0, 9.0, 8.0], 0.01)
    assert decode_contest(encode_contest(found)) == found
