"""What is said of a node: every choice, what the cheapest plan with it costs, and which one the plan takes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from korch_cli.core.errors import UsageError
from korch_cli.core.explanation import NodeRecord
from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.plan import Priced
from korch_cli.core.text import parse_graph
from korch_cli.measure import ProfileStore
from korch_cli.pipeline.explanation import Program, explain, keep_program
from korch_cli.report import render_explain
from korch_cli.rewrite import unite

WRITTEN = """\
%0 "x" f32[2] = input
%1 "a" f32[2] = elementwise neg (%0) @0
%2 "b" f32[2] = elementwise neg (%1) @1
%3 "y" f32[2] = elementwise exp (%2) @2
outputs (%3)
operator 0 = (%1)
operator 1 = (%2)
operator 2 = (%3)
"""
REWRITTEN = """\
%0 "x" f32[2] = input
%1 "b" f32[2] = elementwise abs (%0) @0
%2 "y" f32[2] = elementwise exp (%1) @1
outputs (%2)
operator 0 = (%1)
operator 1 = (%2)
"""


def program(rewritten_us: float = 3.0) -> Program:
    """b is neg(neg(x)) as it is written, 5 + 4 µs, or another operator; the last two nodes can be one kernel."""
    graphs = [parse_graph(WRITTEN), parse_graph(REWRITTEN)]
    tensors = [frozenset(value.name for value in graph.values) for graph in graphs]
    union = unite(graphs, tensors, [(0, 1, 2), (3, 2)])
    assert union is not None
    graph = union.graph
    ids = {value.name: value.id for value in graph.values}
    first, second = union.values

    def vendor(operator: int, v: int, reads: str, writes: str, cost_us: float) -> Priced:
        ports = (Port(ids[reads]),), (Port(graph.first(ids[writes])),)
        return Priced(Candidate(CandidateKind.VENDOR, (v,), *ports, f"vendor:{operator}", (operator,)), cost_us)

    fused = Candidate(CandidateKind.GENERATED, first[2:4], (Port(ids["a"]),), (Port(ids["y"]),), "d")
    priced = (
        vendor(0, first[1], "x", "a", 5.0),
        vendor(1, first[2], "a", "b", 4.0),
        vendor(2, first[3], "b", "y", 2.0),
        vendor(3, second[1], "x", "b", rewritten_us),
        Priced(fused, 3.5),
    )
    sources = ("profiled", "profiled", "profiled", "profiled", "measured")
    chosen = {3, 2} if rewritten_us + 2.0 < 8.5 else {0, 4}
    results = tuple(tuple(graph.operator_outputs[o]) for o in range(4))
    names, types = ("n0", "n1", "n2", "n1/rewritten"), ("Neg", "Neg", "Exp", "Abs")
    return Program(graph, priced, sources, names, types, 3, results, frozenset(chosen), "It is faster.")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    (tmp_path / "store").mkdir()
    opened = ProfileStore(tmp_path / "store")
    yield opened
    opened.close()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"a model")
    return path


def digest(model: Path) -> str:
    return hashlib.sha256(model.read_bytes()).hexdigest()


def asked(model: Path, store: ProfileStore, node: str) -> NodeRecord:
    (record,) = explain(model, node, store).nodes
    return record


def test_each_choice_has_the_cost_of_the_cheapest_plan_with_it(model: Path, store: ProfileStore) -> None:
    keep_program(store, digest(model), program())
    record = explain(model, "n1", store)
    assert record.plan_us == 5.0
    (node,) = record.nodes
    assert (node.op_type, node.considered) == ("Neg", 3)
    found = {(c.kind, c.nodes): (c.time_us, c.plan_us, c.taken) for c in node.choices}
    assert found == {
        ("rewritten", ("n1/rewritten",)): (3.0, 5.0, True),
        ("operators", ("n1",)): (4.0, 11.0, False),
        ("kernel", ("n1", "n2")): (3.5, 8.5, False),
    }
    assert node.choices[0].taken
    assert "3.5 µs more" in node.reason
    assert record.notes == ("It is faster.",)
    text = render_explain(record, whole=False)
    assert "ONNX Runtime, rewritten" in text
    assert "n1/rewritten" in text


def test_the_choice_depends_on_the_price(model: Path, store: ProfileStore) -> None:
    keep_program(store, digest(model), program(rewritten_us=7.0))
    node = asked(model, store, "n1")
    assert [c.kind for c in node.choices if c.taken] == ["kernel"]
    costs = {c.kind: c.plan_us for c in node.choices}
    assert costs == {"kernel": 8.5, "operators": 11.0, "rewritten": 9.0}


def test_what_was_never_measured_counts_only_where_it_is_asked_about(model: Path, store: ProfileStore) -> None:
    whole = program()
    keep_program(store, digest(model), replace(whole, sources=(*whole.sources[:4], "bound")))
    costs = {c.kind: (c.plan_us, c.source) for c in asked(model, store, "n0").choices}
    assert costs == {"operators": (10.0, "profiled")}
    cheap = Priced(whole.priced[4].candidate, 0.25)
    unmeasured = replace(whole, priced=(*whole.priced[:4], cheap), sources=(*whole.sources[:4], "bound"))
    keep_program(store, digest(model), unmeasured)
    assert [c.plan_us for c in asked(model, store, "n0").choices] == [10.0]
    node = asked(model, store, "n1")
    assert {c.kind: c.plan_us for c in node.choices} == {"rewritten": 5.0, "operators": 11.0, "kernel": 5.25}


def test_a_kernel_that_needs_another_unmeasured_one_is_only_bounded(model: Path, store: ProfileStore) -> None:
    whole = program()
    a, b = (next(v.id for v in whole.graph.values if v.name == name) for name in ("a", "y"))
    lone = Candidate(CandidateKind.GENERATED, whole.priced[4].candidate.body, (Port(a, "odd"),), (Port(b),), "lone")
    feed = Candidate(CandidateKind.GENERATED, whole.priced[0].candidate.body, (), (Port(a, "odd"),), "feed")
    both = (*whole.priced, Priced(lone, 0.5), Priced(feed, 0.5))
    # Only the kernel that computes n0 leaves what the other one reads, which computes n1 and n2.
    keep_program(store, digest(model), replace(whole, priced=both, sources=(*whole.sources, "bound", "bound")))
    costs = [c.plan_us for c in asked(model, store, "n1").choices if c.source == "bound"]
    assert costs in ([], [None])
    assert [c.plan_us for c in asked(model, store, "n0").choices if c.source == "bound"] == [5.5]


def test_a_node_that_nothing_needs_says_so(model: Path, store: ProfileStore) -> None:
    keep_program(store, digest(model), program())
    assert "Nothing is run for it" in asked(model, store, "n0").reason


def test_all_nodes_are_listed_with_what_is_run_for_them(model: Path, store: ProfileStore) -> None:
    keep_program(store, digest(model), program())
    record = explain(model, None, store)
    assert [node.name for node in record.nodes] == ["n0", "n1", "n2"]
    assert [[c.nodes for c in node.choices] for node in record.nodes] == [[], [("n1/rewritten",)], [("n2",)]]
    assert "nothing" in render_explain(record, whole=True)


def test_the_output_is_explained_by_the_input_that_its_plan_names(
    model: Path, store: ProfileStore, tmp_path: Path
) -> None:
    keep_program(store, digest(model), program())
    output = tmp_path / "out.onnx"
    output.write_bytes(b"another")
    document = {"schema": "korch.plan/2", "model_sha256": digest(model), "changed": False}
    output.with_suffix(".plan.json").write_text(json.dumps(document), encoding="utf-8")
    assert len(asked(output, store, "n1").choices) == 3


def test_without_the_search_the_plan_alone_is_explained(model: Path, store: ProfileStore) -> None:
    document: dict[str, object] = {
        "schema": "korch.plan/2",
        "model_sha256": "00",
        "changed": True,
        "cost_us": 12.5,
        "bound_us": 12.5,
        "status": "optimal",
        "shapes": {},
        "kernels": [{"name": "k_1", "time_us": 2.5, "nodes": [["n0", "n1"], ["n3"]]}],
        "sequence": [
            {"kernel": "k_1", "values": ["a"], "way": "written"},
            {"nodes": ["n2"]},
            {"kernel": "k_1", "values": ["c"], "way": "written"},
        ],
    }
    model.with_suffix(".plan.json").write_text(json.dumps(document), encoding="utf-8")
    record = explain(model, "n3", store)
    (node,) = record.nodes
    assert [(c.kind, c.nodes, c.time_us, c.plan_us) for c in node.choices] == [("kernel", ("n3",), 2.5, None)]
    assert "not known" in record.notes[0]
    assert "?" in render_explain(explain(model, "n2", store), whole=False)
    assert [node.name for node in explain(model, None, store).nodes] == ["n0", "n1", "n2", "n3"]
    damaged = document | {"kernels": [{"name": "k_1", "time_us": 2.5, "nodes": [["n0", "n1"]]}]}
    model.with_suffix(".plan.json").write_text(json.dumps(damaged), encoding="utf-8")
    with pytest.raises(UsageError, match="does not say"):
        explain(model, None, store)


@pytest.mark.parametrize("known", [True, False])
def test_what_is_not_known_is_a_usage_error(model: Path, store: ProfileStore, *, known: bool) -> None:
    if known:
        keep_program(store, digest(model), program())
    with pytest.raises(UsageError, match="no such node" if known else "nothing is known"):
        explain(model, "n", store)
