"""The parts of a benchmark run: whole models, with search, sizes and memory; kernels; the choice of kernels."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import orchestration
from child import Child, ChildFailure
from contest import Contestant, Standing, hold
from journal import Entry, Journal
from patterns import PATTERNS, Pattern
from surroundings import QUIET, load

HERE = Path(__file__).parent
MODELS = HERE.parent / "models"
BASELINE = "ORT"

RUNTIMES = ("openvino", "torch", "tvm")
"""What korch and ONNX Runtime can be compared with."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does.

    Attributes:
        models: folder with the models, named as in the catalogue.
        names: which of them.
        work: folder for what korch writes, with a store for each model.
        journal: what the run has measured already.
        sittings: how often every contestant starts anew.
        rounds: blocks of each contestant in a sitting.
        block_s: seconds of a block.
        budget: of each search, as for korch.
        threads: of every runtime.
        pythons: for runtimes that are installed elsewhere, the interpreter: "torch", "openvino", "tvm".
        runtimes: which of the others take part.
        ablation: whether each model's choice of kernels is solved without each of its freedoms, too.
        patterns: which kernels.
    """

    models: Path
    names: Sequence[str]
    work: Path
    journal: Journal
    sittings: int
    rounds: int
    block_s: float
    budget: str
    threads: int
    pythons: Mapping[str, str]
    runtimes: Sequence[str]
    ablation: bool
    patterns: Sequence[Pattern] = PATTERNS


def models(plan: Plan) -> Iterator[dict[str, Any]]:
    """Optimise every model and run it against the other runtimes; yield one entry for each."""
    sys.path.insert(0, str(MODELS))
    from fetch import catalogue

    entries = catalogue()
    for name in plan.names:
        measure = partial(_model, plan, name, plan.models / f"{name}.onnx", entries[name])
        yield from _entered(plan, "models", name, {"model": name}, measure)


def _entered(plan: Plan, part: str, name: str, title: Entry, measure: Callable[[], Entry]) -> Iterator[Entry]:
    """Yield the entry, with the reason where there are no figures; nothing if there was no time to measure it."""

    def measured() -> Entry:
        try:
            return measure()
        except (ChildFailure, subprocess.CalledProcessError) as failure:
            return title | {"failure": str(failure)}

    entry = plan.journal.once(part, name, measured, _worth_keeping)
    if entry is not None:
        yield entry


def _worth_keeping(entry: Mapping[str, Any]) -> bool:
    return "failure" not in entry and entry.get("load", 0.0) <= QUIET


def store_of(work: Path, name: str) -> Path:
    """Return the folder of the store that the searches for a model use; it is no other's, so that the first is cold."""
    return work / name / "store"


def _model(plan: Plan, name: str, source: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    shapes = {n: [int(e) for e in text.split("x")] for n, text in entry["shapes"].items()}
    flags = [word for pair in entry["shapes"].items() for word in ("--shape", "=".join(pair))]
    output = plan.work / name / source.name
    shutil.rmtree(output.parent, ignore_errors=True)
    output.parent.mkdir(parents=True)
    search = partial(optimize, source, output, [*flags, "--budget", plan.budget], plan.threads)
    cold = search(store_of(plan.work, name))
    if isinstance(cold, str):
        return {"model": name, "title": entry["title"], "failure": cold}
    warm = search(store_of(plan.work, name))
    feeds = draw(source, shapes)
    contestants = _contestants(plan, source, output, entry)
    busy = load()
    standings = hold(
        contestants,
        Contestant("reference", "OnnxRuntime", {"model": str(source), "optimize": False}),
        feeds,
        threads=plan.threads,
        sittings=plan.sittings,
        rounds=plan.rounds,
        block_s=plan.block_s,
    )
    return {
        "model": name,
        "title": entry["title"],
        "shapes": entry["shapes"],
        "load": round(max(busy, load()), 3),
        "rows": _rows(standings),
        "ideal": ideal(source, feeds, plan.threads),
        "search": {"first": _search(cold), "second": _search(warm) if not isinstance(warm, str) else None},
        "size": _sizes(source, output, standings),
    } | ({"ablation": _ablation(plan, name)} if plan.ablation else {})


def _ablation(plan: Plan, name: str) -> dict[str, Any]:
    """Return the ablation of a model, over what its own searches have measured."""
    command = [sys.executable, str(HERE / "orchestration.py"), "ablation", "--only", name]
    done = subprocess.run(
        [*command, "--models", str(plan.models), "--threads", str(plan.threads)],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"KORCH_CACHE_DIR": str(store_of(plan.work, name))},
    )
    if done.returncode:
        return {"model": name, "failure": (done.stderr.strip().splitlines() or ["it said nothing"])[-1]}
    (entry,) = json.loads(done.stdout)
    return dict(entry)


def _contestants(plan: Plan, source: Path, output: Path, entry: Mapping[str, Any]) -> list[Contestant]:
    library = output.with_suffix(".korch.so")
    mine: dict[str, Any] = {"model": str(output)}
    if library.is_file():
        mine["library"] = str(library)
    found = [
        Contestant(BASELINE, "OnnxRuntime", {"model": str(source)}),
        Contestant("korch", "OnnxRuntime", mine),
    ]
    here = sys.executable
    if "openvino" in plan.runtimes:
        found.append(Contestant("OpenVINO", "OpenVino", {"model": str(source)}, plan.pythons.get("openvino", here)))
    if "torch" in plan.runtimes and entry["source"] == "export":
        shape = [int(extent) for extent in entry["image"].split("x")]
        options: dict[str, Any] = {"network": entry["network"], "shape": shape, "models": str(MODELS)}
        found.append(Contestant("torch.compile", "Inductor", options, plan.pythons.get("torch", here)))
    if "tvm" in plan.runtimes:
        found.append(Contestant("TVM", "Tvm", {"model": str(source)}, plan.pythons.get("tvm", here)))
    return found


def kernels(plan: Plan) -> Iterator[dict[str, Any]]:
    """Run every pattern as one generated kernel, as ONNX Runtime's nodes, with torch, and as a copy of its bytes."""
    folder = plan.work / "kernels"
    folder.mkdir(parents=True, exist_ok=True)
    copier = build_copy(folder)
    for number, pattern in enumerate(PATTERNS):
        if pattern in plan.patterns:
            measure = partial(_kernel, plan, pattern, number, folder, copier)
            yield from _entered(plan, "kernels", pattern.name, {"pattern": pattern.name}, measure)


def scale(plan: Plan, cases: Sequence[orchestration.Case]) -> Iterator[dict[str, Any]]:
    """Solve each case with korch's solver and with SCIP."""
    for case in cases:
        measure = partial(_scale, plan, case)
        yield from _entered(plan, "scale", case.name, {"model": case.name}, measure)


def _scale(plan: Plan, case: orchestration.Case) -> Entry:
    busy = load()
    found = list(orchestration.scale([case.name], plan.models, plan.work))
    if not found:
        return {"model": case.name, "failure": "Its model is not there."}
    return found[0] | {"load": round(max(busy, load()), 3)}


def _kernel(plan: Plan, pattern: Pattern, number: int, folder: Path, copier: Path) -> dict[str, Any]:
    source, output = folder / f"{number}.onnx", folder / f"{number}.fused.onnx"
    pattern.write(source)
    done = optimize(source, output, ["--force-fusion"], plan.threads, store_of(plan.work, "kernels"))
    if isinstance(done, str):
        return {"pattern": pattern.name, "failure": done}
    mine: dict[str, Any] = {"model": str(output)}
    if output.with_suffix(".korch.so").is_file():
        mine["library"] = str(output.with_suffix(".korch.so"))
    contestants = [
        Contestant(BASELINE, "OnnxRuntime", {"model": str(source)}),
        Contestant("korch", "OnnxRuntime", mine),
    ]
    if "torch" in plan.runtimes:
        options = {"number": number, "patterns": str(HERE)}
        contestants.append(
            Contestant("torch.compile", "InductorPattern", options, plan.pythons.get("torch", sys.executable))
        )
    contest = partial(hold, threads=plan.threads, sittings=plan.sittings, rounds=plan.rounds, block_s=plan.block_s / 3)
    reference = Contestant("reference", "OnnxRuntime", {"model": str(source), "optimize": False})
    busy = load()
    standings = contest(contestants, reference, pattern.feeds())
    copied = {"library": str(copier), "copied": pattern.moved_bytes // 2}
    copy = contest([Contestant("copy", "Copy", copied)], Contestant("reference", "Copy", copied), {})
    rows = _rows([*standings, *copy])
    return {"pattern": pattern.name, "bytes": pattern.moved_bytes, "load": round(busy, 3), "rows": rows}


def optimize(source: Path, output: Path, flags: Sequence[str], threads: int, store: Path) -> dict[str, Any] | str:
    """Run `korch optimize`; return its document with the seconds it took, or what it said of its failure."""
    command = [sys.executable, "-m", "korch_cli", "optimize", str(source), "-o", str(output), *flags]
    started = time.monotonic()
    done = subprocess.run(
        [*command, "--threads", str(threads), "--format", "json", "--quiet"],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"KORCH_CACHE_DIR": str(store)},
    )
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["it said nothing"])[0]
    document: dict[str, Any] = json.loads(done.stdout)
    return document | {"wall_s": round(time.monotonic() - started, 1)}


def ideal(source: Path, feeds: Mapping[str, np.ndarray[Any, Any]], threads: int) -> dict[str, float]:
    """Return the share of ONNX Runtime's time outside products, and the speed-up if all of that fell to nothing."""
    from runtimes import LINEAR

    child = Child(sys.executable)
    inputs = source.parent / f".{source.stem}.inputs.npz"
    try:
        np.savez(inputs, **feeds)  # type: ignore[arg-type]
        options = {"model": str(source)}
        request = {"do": "open", "runtime": "OnnxRuntime", "options": options, "inputs": str(inputs)}
        child.ask(request | {"threads": threads}, 600.0)
        shares = child.ask({"do": "profile"}, 600.0)["shares"]
    finally:
        child.end()
        inputs.unlink(missing_ok=True)
    linear = sum(share for name, share in shares.items() if any(part in name for part in LINEAR))
    return {"other_share": round(1 - linear, 4), "speed_up": round(1 / max(linear, 1e-3), 3)}


def draw(source: Path, shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray[Any, Any]]:
    """Return random inputs that the model can make sense of."""
    from korch_cli.core.model import Bindings
    from korch_cli.verify import bind_inputs, draw_inputs

    inputs = bind_inputs(source, Bindings({}, {name: tuple(shape) for name, shape in shapes.items()}))
    return dict(draw_inputs(source, inputs, seed=0, runs=1)[0])


def build_copy(folder: Path) -> Path:
    """Compile the yardstick of the kernels: a copy with threads."""
    library = folder / "copy.so"
    command = ["g++", "-O3", "-march=native", "-shared", "-fPIC", "-pthread", str(HERE / "copy.cpp")]
    subprocess.run([*command, "-o", str(library)], check=True)
    return library


def _rows(standings: Sequence[Standing]) -> list[dict[str, Any]]:
    baseline = standings[0]
    return [standing.row(baseline) for standing in standings]


def _search(document: Mapping[str, Any]) -> dict[str, Any]:
    search = document["search"]
    kept = ("primitives", "candidates", "distinct", "measured", "from_store", "rounds", "gap", "solve_seconds")
    figures = {name: search[name] for name in kept}
    told = {name: document[name] for name in ("changed", "prediction")}
    return {"seconds": document["wall_s"]} | told | figures


def _sizes(source: Path, output: Path, standings: Sequence[Standing]) -> dict[str, Any]:
    library = output.with_suffix(".korch.so")
    by_name = {standing.name: standing for standing in standings}
    return {
        "input_bytes": source.stat().st_size,
        "output_bytes": output.stat().st_size,
        "library_bytes": library.stat().st_size if library.is_file() else 0,
        **{
            f"{name.lower()}_{figure}": round(getattr(by_name[name], figure), 3)
            for name in (BASELINE, "korch")
            for figure in ("open_s", "peak_mb")
        },
    }
