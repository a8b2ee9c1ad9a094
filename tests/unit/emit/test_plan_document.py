"""The plan document: its fields, and that it says nothing that differs between equal runs."""

from __future__ import annotations

import json
from pathlib import Path

from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.kernel import Candidate, CandidateKind, Kernel, Port
from korch_cli.core.model import Model, Operator
from korch_cli.core.plan import Plan, Priced
from korch_cli.core.primitive import Elementwise, Input
from korch_cli.core.types import DType, TensorType
from korch_cli.emit import plan_document

SHA = "ab" * 32


def model(folder: str) -> Model:
    operators = tuple(Operator(i, f"nœud {i}", "Relu", "", 17, (f"t{i}",), (f"t{i + 1}",), (), {}) for i in range(4))
    return Model(Path(folder) / "in.onnx", ("t0",), ("t4",), operators, {}, {}, {"": 17}, 8, None)


def plan() -> Plan:
    shared = [Candidate(CandidateKind.GENERATED, (v,), (Port(v - 1),), (Port(v),), "d1") for v in (1, 3)]
    alone = Candidate(CandidateKind.GENERATED, (4, 5), (Port(3),), (Port(5),), "d0")
    vendor = Candidate(CandidateKind.VENDOR, (2,), (Port(1),), (Port(2),), "v", (1,))
    reorder = Candidate(CandidateKind.REORDER, (), (Port(2),), (Port(2, "blocked"),), "r")
    costs = ((shared[0], 1.23456), (vendor, 5.0), (reorder, 0.5), (shared[1], 1.23456), (alone, 2.0))
    return Plan(tuple(Priced(c, cost) for c, cost in costs), 9.969120001, 9.5)


KERNELS = {
    "d1": Kernel("k_bb", "d1", "row, scratch", "source", 1, 1, 1),
    "d0": Kernel("k_aa", "d0", "flat", "source", 1, 1, 1),
}
OPERATORS = (-1, 0, 1, 2, 2, 3)
TYPE = TensorType(DType.F32, (2,))
GRAPH = PrimitiveGraph(
    tuple(
        Value(i, f"t{i}", TYPE, Elementwise("neg") if i else Input(), (i - 1,) if i else (), operator)
        for i, operator in enumerate(OPERATORS)
    ),
    (5,),
)


def document(folder: str = "/somewhere") -> str:
    return plan_document(model(folder), SHA, "It is faster.", plan(), KERNELS, "korch.test", GRAPH, {"t0": (2,)})


def test_a_plan_is_listed_by_kernel() -> None:
    assert json.loads(document()) == {
        "schema": "korch.plan/2",
        "model_sha256": SHA,
        "changed": True,
        "reason": "It is faster.",
        "domain": "korch.test",
        "status": "feasible",
        "cost_us": 9.969,
        "bound_us": 9.5,
        "vendor_operators": 1,
        "kernels": [
            {
                "name": "k_aa",
                "digest": "d0",
                "schedule": "flat",
                "uses": 1,
                "time_us": 2.0,
                "nodes": [["nœud 2", "nœud 3"]],
            },
            {
                "name": "k_bb",
                "digest": "d1",
                "schedule": "row, scratch",
                "uses": 2,
                "time_us": 1.235,
                "nodes": [["nœud 0"], ["nœud 2"]],
            },
        ],
        "shapes": {"t0": [2]},
        "sequence": [
            {"kernel": "k_bb", "values": ["t1"], "way": "written"},
            {"nodes": ["nœud 1"]},
            {"kernel": "k_bb", "values": ["t3"], "way": "written"},
            {"kernel": "k_aa", "values": ["t4", "t5"], "way": "written"},
        ],
    }


def test_an_unchanged_model_has_a_document_too() -> None:
    text = plan_document(model("/somewhere"), SHA, "Nothing is faster.", None, {}, None, GRAPH, {})
    assert json.loads(text) == {
        "schema": "korch.plan/2",
        "model_sha256": SHA,
        "changed": False,
        "reason": "Nothing is faster.",
    }


def test_the_text_is_sorted_and_free_of_paths() -> None:
    text = document()
    assert text == document("/elsewhere")
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
