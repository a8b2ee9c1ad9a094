"""The programs of the orchestration benchmarks: what is solved, by whom, and how the page tells of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import encoders
import orchestration
import page
from korch_cli.candidates import SearchLimits
from korch_cli.core.kernel import Arrangement, Candidate, CandidateKind, Port
from korch_cli.core.model import Bindings
from korch_cli.core.plan import Priced
from korch_cli.solve import check_plan, solve
from programs import Problem, problem
from surroundings import describe

SMALL = SearchLimits(max_primitives=8, max_linear=1)


def encoder(folder: Path, layers: int) -> Problem:
    path = folder / "encoder.onnx"
    encoders.write(path, layers)
    return problem(path, Bindings({}, {}), SMALL, spread=0.25)


def test_an_encoder_grows_by_the_layer_and_its_layers_share_their_kernels(tmp_path: Path) -> None:
    two, three, five = (encoder(tmp_path, layers) for layers in (2, 3, 5))
    layer = three.generated - two.generated
    assert layer > 400
    assert five.generated - three.generated == 2 * layer
    assert two.distinct == three.distinct == five.distinct


@pytest.mark.slow
def test_twelve_layers_are_proven_optimal(tmp_path: Path) -> None:
    made = encoder(tmp_path, 12)
    assert sum(1 for _ in made.graph.primitives()) > 600
    assert len(made.priced) > 6000
    plan = solve(made.graph, made.priced, time_limit_s=60)
    check_plan(made.graph, plan)
    assert plan.status == "optimal"


def test_scip_finds_the_same_optimum(tmp_path: Path) -> None:
    made = encoder(tmp_path, 1)
    ours, theirs = solve(made.graph, made.priced, time_limit_s=30), orchestration.scip(made.graph, made.priced, 30)
    assert (ours.status, theirs["status"]) == ("optimal", "optimal")
    assert theirs["cost_us"] == pytest.approx(ours.cost_us, abs=0.1)


def test_no_freedom_is_worth_less_than_nothing(tmp_path: Path) -> None:
    rows = orchestration.ablation(encoder(tmp_path, 1))
    ours = rows["korch"]["cost_us"]
    assert all(row["cost_us"] >= ours - 0.1 for row in rows.values())
    assert rows["the paper's"]["cost_us"] >= rows["one output"]["cost_us"]
    assert rows["one output"]["cost_us"] > ours
    # Nothing lies blocked in this program.
    assert rows["no layouts"]["cost_us"] == ours


def test_without_layouts_a_kernel_pays_for_the_conversions_at_its_ends() -> None:
    blocked = Arrangement.BLOCKED.value
    ends = (Port(1, blocked),), (Port(2, blocked),)
    convolution = Priced(Candidate(CandidateKind.VENDOR, (2,), *ends, "", (0,)), 10.0)
    there = Priced(Candidate(CandidateKind.REORDER, (), (Port(1),), (Port(1, blocked),), ""), 2.0)
    back = Priced(Candidate(CandidateKind.REORDER, (), (Port(2, blocked),), (Port(2),), ""), 3.0)
    (plain,) = orchestration.without_layouts([convolution, there, back])
    assert (plain.candidate.reads, plain.candidate.writes, plain.cost_us) == ((Port(1),), (Port(2),), 15.0)


def test_the_page_shows_what_was_found_and_what_is_not_proven(tmp_path: Path) -> None:
    case = orchestration.Case("encoder, 1 layer", layers=1)
    path = orchestration.source(case, tmp_path, tmp_path)
    assert path is not None
    solved = {by: orchestration.solve_one(case, path, by) for by in ("korch", "scip")}
    entry = {"model": case.name, **solved["korch"]["size"], **{by: one["result"] for by, one in solved.items()}}
    rows = orchestration.ablation(encoder(tmp_path, 1))
    rows["no recomputation"] = {"status": "feasible", "cost_us": None, "bound_us": rows["korch"]["cost_us"] * 1.25}
    made = {"call": "c", "commit": "c", "processor": "p"}
    ablation = {"model": case.name, "candidates": 1, "distinct": 2345, "measured": 67, "rows": rows}
    document = {
        "models": [{"model": case.name, "failure": "None.", "made": made, "ablation": ablation}],
        "kernels": [],
        "scale": [entry | {"made": made}],
        "absent": [],
        "left_out": [],
        "surroundings": describe(2, {}),
        "sittings": 1,
        "rounds": 1,
        "block_s": 1.0,
        "command": "",
    }
    text = page.write(document, tmp_path).read_text(encoding="utf-8")
    assert f"| encoder, 1 layer | {entry['primitives']} | {entry['candidates']} |" in text
    assert text.count("| optimal") == 2
    assert "| 2,345 (67) |" in text
    assert "> 1.250" in text
