"""One program over both ways to write a model, against one over each of them alone.

    python benchmarks/joint.py --models build/models -o benchmarks/results/joint.json [--only NAME] [--budget 2m]

For each model: the plan over both ways that korch would deliver, the best one that keeps to the model as it is written,
and the best one that rewrites it first and then chooses kernels. Of each, the sum of its prices, and how fast the model
is that it makes, as a ratio to ONNX Runtime on the input; all in one contest. "least_us" is the sum of the best plan
over both ways. The file is written after each model, and what is in it already is not measured again. A plan that does
the same work as another one shares its row.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import contest
from korch_cli.cli.values import Duration
from korch_cli.core.kernel import CandidateKind
from korch_cli.core.plan import Plan
from korch_cli.core.progress import Silent
from korch_cli.measure import ProfileStore
from korch_cli.pipeline.choice import BEST, Contestant, choose
from korch_cli.pipeline.clock import Clock
from korch_cli.pipeline.delivery import Built, Delivery
from korch_cli.pipeline.optimize import find_candidates
from korch_cli.pipeline.prepare import prepare
from korch_cli.pipeline.settings import Settings
from korch_cli.pipeline.target import find_tools, make_target
from korch_cli.pipeline.ways import find_ways, same_work
from naming import names_with_files
from orchestration import bindings_of
from parts import draw
from surroundings import QUIET, describe, load

ROOT = Path(__file__).parents[1]
TOGETHER = "together"
SITTINGS = 3


@dataclass(frozen=True, slots=True)
class Found:
    """The plans of one model by name.

    Attributes:
        least_us: what the best plan costs.
        plans: the one to deliver, and the best one of each way to write the model.
        made: for each plan that does other work than those before it, the model, and its library if it has one.
    """

    least_us: float
    plans: Mapping[str, Plan]
    made: Mapping[str, tuple[Path, Path | None]]


def first_alike(plans: Mapping[str, Plan]) -> dict[str, str]:
    """Return for each plan the first one that does the same work."""
    return {name: next(first for first in plans if same_work(plans[first], plan)) for name, plan in plans.items()}


def find(settings: Settings, folder: Path) -> Found | None:
    """Find and build the plans of a model in folders below `folder`; None where there is only one way to write it."""
    prepared = prepare(settings, folder)
    ways = find_ways(prepared.unrolled.flat, prepared.rewritten)
    if len(ways.members) == 1:
        return None
    (folder / "store").mkdir()
    with closing(ProfileStore(folder / "store")) as store:
        target = make_target(settings, find_tools(settings), store, folder, ways.model)
        search = find_candidates(settings, ways, prepared, target, Clock(), Silent())
        result = search.run()

        def built(name: str, plan: Plan) -> tuple[Delivery, Built]:
            staged = folder / name
            staged.mkdir()
            delivery = Delivery(settings, prepared, ways, search.laboratory, staged, Silent())
            return delivery, delivery.build(plan)

        delivery, whole = built(TOGETHER, result.plan)
        best, _ = choose(search, Contestant(BEST, whole, ()), delivery, Clock())
        plans = {TOGETHER: best.built.plan, **search.alone(ways, result)}
        made = {TOGETHER: (best.built.model, best.built.library)}
        for name in dict.fromkeys(first_alike(plans).values()):
            if name != TOGETHER:
                _, other = built(name, plans[name])
                made[name] = other.model, other.library
    return Found(result.plan.cost_us, plans, made)


def studied(path: Path, shapes: Mapping[str, str], chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one model; a reason alone where there is only one way to write it."""
    with tempfile.TemporaryDirectory(prefix="joint-") as scratch:
        folder = Path(scratch)
        output = folder / "out" / path.name
        output.parent.mkdir()
        bindings = bindings_of({"shapes": shapes})
        settings = Settings(path, output, bindings, threads=chosen.threads, budget_s=chosen.budget)
        found = find(settings, folder)
        if found is None:
            return {"reason": "No rule applies: there is one way to write it."}
        extents = {name: [int(e) for e in text.split("x")] for name, text in shapes.items()}
        return {"least_us": round(found.least_us, 2), "rows": _rows(path, found, extents, chosen)}


def _rows(
    path: Path, found: Found, shapes: Mapping[str, Sequence[int]], chosen: argparse.Namespace
) -> list[dict[str, Any]]:
    """Hold the contest; return a row for each plan."""
    contestants = [contest.Contestant("ONNX Runtime", "OnnxRuntime", {"model": str(path)})]
    for name, (model, library) in found.made.items():
        options = {"model": str(model)} | ({"library": str(library)} if library is not None else {})
        contestants.append(contest.Contestant(name, "OnnxRuntime", options))
    reference = contest.Contestant("reference", "OnnxRuntime", {"model": str(path), "optimize": False})
    standings = contest.hold(
        contestants, reference, draw(path, shapes), threads=chosen.threads, sittings=SITTINGS, rounds=chosen.rounds
    )
    measured = {standing.name: standing.row(standings[0]) for standing in standings}
    rows = []
    for name, first in first_alike(found.plans).items():
        plan, row = found.plans[name], measured[first]
        kernels = sum(p.candidate.kind is CandidateKind.GENERATED for p in plan.kernels)
        told = {key: row[key] for key in ("status", "sentence", "median_us", "ratio") if key in row}
        rows.append({"plan": name, "like": first, "predicted_us": round(plan.cost_us, 2), "kernels": kernels} | told)
    return rows


def main() -> None:
    """Study the models that are not in the file yet."""
    sys.path.insert(0, str(ROOT / "models"))
    from fetch import catalogue

    entries = {name: entry for name, entry in catalogue().items() if entry["source"] != "text"}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=ROOT / "build" / "models", help="folder with the models")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this model; may be repeated")
    parser.add_argument("-o", "--output", type=Path, required=True, help="file for the figures")
    parser.add_argument("--budget", type=_seconds, default="2m", help="time of each search (2m)")
    parser.add_argument("--threads", type=int, default=2, help="threads of each model (2)")
    parser.add_argument("--rounds", type=int, default=4, help="blocks in each sitting (4)")
    chosen = parser.parse_args()
    document: dict[str, Any] = {"surroundings": describe(chosen.threads, {}), "models": {}}
    if chosen.output.is_file():
        document = json.loads(chosen.output.read_text(encoding="utf-8"))
    for name in names_with_files(parser, chosen.only, entries, chosen.models, document["models"]):
        if name in document["models"]:
            continue
        print(name, file=sys.stderr, flush=True)
        busy = load()
        figures = studied(chosen.models / f"{name}.onnx", entries[name]["shapes"], chosen)
        if max(busy, load()) > QUIET:
            print("left out: the machine did something else at the same time", file=sys.stderr)
            continue
        document["models"][name] = figures
        chosen.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _seconds(text: str) -> float:
    return float(Duration().convert(text, None, None))


if __name__ == "__main__":
    main()
