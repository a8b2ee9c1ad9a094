from __future__ import annotations

from pathlib import Path

import pytest

from korch_cli.core.plan import Plan
from korch_cli.pipeline.delivery import Built, Outcome
from korch_cli.pipeline.optimize import _bounded
from korch_cli.solve import SearchResult


@pytest.mark.parametrize(
    ("best_us", "bound_us", "delivered_us", "status"),
    [
        (10.0, 10.0, 10.0, "optimal"),
        (10.0, 10.0, 10.5, "feasible"),
        (10.0, 9.9, 10.0, "feasible"),
        (10.0, 0.0, 10.0, "feasible"),
    ],
)
@pytest.mark.parametrize("own_bound_us", [0.0, 10.0])
def test_what_is_delivered_is_optimal_only_if_no_plan_at_all_is_cheaper(
    best_us: float, bound_us: float, delivered_us: float, status: str, own_bound_us: float
) -> None:
    """Another plan than the best sum may win end to end, or one of ONNX Runtime's own kernels alone."""
    result = SearchResult(Plan((), best_us, bound_us), True, 20.0, 1, 0.1)
    built = Built(Plan((), delivered_us, own_bound_us), {}, {}, "", Path(), Path(), Path(), None)
    outcome = _bounded(Outcome(built, "It is faster."), result)
    assert outcome.built is not None
    assert outcome.built.plan == Plan((), delivered_us, bound_us)
    assert outcome.built.plan.status == status


def test_nothing_is_said_of_an_input_that_stays() -> None:
    outcome = Outcome(None, "Nothing is faster.")
    assert _bounded(outcome, SearchResult(Plan((), 1.0, 1.0), True, 1.0, 0, 0.0)) == outcome
