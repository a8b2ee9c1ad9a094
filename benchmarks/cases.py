"""The case studies of the paper as graphs: what was chosen for each, and how fast that is.

    python benchmarks/cases.py [--only NAME] [--budget 60s]

prints JSON: for each graph and batch the generated kernels, speed as a ratio to ONNX Runtime on the input, and what the
best plan would cost with the graph as written, as rewritten, and with both as alternatives (predicted).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from contest import Contestant, hold
from korch_cli.core.model import Bindings
from korch_cli.load import load
from korch_cli.verify import draw_inputs
from naming import part_names

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "models"))
SITTINGS = 2


@dataclass(frozen=True, slots=True)
class Case:
    """A graph of models/graphs at one batch."""

    graph: str
    batch: int

    @property
    def name(self) -> str:
        """The name that it is chosen by."""
        return f"{self.graph}, batch {self.batch}"


CASES = (
    Case("segformer_attention", 1),
    Case("efficientvit_attention", 1),
    Case("candy_normalization", 1),
    Case("segformer_decode", 1),
    Case("segformer_decode", 16),
)


def main() -> None:
    """Optimize and time the cases."""
    chosen = _arguments()
    found = {case.name: _studied(case, chosen) for case in CASES if case.name in chosen.names}
    print(json.dumps(found, indent=1))


def _studied(case: Case, chosen: argparse.Namespace) -> dict[str, Any]:
    import textual

    with tempfile.TemporaryDirectory(prefix="case-") as scratch:
        source, best, report = (Path(scratch) / name for name in ("source.onnx", "best.onnx", "report.json"))
        onnx.save(textual.read(case.graph), source)
        print(case.name, file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "korch_cli", "optimize", str(source), "-o", str(best), "--report", str(report)]
        command += ["--dim", f"N={case.batch}", "--budget", chosen.budget, "--threads", str(chosen.threads), "-q"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        figures = findings(json.loads(report.read_text(encoding="utf-8")))
        return figures | {"speed": _speed(case, source, best, chosen)}


def findings(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a report of `optimize` says of the choice: kernels, and predicted microseconds of each plan."""
    search = report["search"]
    return {
        "kernels": [{key: kernel[key] for key in ("nodes", "schedule", "uses")} for kernel in report["kernels"]],
        "predicted_us": {"ONNX Runtime": search["vendor_us"], "together": search["plan_us"], **search["alone_us"]},
        "reason": report["reason"],
    }


def _speed(case: Case, source: Path, best: Path, chosen: argparse.Namespace) -> Any:
    model = load(source, Bindings({"N": case.batch}, {}))
    feeds = draw_inputs(source, [(name, model.types[name]) for name in model.inputs], seed=0, runs=1, given={})[0]
    runtime = {"model": str(source)}
    library = best.with_suffix(".korch.so")
    ours = {"model": str(best)} | ({"library": str(library)} if library.exists() else {})
    standings = hold(
        [Contestant("ONNX Runtime", "OnnxRuntime", runtime), Contestant("korch", "OnnxRuntime", ours)],
        Contestant("reference", "OnnxRuntime", runtime | {"optimize": False}),
        feeds,
        threads=chosen.threads,
        sittings=SITTINGS,
        rounds=chosen.rounds,
    )
    row = standings[1].row(standings[0])
    return row.get("ratio", {key: row.get(key) for key in ("status", "sentence")})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="part of the names of the cases to study")
    parser.add_argument("--budget", default="60s", help="time of each search (60s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of each model (2)")
    parser.add_argument("--rounds", type=int, default=5, help="blocks in each sitting (5)")
    chosen = parser.parse_args()
    chosen.names = part_names(parser, chosen.only, (case.name for case in CASES), "case")
    return chosen


if __name__ == "__main__":
    main()
