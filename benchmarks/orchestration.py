"""The choice of kernels by itself: how long its proof takes at scale, and what each of its freedoms is worth.

    python benchmarks/orchestration.py scale [--only NAME] [--models FOLDER]
    python benchmarks/orchestration.py ablation [--only NAME] [--models FOLDER]

prints one part as JSON, for everything or for the names given: `scale` has cases of its own, `ablation` takes names of
models/catalogue.toml; run.py has both on its page. Nothing here is timed but the solvers: the prices are those of
programs.py, so that every machine solves the same programs.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ortools.linear_solver import pywraplp

import encoders
from korch_cli.candidates import SearchLimits
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Arrangement, CandidateKind, Port
from korch_cli.core.model import Bindings
from korch_cli.core.plan import UNITS_PER_US, Priced
from korch_cli.solve import check_plan, greedy, solve
from korch_cli.solve.formulation import ALWAYS, Formulation
from korch_cli.solve.program import runnable
from naming import known_names, names_with_files
from programs import Problem, measured, problem

ROOT = Path(__file__).parents[1]
LIMIT_S = 60.0
_ENCODER = SearchLimits(max_primitives=8, max_linear=1, max_candidates=60_000)
_SPREAD = 0.25
"""Of the made-up prices, see programs.py."""


@dataclass(frozen=True, slots=True)
class Case:
    """A program to solve.

    Attributes:
        name: of the model.
        layers: of an encoder to write, 0 for a model in the folder.
        spread: of the prices around their bounds.
    """

    name: str
    layers: int = 0
    spread: float = _SPREAD


CASES = (
    Case("encoder, 12 layers", layers=12),
    Case("encoder, 100 layers", layers=100),
    Case("segformer_b0", spread=0.0),
    Case("efficientvit_b1", spread=0.0),
    Case("yolov4", spread=0.0),
)
"""What is solved at scale."""


def scale(names: Sequence[str] | None, models: Path, work: Path) -> Iterator[dict[str, Any]]:
    """Solve each case with korch's solver and with SCIP, each in a process of its own; yield one entry for each.

    Cases whose model is not in the folder are left out.
    """
    for case in CASES:
        if names and case.name not in names:
            continue
        path = source(case, models, work)
        if path is None:
            print(f"left out, as it is not in {models}: {case.name}", file=sys.stderr, flush=True)
            continue
        print(case.name, file=sys.stderr, flush=True)
        command = [sys.executable, str(Path(__file__)), "solve", "--only", case.name, "--models", str(path.parent)]
        solved = [json.loads(subprocess.run([*command, "--by", by], check=True, stdout=subprocess.PIPE).stdout)
                  for by in ("korch", "scip")]  # fmt: skip
        yield {"model": case.name, **solved[0]["size"], "korch": solved[0]["result"], "scip": solved[1]["result"]}


def source(case: Case, models: Path, work: Path) -> Path | None:
    """Return the file of a case's model, an encoder written first; None where a model is not in the folder."""
    if case.layers:
        path = work / f"{case.name}.onnx"
        if not path.is_file():
            encoders.write(path, case.layers)
        return path
    found = sorted(models.glob(f"{case.name}*.onnx"))
    return found[0] if found else None


def solve_one(case: Case, path: Path, by: str) -> dict[str, Any]:
    """Solve one case; the seconds hold everything from the priced candidates to the plan, on the clock and of CPU."""
    # What is loaded at the first use of a solver is no part of its time.
    solve(PrimitiveGraph((), ()), (), time_limit_s=1.0)
    made = problem(path, Bindings({}, {}), _ENCODER if case.layers else SearchLimits(), spread=case.spread)
    started, used = time.monotonic(), time.process_time()
    if by == "korch":
        plan = solve(made.graph, made.priced, time_limit_s=LIMIT_S)
        result = {"status": plan.status, "cost_us": plan.cost_us, "bound_us": plan.bound_us}
    else:
        result = scip(made.graph, made.priced, LIMIT_S)
    seconds = {"seconds": round(time.monotonic() - started, 2), "cpu_s": round(time.process_time() - used, 2)}
    if by == "korch":
        check_plan(made.graph, plan)
    size = {
        "primitives": sum(1 for _ in made.graph.primitives()),
        "candidates": len(made.priced),
        "distinct": made.distinct,
    }
    return {"size": size, "result": result | seconds}


def scip(graph: PrimitiveGraph, priced: Sequence[Priced], time_limit_s: float, *, once: bool = False) -> dict[str, Any]:
    """Solve the same program with SCIP, loops cut off in the same way; `once` forbids to compute a primitive twice."""
    deadline = time.monotonic() + time_limit_s
    usable = runnable(graph, [p for p in priced if math.isfinite(p.cost_us)])
    formulation = Formulation(graph, usable)
    program = _Scip(formulation)
    if once:
        program.compute_once()
    while True:
        proven, chosen = program.solve(deadline - time.monotonic())
        loops = formulation.loops(chosen)
        if not loops or time.monotonic() >= deadline:
            break
        formulation.forbid(loops)
    found = bool(chosen) and not loops
    return {
        "status": ("optimal" if proven else "feasible") if found else "no plan",
        "cost_us": sum(usable[i].cost_us for i in chosen) if found else None,
        "bound_us": program.bound_us,
    }


class _Scip:
    """A formulation in SCIP's terms; takes over the rows that it gained since the last solution."""

    def __init__(self, formulation: Formulation) -> None:
        self._formulation = formulation
        self._solver = pywraplp.Solver.CreateSolver("SCIP")
        self._columns = [self._solver.BoolVar("") for _ in range(formulation.columns)]
        for column, cost in zip(self._columns, formulation.costs, strict=False):
            self._solver.Objective().SetCoefficient(column, cost)
        self._rows = 0

    @property
    def bound_us(self) -> float:
        """No plan costs less."""
        return float(self._solver.Objective().BestBound()) / UNITS_PER_US

    def compute_once(self) -> None:
        """Demand that no two kernels compute the same primitive."""
        bodies: dict[int, list[int]] = {}
        for i, candidate in enumerate(self._formulation.candidates):
            for v in candidate.body:
                bodies.setdefault(v, []).append(i)
        for members in bodies.values():
            row = self._solver.Constraint(0, 1, "")
            for i in members:
                row.SetCoefficient(self._columns[i], 1)

    def solve(self, time_limit_s: float) -> tuple[bool, list[int]]:
        """Return whether the solution is proven, and its kernels; none if there is no solution."""
        for row in self._formulation.rows[self._rows :]:
            constraint = self._solver.Constraint(1 if row.given == ALWAYS else 0, self._solver.infinity(), "")
            for at in row.one_of:
                constraint.SetCoefficient(self._columns[at], 1)
            if row.given != ALWAYS:
                constraint.SetCoefficient(self._columns[row.given], -1)
        self._rows = len(self._formulation.rows)
        self._solver.SetTimeLimit(max(1, int(time_limit_s * 1e3)))
        exactly = pywraplp.MPSolverParameters()
        exactly.SetDoubleParam(exactly.RELATIVE_MIP_GAP, 0.0)
        status = self._solver.Solve(exactly)
        if status not in (pywraplp.Solver.OPTIMAL, pywraplp.Solver.FEASIBLE):
            return False, []
        chosen = [i for i in range(len(self._formulation.costs)) if self._columns[i].solution_value() > 0.5]
        return status == pywraplp.Solver.OPTIMAL, chosen


def without_layouts(priced: Sequence[Priced]) -> list[Priced]:
    """Return the candidates on plain values alone; one that works on blocked values pays for its conversions itself."""
    conversions: dict[Port, float] = {}
    for p in priced:
        if p.candidate.kind is CandidateKind.REORDER:
            blocked = next(port for port in (*p.candidate.reads, *p.candidate.writes) if not _is_plain(port))
            conversions[blocked] = max(p.cost_us, conversions.get(blocked, 0.0))
    found = []
    for p in priced:
        candidate = p.candidate
        if candidate.kind is not CandidateKind.REORDER:
            ends = (*candidate.reads, *candidate.writes)
            cost_us = p.cost_us + sum(conversions[port] for port in ends if not _is_plain(port))
            reads, writes = (tuple(Port(port.value) for port in ports) for ports in (candidate.reads, candidate.writes))
            found.append(Priced(replace(candidate, reads=reads, writes=writes), cost_us))
    return found


def with_single_outputs(priced: Sequence[Priced]) -> list[Priced]:
    """Return the candidates with each generated one of several results replaced by one a result, at the same price."""
    found = []
    for p in priced:
        alone = p.candidate.kind is not CandidateKind.GENERATED or len(p.candidate.writes) == 1
        ports = [p.candidate.writes] if alone else [(port,) for port in p.candidate.writes]
        found += [Priced(replace(p.candidate, writes=writes), p.cost_us) for writes in ports]
    return found


def _is_plain(port: Port) -> bool:
    return port.arrangement == Arrangement.PLAIN.value


def ablation(made: Problem) -> dict[str, dict[str, Any]]:
    """Return the cost of the best plan, and of the best one without each freedom, over the same candidates."""
    graph, priced = made.graph, made.priced

    def ours(candidates: Sequence[Priced]) -> dict[str, Any]:
        plan = solve(graph, candidates, time_limit_s=LIMIT_S)
        check_plan(graph, plan)
        return {"cost_us": plan.cost_us, "bound_us": plan.bound_us, "status": plan.status}

    return {
        "korch": ours(priced),
        "no layouts": ours(without_layouts(priced)),
        "no recomputation": scip(graph, priced, LIMIT_S, once=True),
        "one output": ours(with_single_outputs(priced)),
        "the paper's": ours(with_single_outputs(without_layouts(priced))),
        "greedy": {
            "cost_us": greedy(graph, [p for p in priced if math.isfinite(p.cost_us)]).cost_us,
            "bound_us": 0.0,
            "status": "feasible",
        },
    }


def ablations(
    names: Sequence[str], models: Path, bindings: Mapping[str, Bindings], threads: int
) -> Iterator[dict[str, Any]]:
    """Yield one entry for each model in the folder."""
    for name in names:
        path = models / f"{name}.onnx"
        if path.is_file():
            print(name, file=sys.stderr, flush=True)
            made = measured(path, bindings[name], threads)
            yield {
                "model": name,
                "candidates": len(made.priced),
                "distinct": made.distinct,
                "measured": made.measured,
                "rows": ablation(made),
            }


def main() -> None:
    """Run one part, or one case of the first one for its parent process."""
    sys.path.insert(0, str(ROOT / "models"))
    from fetch import catalogue

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("scale", "ablation", "solve"))
    parser.add_argument("--only", action="append", metavar="NAME", help="only this one; may be repeated")
    parser.add_argument("--models", type=Path, default=ROOT / "build" / "models", help="folder with the models")
    parser.add_argument("--threads", type=int, default=2, help="of the measurements to look for in the store (2)")
    parser.add_argument("--by", choices=("korch", "scip"), default="korch", help="the solver, for one case")
    chosen = parser.parse_args()
    work = ROOT / "build" / "bench" / "work"
    work.mkdir(parents=True, exist_ok=True)
    result: Any
    if chosen.part == "ablation":
        bindings = {name: bindings_of(entry) for name, entry in catalogue().items()}
        names = names_with_files(parser, chosen.only, bindings, chosen.models)
        result = list(ablations(names, chosen.models, bindings, chosen.threads))
    else:
        cases = _cases(parser, chosen, work)
        if chosen.part == "scale":
            result = list(scale([case.name for case in cases], chosen.models, work))
        else:
            path = source(cases[0], chosen.models, chosen.models if cases[0].layers else work)
            assert path is not None
            result = solve_one(cases[0], path, chosen.by)
    print(json.dumps(result, indent=1))


def _cases(parser: argparse.ArgumentParser, chosen: argparse.Namespace, work: Path) -> list[Case]:
    """Return the cases that were asked for; those that were named must have their model in the folder."""
    names = known_names(parser, chosen.only, (case.name for case in CASES), "case")
    cases = [case for case in CASES if case.name in names]
    if chosen.part == "solve" and len(cases) != 1:
        parser.error("solve takes one case: name it with --only")
    absent = [case.name for case in cases if chosen.only and source(case, chosen.models, work) is None]
    if absent:
        parser.error(f"not in {chosen.models}: {', '.join(absent)}; models/fetch.py makes the models")
    return cases


def bindings_of(entry: Mapping[str, Any]) -> Bindings:
    """Return the input shapes of a model of the catalogue."""
    return Bindings({}, {n: tuple(int(e) for e in text.split("x")) for n, text in entry["shapes"].items()})


if __name__ == "__main__":
    main()
