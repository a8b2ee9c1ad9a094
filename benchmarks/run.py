"""Run the benchmarks and write their page.

    python benchmarks/run.py --quick      ten minutes: a few models and kernels
    python benchmarks/run.py              everything; hours

A run that was interrupted goes on where it stopped if it is started again with the same code and the same flags.
The figures go to benchmarks/results/<full|quick>.json, and a full run's page to docs/benchmarks.md. A run on a machine
that does something else at the same time is not published: its page goes to build/bench/, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orchestration
import page
from journal import Journal
from naming import known_names, names_with_files
from parts import RUNTIMES, Plan, kernels, models, store_of
from patterns import PATTERNS
from surroundings import QUIET, describe, load

ROOT = Path(__file__).parents[1]
SCHEMA = "korch.bench/1"
QUICK_MODELS = ("ppocr_rec", "ppocr_cls", "candy")


def main() -> None:
    """Read the command line, run all parts, publish."""
    sys.path.insert(0, str(ROOT / "models"))
    from fetch import catalogue

    chosen = _arguments(tuple(catalogue()))
    pythons = chosen.python
    around = describe(chosen.threads, tuple(pythons.values()))
    command = " ".join(["python", "benchmarks/run.py", *sys.argv[1:]])
    plan = Plan(
        models=chosen.models,
        names=chosen.names,
        work=chosen.work.resolve(),
        journal=_journal(chosen.work.resolve(), command, around),
        sittings=3,
        rounds=2 if chosen.quick else 4,
        block_s=0.6 if chosen.quick else 1.0,
        budget="60s" if chosen.quick else chosen.budget,
        threads=chosen.threads,
        pythons=pythons,
        runtimes=chosen.runtimes,
        patterns=tuple(p for p in PATTERNS if p.quick or not chosen.quick),
    )
    at_first = load(2.0)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "command": command,
        "quick": chosen.quick,
        "sittings": plan.sittings,
        "rounds": plan.rounds,
        "block_s": plan.block_s,
        "surroundings": around,
        "models": list(models(plan)) if not chosen.no_models else [],
        "kernels": list(kernels(plan)) if not chosen.no_kernels else [],
        "scale": [],
        "ablation": [],
    }
    if not chosen.no_orchestration:
        cases = [orchestration.CASES[0].name] if chosen.quick else None
        document["scale"] = list(orchestration.scale(cases, plan.models, plan.work))
        document["ablation"] = list(_ablations(plan, catalogue()))
    loads = [entry.get("load", 0.0) for part in ("models", "kernels") for entry in document[part]]
    document["load"] = round(max([at_first, *loads, load(2.0)]), 3)
    document["loaded"] = document["load"] > QUIET
    plan.journal.close()
    sys.exit(_publish(document, chosen))


def _journal(work: Path, command: str, around: dict[str, Any]) -> Journal:
    """Return the notes of an interrupted run; none where changes are not committed, for they may be others."""
    path = work / "journal.jsonl"
    if around["commit"].endswith("-dirty"):
        path.unlink(missing_ok=True)
    return Journal(path, {"command": command, "commit": around["commit"], "versions": around["versions"]})


def _ablations(plan: Plan, entries: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the ablation of each model, over what its own searches have measured."""
    for name in plan.names:
        os.environ["KORCH_CACHE_DIR"] = str(store_of(plan.work, name))
        bindings = {name: orchestration.bindings_of(entries[name])}
        yield from orchestration.ablations([name], plan.models, bindings, plan.threads)


def _publish(document: dict[str, Any], chosen: argparse.Namespace) -> int:
    kind = "quick" if document["quick"] else "full"
    partial = bool(chosen.only or chosen.no_models or chosen.no_kernels or chosen.no_orchestration)
    draft = document["loaded"] or document["quick"] or partial
    results = ROOT / "build" / "bench" if document["loaded"] or partial else ROOT / "benchmarks" / "results"
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{kind}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    written = page.write(document, ROOT / "build" / "bench" if draft else ROOT / "docs")
    print(written)
    if document["loaded"]:
        print(
            f"Not published: {document['load']:.0%} of the machine was in use by others; stop them and run again.",
            file=sys.stderr,
        )
        return 1
    return 0


def _arguments(known: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few models and kernels, in ten minutes")
    parser.add_argument("--models", type=Path, default=ROOT / "build" / "models", help="folder with the models")
    parser.add_argument("--only", action="append", help="only this model; may be repeated")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "bench" / "work", help="folder for outputs")
    parser.add_argument("--budget", default="5m", help="budget of each search (5m)")
    parser.add_argument("--threads", type=int, default=2, help="of every runtime (2)")
    parser.add_argument("--runtimes", default="openvino,torch", help="to compare with (openvino,torch); also tvm")
    parser.add_argument(
        "--python",
        action="append",
        type=_interpreter,
        default=[],
        metavar="NAME=PATH",
        help="interpreter that has a runtime's packages",
    )
    parser.add_argument("--no-models", action="store_true", help="leave out whole models")
    parser.add_argument("--no-kernels", action="store_true", help="leave out kernels")
    parser.add_argument("--no-orchestration", action="store_true", help="leave out the choice of kernels by itself")
    chosen = parser.parse_args()
    chosen.runtimes = chosen.runtimes.split(",") if chosen.runtimes else ()
    known_names(parser, chosen.runtimes, RUNTIMES, "runtime")
    known_names(parser, [name for name, _ in chosen.python], RUNTIMES, "runtime")
    chosen.python = dict(chosen.python)
    if chosen.no_models and chosen.no_orchestration:
        chosen.names = known_names(parser, chosen.only, known, "model")
    else:
        every = QUICK_MODELS if chosen.quick and not chosen.only else known
        chosen.names = names_with_files(parser, chosen.only, every, chosen.models)
    return chosen


def _interpreter(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH")
    return name, path


if __name__ == "__main__":
    main()
