"""The table that random graphs are made of: every row can be drawn, at both ends of its range."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st

from tests.fuzz import graphs  # noqa: F401 - fills the table
from tests.fuzz.operators import NEWEST, OLDEST, Row, rows
from tests.fuzz.sketch import ANY, Sketch, Unfit

_SEARCH = settings(
    max_examples=100,
    database=None,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
_ALL = sorted(
    # In the order of the table, which a set would not keep: workers have to agree on it.
    dict.fromkeys(row for opset in range(OLDEST, NEWEST + 1) for row in rows(opset)),
    key=lambda row: (row.op_type, row.since),
)


@st.composite
def _called(draw: st.DrawFn, row: Row, opset: int) -> bool:
    """Draw whether a call of the row is found that ONNX Runtime runs, in a graph of a few inputs."""
    s = Sketch(draw, opset)
    shape = s.choose(((2, 4, 6, 8), (4, 4), (2, 3, 8), (3, 1, 5), (5,), (1,), (2, 4, 5, 6)))
    for _ in range(4):
        s.input(s.choose(ANY), shape)
    s.input(s.choose(ANY), shape[:1])
    try:
        s.add(row.op_type, row.domain, row.make(s))
    except Unfit:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("row", _ALL, ids=lambda row: f"{row.op_type}-{row.since}-{row.make.__name__}")
def test_every_row_can_be_drawn(row: Row) -> None:
    for opset in (row.since, row.until):
        assert find(_called(row, opset), bool, settings=_SEARCH)
