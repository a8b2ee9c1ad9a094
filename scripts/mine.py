"""Apply every rule of the algebra alone to every model of a folder, and time what ONNX Runtime makes of the result.

Writes mining.json and mining.md after each model: for each rule that applies, how often, and how many times as fast as
the input the model is then; for all rules together the same, and, with --without, for all rules but one. A rule wins
on a model if its whole 95 % interval is above 1.

    python scripts/mine.py build/models -o build/mining

With --by-cpu, figures that a busy machine disturbs less: the processor time of one thread, two models alternating run
by run in this process. The model that all rules leave is compared with the input, with all rules but one, and with the
same model again, which shows how far a figure can be from the truth. Each figure is the mean of the medians of four
sittings with sessions of their own; instead of an interval there are the lowest and the highest of the four.

With --by-node, the nodes of ONNX Runtime's profile: those that only the model all rules leave has, and those that only
the input, or the model of all rules but one, has; both run in turns on one thread. How long those that both have take
in one and in the other is the difference in pace. There is no mining.md then.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from korch_cli.algebra import default_rules, simplify
from korch_cli.algebra.rule import Rule
from korch_cli.core.model import Bindings, Model
from korch_cli.emit import save_model
from korch_cli.load import load
from korch_cli.verify import draw_inputs

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "models"), str(ROOT / "benchmarks")]
ALL = "all rules"
AGAIN = "all rules again"
INPUT = "input"
DASH = "–"
_FEWEST_PAIRS = 4
_PROVIDER = "CPUExecutionProvider"
_SITTINGS = 4


def main() -> None:
    """Mine the models that are there."""
    from fetch import catalogue

    chosen = _arguments()
    entries = catalogue()
    chosen.output.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {}
    for name in chosen.only or entries:
        path = chosen.folder / f"{name}.onnx"
        if not path.exists():
            continue
        print(name, flush=True)
        found[name] = _mine(path, entries[name], chosen)
        (chosen.output / "mining.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        if not chosen.by_node:
            table = page(found, by_cpu=chosen.by_cpu > 0)
            (chosen.output / "mining.md").write_text(table, encoding="utf-8")


def _mine(path: Path, entry: Mapping[str, Any], chosen: argparse.Namespace) -> dict[str, Any]:
    from contest import Contestant, hold

    shapes = {name: tuple(map(int, text.split("x"))) for name, text in entry["shapes"].items()}
    model = load(path, Bindings({}, shapes))
    with tempfile.TemporaryDirectory(prefix="mining-") as scratch:
        folder = Path(scratch)
        source = folder / "source.onnx"
        save_model(model.proto, path.parent, source)
        feeds = draw_inputs(source, [(name, model.types[name]) for name in model.inputs], seed=0, runs=1, given={})[0]
        variants = list(_variants(model, path, folder, without=chosen.without or chosen.by_cpu or chosen.by_node))
        if not variants:
            return {}
        if chosen.by_cpu:
            return _by_cpu(source, variants, feeds, chosen.by_cpu)
        if chosen.by_node:
            return _by_node(source, variants, feeds, chosen.by_node)
        runtime = {"model": str(source)}
        contestants = [Contestant(INPUT, "OnnxRuntime", runtime)]
        contestants += [Contestant(name, "OnnxRuntime", {"model": str(file)}) for name, file, _ in variants]
        reference = Contestant("reference", "OnnxRuntime", runtime | {"optimize": False})
        standings = hold(
            contestants,
            reference,
            feeds,
            threads=chosen.threads,
            sittings=2,
            rounds=chosen.rounds,
            block_s=chosen.block,
        )
    rows = {standing.name: standing.row(standings[0]) for standing in standings}
    for name, _, count in variants:
        rows[name]["applied"] = count
    for row in rows.values():
        row.pop("samples_us", None)
    return rows


def _by_cpu(
    source: Path, variants: Sequence[tuple[str, Path, int]], feeds: Mapping[str, Any], seconds: float
) -> dict[str, Any]:
    """Return how many times as long each model without something takes as the one that all rules leave."""
    [(whole, applied)] = [(file, count) for name, file, count in variants if name == ALL]
    pairs = [(INPUT, source, 0), (AGAIN, whole, applied)]
    pairs += [(name, file, count) for name, file, count in variants if name.startswith("without ")]
    rows: dict[str, Any] = {}
    for name, other, count in pairs:
        sittings = [_ratios(other, whole, feeds, seconds, swapped=i % 2 > 0) for i in range(_SITTINGS)]
        middles = [statistics.median(ratios) for ratios in sittings]
        ratio = {"value": statistics.fmean(middles), "low": min(middles), "high": max(middles)}
        rows[name] = {"ratio": ratio, "pairs": sum(map(len, sittings)), "applied": count}
        print(f"  {name}: {ratio['value']:.3f}, {ratio['low']:.3f} to {ratio['high']:.3f}", flush=True)
    return rows


def _ratios(slower: Path, faster: Path, feeds: Mapping[str, Any], seconds: float, *, swapped: bool) -> list[float]:
    """Return how many times as much processor time the first model took as the second, run after run.

    Where a session's weights lie in memory makes up to 4 %, so that it matters which one was opened first.
    """
    options = _single_threaded()
    order = (1, 0) if swapped else (0, 1)
    sessions = {i: onnxruntime.InferenceSession(str((slower, faster)[i]), options, [_PROVIDER]) for i in order}
    end = time.thread_time() + seconds
    found: list[float] = []
    while time.thread_time() < end or len(found) < _FEWEST_PAIRS:
        times = [0, 0]
        for i in (0, 1) if len(found) % 2 else (1, 0):
            start = time.thread_time_ns()
            sessions[i].run(None, dict(feeds))
            times[i] = time.thread_time_ns() - start
        found.append(times[0] / times[1])
    return found[1:]


def _by_node(
    source: Path, variants: Sequence[tuple[str, Path, int]], feeds: Mapping[str, Any], runs: int
) -> dict[str, Any]:
    """Return the microseconds of the nodes that only the model all rules leave has, and of those only others have."""
    [whole] = [file for name, file, _ in variants if name == ALL]
    others = [(INPUT, source), *((name, file) for name, file, _ in variants if name.startswith("without "))]
    rows: dict[str, Any] = {}
    for name, other in others:
        one, two = _profiled((other, whole), feeds, runs)
        common = one.keys() & two.keys()
        rows[name] = {
            "own_us": _by_operator(one, common),
            "own_of_all_rules_us": _by_operator(two, common),
            "all_us": round(sum(one.values()), 1),
            "all_of_all_rules_us": round(sum(two.values()), 1),
            "pace": round(sum(one[key] for key in common) / max(sum(two[key] for key in common), 1e-9), 3),
        }
        print(f"  {name}: {json.dumps(rows[name])}", flush=True)
    return rows


def _profiled(models: Sequence[Path], feeds: Mapping[str, Any], runs: int) -> list[dict[tuple[str, str], float]]:
    """Return the lower fifth of each node's microseconds, by name and operator, of models that run in turns."""
    with tempfile.TemporaryDirectory(prefix="mining-") as scratch:
        sessions = []
        for number, model in enumerate(models):
            options = _single_threaded()
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(scratch) / str(number))
            sessions.append(onnxruntime.InferenceSession(str(model), options, [_PROVIDER]))
        for _ in range(runs):
            for session in sessions:
                session.run(None, dict(feeds))
        written = [json.loads(Path(session.end_profiling()).read_text(encoding="utf-8")) for session in sessions]
    return [_lower_fifths(events) for events in written]


def _lower_fifths(events: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    times: dict[tuple[str, str], list[float]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            times.setdefault((event["name"], event["args"]["op_name"]), []).append(float(event["dur"]))
    return {key: float(np.quantile(several, 0.2)) for key, several in times.items()}


def _by_operator(times: Mapping[tuple[str, str], float], common: Container[tuple[str, str]]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for key, time_us in times.items():
        if key not in common:
            totals[key[1]] = round(totals.get(key[1], 0.0) + time_us, 1)
    return totals


def _single_threaded() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return options


def _variants(model: Model, path: Path, folder: Path, *, without: bool) -> Iterator[tuple[str, Path, int]]:
    """Write the model as each rule alone leaves it, and all of them; yield names, files, and how often they applied."""
    table = default_rules()
    sets: list[tuple[str, Sequence[Rule]]] = [(rule.name, [rule]) for rule in table]
    sets.append((ALL, table))
    if without:
        sets += [(f"without {rule.name}", [other for other in table if other is not rule]) for rule in table]
    whole = simplify(model)
    used = {name for name, _ in whole.applied} if whole is not None else set()
    for number, (name, rules) in enumerate(sets):
        if name.startswith("without ") and name.removeprefix("without ") not in used:
            continue
        found = simplify(model, chosen=rules)
        if found is None:
            continue
        file = folder / f"{number}.onnx"
        save_model(found.proto, path.parent, file)
        yield name, file, sum(count for _, count in found.applied)


def page(found: Mapping[str, Mapping[str, Any]], *, by_cpu: bool) -> str:
    """Return the figures as a table, one row for each rule and model."""
    what = f"processor time, {ALL} = 1" if by_cpu else "speed, input = 1"
    lines = [
        f"| rule | model | applied | {what} | {'lowest and highest' if by_cpu else '95 % interval'} | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    names = [rule.name for rule in default_rules()]
    for rule in (*names, *(f"without {name}" for name in names), *((INPUT, AGAIN) if by_cpu else (ALL,))):
        for model, rows in found.items():
            if rule in rows:
                lines.append(_line(rule, model, rows[rule]))
    return "\n".join(lines) + "\n"


def _line(rule: str, model: str, row: Mapping[str, Any]) -> str:
    ratio = row.get("ratio")
    if ratio is None:
        return f"| {rule} | {model} | {row['applied']} | {DASH} | {DASH} | {row.get('sentence', row['status'])} |"
    verdict = "wins" if ratio["low"] > 1 else "loses" if ratio["high"] < 1 else ""
    interval = f"{ratio['low']:.3f}–{ratio['high']:.3f}"
    return f"| {rule} | {model} | {row['applied']} | {ratio['value']:.3f} | {interval} | {verdict} |"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the models are")
    parser.add_argument("only", nargs="*", help="names of models; all that are there by default")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "build" / "mining", help="folder to write to")
    parser.add_argument("--threads", type=int, default=2, help="threads of each model")
    parser.add_argument("--rounds", type=int, default=5, help="blocks of each variant in each of two sittings (5)")
    parser.add_argument("--block", type=float, default=0.5, help="seconds of one block")
    parser.add_argument("--by-cpu", type=float, default=0, metavar="S", help="seconds of processor time of a sitting")
    parser.add_argument("--by-node", type=int, default=0, metavar="N", help="profile N runs; prints, and writes JSON")
    parser.add_argument("--without", action="store_true", help="also time all rules but one")
    return parser.parse_args()


if __name__ == "__main__":
    main()
