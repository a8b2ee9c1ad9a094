"""Optimise, verify and time every model of the catalogue that lies in a folder, as a user would.

Writes acceptance.json and acceptance.md after each model. Exits with 1 if a model is not optimised within the limit,
computes something else, or comes out slower than 0.98 of what it was. A model that korch leaves as it was passes; the
table says so, and why.

    python scripts/acceptance.py build/models -o build/acceptance
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODELS = Path(__file__).parents[1] / "models"
LEAST_RATIO = 0.98
GRACE_SECONDS = 30.0
"""For a command that was told to stop to remove what it made."""
DASH = "–"


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one model.

    Attributes:
        name: in the catalogue.
        exporter: torch's, `dynamo` or `script`; otherwise the model's source.
        nodes: of the input, those of subgraphs not counted.
        seconds: of `korch optimize`.
        kernels: generated ones in the output.
        changed: whether the output is another model than the input.
        ratio: how many times as fast as the input the output is, with its 95 % interval; None if it was not timed.
        verify: verdict of `korch verify`.
        failure: why the model does not pass; empty if it does.
        note: what korch said of its result.
    """

    name: str
    exporter: str
    nodes: int
    seconds: float = 0.0
    kernels: int = 0
    changed: bool = False
    ratio: tuple[float, float, float] | None = None
    verify: str = DASH
    failure: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """`budget`: of the search, as for korch; `seconds`: of the timing, likewise; `longest_s`: of one optimisation."""

    budget: str
    seconds: str
    longest_s: float


def main() -> None:
    """Read the command line, go through the models, write the tables."""
    sys.path.insert(0, str(MODELS))
    from fetch import catalogue

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the models are, as models/fetch.py names them")
    parser.add_argument("names", nargs="*", help="only these models")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/acceptance"), help="folder of the results")
    parser.add_argument("--budget", default="5m", help="budget of each search (5m)")
    parser.add_argument("--seconds", default="15s", help="time to spend on timing each result (15s)")
    parser.add_argument("--limit", type=float, default=10.0, help="minutes that one optimisation may take (10)")
    chosen = parser.parse_args()
    entries = catalogue()
    unknown = [name for name in chosen.names if not (chosen.folder / f"{name}.onnx").is_file() or name not in entries]
    if unknown:
        parser.error(f"not in the folder or not in the catalogue: {', '.join(unknown)}")
    present = [name for name in chosen.names or entries if (chosen.folder / f"{name}.onnx").is_file()]
    if not present:
        parser.error(f"{chosen.folder} holds no model of the catalogue; make models fetches them")
    limits = Limits(chosen.budget, chosen.seconds, 60.0 * chosen.limit)
    rows = []
    for place, name in enumerate(present):
        print(f"[{place + 1} of {len(present)}] {name}", file=sys.stderr, flush=True)
        rows.append(accept(name, chosen.folder / f"{name}.onnx", entries[name], chosen.output / name, limits))
        write(rows, chosen.output)
    absent = [name for name in entries if name not in present]
    print(table(rows))
    if absent and not chosen.names:
        print(f"Not there: {', '.join(absent)}.")
    sys.exit(int(any(row.failure for row in rows)))


def accept(name: str, model: Path, entry: Any, folder: Path, limits: Limits) -> Row:
    """Optimise a model into an empty `folder`, verify and time the result."""
    import onnx

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shapes = [word for pair in entry["shapes"].items() for word in ("--shape", "=".join(pair))]
    nodes = len(onnx.load(model, load_external_data=False).graph.node)
    row = Row(name, entry.get("exporter", entry["source"]), nodes)
    written = folder / model.name
    started = time.monotonic()
    found = korch("optimize", model, "-o", written, "--budget", limits.budget, *shapes, longest_s=limits.longest_s)
    row = dataclasses.replace(row, seconds=time.monotonic() - started)
    if isinstance(found, str):
        return dataclasses.replace(row, failure=f"optimize: {found}")
    row = dataclasses.replace(row, kernels=len(found["kernels"]), changed=found["changed"], note=found["reason"])
    row = _verified(row, model, written, shapes)
    if row.failure or not found["changed"]:
        return row
    return _timed(row, model, written, shapes, limits)


def _verified(row: Row, model: Path, written: Path, shapes: list[str]) -> Row:
    found = korch("verify", model, written, *shapes)
    if isinstance(found, str):
        return dataclasses.replace(row, failure=f"verify: {found}")
    passed = found["status"] == "passed"
    failure = "" if passed else "verify: outputs differ"
    return dataclasses.replace(row, verify="pass" if passed else "FAIL", failure=failure)


def _timed(row: Row, model: Path, written: Path, shapes: list[str], limits: Limits) -> Row:
    found = korch("profile", written, "--against", model, "--seconds", limits.seconds, *shapes)
    if isinstance(found, str):
        return dataclasses.replace(row, failure=f"profile: {found}")
    ratio = found["comparison"]["speed_ups"][0]["ratio"]
    measured = (ratio["value"], ratio["low"], ratio["high"])
    failure = "" if measured[0] >= LEAST_RATIO else f"slower than {LEAST_RATIO} of the input"
    return dataclasses.replace(row, ratio=measured, failure=failure)


def korch(*words: object, longest_s: float = 600.0) -> Any:
    """Run a command of korch and return its JSON document, or a sentence that says why there is none."""
    command = [sys.executable, "-m", "korch_cli", *map(str, words), "--format", "json", "--quiet"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, err = child.communicate(timeout=longest_s)
    except subprocess.TimeoutExpired:
        _stop(child)
        return f"took more than {longest_s / 60:g} minutes"
    try:
        return json.loads(out)
    except json.JSONDecodeError:
        lines = err.strip().splitlines() or ["it said nothing"]
        return f"exit code {child.returncode}: {lines[0]}"


def _stop(child: subprocess.Popen[str]) -> None:
    """Tell a command to stop; end it with all its children if it does not."""
    child.terminate()
    try:
        child.communicate(timeout=GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def write(rows: list[Row], folder: Path) -> None:
    """Write both forms of the result; a reader never sees half of one."""
    document = {"least_ratio": LEAST_RATIO, "models": [dataclasses.asdict(row) for row in rows]}
    for name, text in (("acceptance.json", json.dumps(document, indent=2)), ("acceptance.md", table(rows))):
        partial = folder / f"{name}.part"
        partial.write_text(text + "\n", encoding="utf-8")
        partial.replace(folder / name)


def table(rows: list[Row]) -> str:
    """Return the result in Markdown."""
    lines = [
        "| model | exporter | nodes | seconds | kernels | ratio | verify | result |",
        "| --- | --- | --: | --: | --: | --- | --- | --- |",
    ]
    for row in rows:
        ratio = f"{row.ratio[0]:.2f} ({row.ratio[1]:.2f} to {row.ratio[2]:.2f})" if row.ratio else DASH
        result = f"FAILED: {row.failure}" if row.failure else "optimized" if row.changed else f"unchanged: {row.note}"
        cells = [row.name, row.exporter, row.nodes, f"{row.seconds:.0f}", row.kernels, ratio, row.verify, result]
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    failed = sum(bool(row.failure) for row in rows)
    return "\n".join([*lines, "", f"{len(rows) - failed} of {len(rows)} models pass."])


if __name__ == "__main__":
    main()
