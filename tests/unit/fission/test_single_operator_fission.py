"""Every row of the table, at the versions where it begins, changes and ends, against ONNX Runtime."""

from __future__ import annotations

import cases_arithmetic  # type: ignore[import-not-found]
import cases_attention  # type: ignore[import-not-found]
import cases_elementwise  # type: ignore[import-not-found]
import cases_indexing  # type: ignore[import-not-found]
import cases_layout  # type: ignore[import-not-found]
import cases_loss  # type: ignore[import-not-found]
import cases_microsoft  # type: ignore[import-not-found]
import cases_pooling  # type: ignore[import-not-found]
import cases_product  # type: ignore[import-not-found]
import cases_recurrent  # type: ignore[import-not-found]
import cases_reduction  # type: ignore[import-not-found]
import cases_resize  # type: ignore[import-not-found]
import cases_selection  # type: ignore[import-not-found]
import onnx
import pytest
from operator_case import (  # type: ignore[import-not-found]
    NEWEST,
    Case,
    assert_same,
    at_every_version,
    interpreted,
    judged,
    split,
    versions_of,
)

from korch_cli.fission.registry import LATEST, Row, rows

_STATED = [
    *cases_arithmetic.CASES,
    *cases_attention.CASES,
    *cases_elementwise.CASES,
    *cases_indexing.CASES,
    *cases_layout.CASES,
    *cases_loss.CASES,
    *cases_microsoft.CASES,
    *cases_pooling.CASES,
    *cases_product.CASES,
    *cases_recurrent.CASES,
    *cases_reduction.CASES,
    *cases_resize.CASES,
    *cases_selection.CASES,
]
CASES = list(at_every_version(_STATED))


@pytest.mark.parametrize("each", CASES, ids=lambda each: each.id)
def test_an_operator_computes_what_the_runtime_does(each: Case) -> None:
    expected = judged(each)
    graph = split(each.proto(expected))
    assert dict(graph.refusals) == {}
    for got, wanted in zip(interpreted(graph, each.feeds()), expected, strict=True):
        assert_same(got, wanted, each.tolerance)


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.domain}{row.op_type}-{row.since}")
def test_every_row_has_a_case_at_each_of_its_versions(row: Row) -> None:
    tested = {each.version for each in CASES if (each.domain, each.op_type) == (row.domain, row.op_type)}
    assert set(versions_of(row)) <= tested


def test_every_case_has_a_row() -> None:
    entered = {(row.domain, row.op_type) for row in rows()}
    assert {(each.domain, each.op_type) for each in _STATED} <= entered


def _definitions(op_type: str) -> set[int]:
    history = onnx.defs.get_all_schemas_with_history()
    return {schema.since_version for schema in history if schema.domain == "" and schema.name == op_type}


@pytest.mark.parametrize(
    "row",
    [row for row in rows() if not row.domain and _definitions(row.op_type)],
    ids=lambda r: f"{r.op_type}-{r.since}",
)
def test_every_definition_in_the_range_of_a_row_was_read(row: Row) -> None:
    last = row.until if row.until is not None else LATEST[""]
    within = {version for version in _definitions(row.op_type) if row.since <= version <= last}
    assert within == {version for version in (row.since, *row.also) if version <= NEWEST}


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.domain}{row.op_type}-{row.since}")
def test_no_version_has_two_rows(row: Row) -> None:
    own = [other for other in rows() if (other.domain, other.op_type) == (row.domain, row.op_type)]
    for version in range(1, LATEST[row.domain] + 1):
        holding = [r for r in own if r.since <= version <= (r.until if r.until is not None else LATEST[r.domain])]
        assert len(holding) <= 1
