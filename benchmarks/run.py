"""Run the benchmarks and write their page.

    python benchmarks/run.py --quick      ten minutes: a few models and kernels
    python benchmarks/run.py              everything; hours

A run that is cut short goes on where it stopped if it is started again with the same code, versions, processor and
flags that can change a figure. With --journal FILE its figures so far lie in that file, which can be committed and
taken to another machine of the same kind; with --minutes the run ends by itself, and `--minutes 0` shows what there is.
The figures of a whole run go to benchmarks/results/<full|quick>.json, and a full run's page to docs/benchmarks.md;
every other page goes to build/bench/. The exit code is 1 if the machine did something else at the same time, and 3 if
the time was up before everything was measured; neither run is published.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orchestration
import page
from agenda import by_importance
from journal import Journal, differences, names_in
from naming import known_names, names_with_files
from parts import RUNTIMES, Plan, kernels, models, scale
from patterns import PATTERNS
from surroundings import QUIET, code, describe

ROOT = Path(__file__).parents[1]
SCHEMA = "korch.bench/2"
QUICK_MODELS = ("ppocr_rec", "ppocr_cls", "candy")


INCOMPLETE = 3
"""Exit code."""


def main() -> None:
    """Read the command line, run all parts, publish."""
    sys.path.insert(0, str(ROOT / "models"))
    from fetch import catalogue

    chosen = _arguments(catalogue())
    command = " ".join(["python", "benchmarks/run.py", *sys.argv[1:]])
    around = describe(chosen.threads, chosen.python)
    figures: dict[str, Any] = {
        "sittings": 3,
        "rounds": 2 if chosen.quick else 4,
        "block_s": 0.6 if chosen.quick else 1.0,
        "budget": "60s" if chosen.quick else chosen.budget,
        "threads": chosen.threads,
        "runtimes": sorted(chosen.runtimes),
        "ablation": not chosen.no_orchestration,
    }
    patterns = tuple(p for p in PATTERNS if p.quick or not chosen.quick)
    cases = orchestration.CASES[: 1 if chosen.quick else None]
    agenda = {
        "models": chosen.names if not chosen.no_models else (),
        "kernels": [pattern.name for pattern in patterns] if not chosen.no_kernels else (),
        "scale": [case.name for case in cases] if not chosen.no_orchestration else (),
    }
    journal = _journal(chosen, figures, around, agenda)
    plan = Plan(
        models=chosen.models,
        names=chosen.names,
        work=chosen.work.resolve(),
        journal=journal,
        pythons=chosen.python,
        patterns=patterns,
        **figures,
    )
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "command": command,
        "quick": chosen.quick,
        **{name: figures[name] for name in ("sittings", "rounds", "block_s", "budget")},
        "surroundings": around,
        "absent": chosen.absent,
        "models": list(models(plan)) if agenda["models"] else [],
        "kernels": list(kernels(plan)) if agenda["kernels"] else [],
        "scale": list(scale(plan, cases)) if agenda["scale"] else [],
    }
    entries = [entry for part in agenda for entry in document[part]]
    document["load"] = max((entry.get("load", 0.0) for entry in entries), default=0.0)
    document["loaded"] = document["load"] > QUIET
    document["left_out"] = journal.left_out
    sys.exit(_publish(document, chosen, journal))


def _journal(
    chosen: argparse.Namespace,
    figures: Mapping[str, Any],
    around: Mapping[str, Any],
    agenda: Mapping[str, Sequence[str]],
) -> Journal:
    """Return what the run has measured; end the process if the file that was named is of another run."""
    machine = {name: around[name] for name in ("processor", "processors", "compiler", "versions")}
    key = dict(figures) | machine | {"code": code()}
    path = chosen.journal or chosen.work.resolve() / "journal.jsonl"
    other = differences(path, key)
    if other and chosen.journal:
        print(
            f"{path} is of a run with other conditions: {'; '.join(other)}. Remove it to begin anew.", file=sys.stderr
        )
        sys.exit(2)
    origin = {"commit": around["commit"], "processor": around["processor_model"]}
    return Journal(path, key, agenda=agenda, minutes=chosen.minutes, **origin)


def _publish(document: dict[str, Any], chosen: argparse.Namespace, journal: Journal) -> int:
    """Write the figures and the page, where they belong; return the exit code."""
    kind = "quick" if document["quick"] else "full"
    left_out = document["left_out"]
    partial = bool(chosen.only or chosen.no_models or chosen.no_kernels or chosen.no_orchestration or left_out)
    whole = not document["loaded"] and not partial
    results = ROOT / "benchmarks" / "results" if whole else ROOT / "build" / "bench"
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{kind}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    written = page.write(document, ROOT / "docs" if whole and not document["quick"] else ROOT / "build" / "bench")
    print(written)
    if whole or not (left_out or chosen.journal):
        journal.close()
    if left_out:
        print(f"Not published: {len(left_out)} are not measured yet; run again to go on.", file=sys.stderr)
        return INCOMPLETE
    if document["loaded"]:
        print(
            f"Not published: {document['load']:.0%} of the machine was in use by others; stop them and run again.",
            file=sys.stderr,
        )
        return 1
    return 0


def _arguments(catalogue: Mapping[str, Mapping[str, Any]]) -> argparse.Namespace:
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
    parser.add_argument("--journal", type=Path, help="file with what the run has measured so far, to keep")
    parser.add_argument("--minutes", type=float, help="begin nothing new after so many; to be continued")
    parser.add_argument("--no-models", action="store_true", help="leave out whole models")
    parser.add_argument("--no-kernels", action="store_true", help="leave out kernels")
    parser.add_argument("--no-orchestration", action="store_true", help="leave out the choice of kernels by itself")
    chosen = parser.parse_args()
    chosen.runtimes = chosen.runtimes.split(",") if chosen.runtimes else ()
    known_names(parser, chosen.runtimes, RUNTIMES, "runtime")
    known_names(parser, [name for name, _ in chosen.python], RUNTIMES, "runtime")
    chosen.python = dict(chosen.python)
    known = by_importance(catalogue)
    if chosen.no_models:
        chosen.names, chosen.absent = known_names(parser, chosen.only, known, "model"), []
        return chosen
    # Small graphs are for tests; they are measured if they are named.
    every = [name for name in known if chosen.only or catalogue[name]["source"] != "text"]
    if chosen.quick and not chosen.only:
        every = list(QUICK_MODELS)
    measured = names_in(chosen.journal, "models") if chosen.journal else ()
    chosen.names = names_with_files(parser, chosen.only, every, chosen.models, measured)
    chosen.absent = [name for name in every if name not in chosen.names] if not chosen.only else []
    return chosen


def _interpreter(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH")
    return name, path


if __name__ == "__main__":
    main()
