"""From a run's document to a page in Markdown with a plot for each table; nothing on the page is written by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import product
from pathlib import Path
from typing import Any

from contest import LONG_OPEN_SECONDS, SLOW

BASELINE = "ORT"
_COLOURS = {"ORT": "#8a8f98", "korch": "#d9480f", "OpenVINO": "#5f3dc4", "torch.compile": "#e8a33d", "TVM": "#2b8a3e"}
_OTHER = "#495057"
_PAPER = ("candy", "yolox_nano", "yolov4", "segformer_b0")
"""Its models but for EfficientViT, of which the catalogue has several sizes."""
_BAR, _GAP, _LEFT, _WIDTH = 14, 22, 300, 860


def write(document: Mapping[str, Any], folder: Path) -> Path:
    """Write benchmarks.md and its plots into `folder`; return the page."""
    plots = folder / "benchmarks"
    plots.mkdir(parents=True, exist_ok=True)
    ablations = [entry["ablation"] for entry in document["models"] if "ablation" in entry]
    lines = ["# Benchmarks", "", *_preface(document)]
    for title, section, plot in (
        ("Whole models", _models(document["models"]), _model_bars(document["models"])),
        ("Kernels", _kernels(document["kernels"]), _kernel_bars(document["kernels"])),
        ("Search", _search(document["models"]), _search_bars(document["models"])),
        ("Orchestration at scale", _scale(document["scale"]), _scale_bars(document["scale"])),
        ("Orchestration without", _ablation(ablations), _ablation_bars(ablations)),
        ("Size and memory", _sizes(document["models"]), _size_bars(document["models"])),
    ):
        name = title.lower().replace(" ", "-") + ".svg"
        (plots / name).write_text(bars(title, plot[0], plot[1]), encoding="utf-8")
        lines += ["", f"## {title}", "", *section, "", f"![{title}](benchmarks/{name})"]
    page = folder / "benchmarks.md"
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return page


def _preface(document: Mapping[str, Any]) -> list[str]:
    around = document["surroundings"]
    versions = ", ".join(f"{name} {version}" for name, version in around["versions"].items())
    return [
        f"{around['processor']} ({around['processor_model']}), {around['processors']} processors, "
        f"{around['threads']} threads; {around['system']}; Python {around['python']}; {around['compiler']}; "
        f"{versions}; commit {around['commit']}; {around['date']}.",
        "",
        *_origin(document),
        f"Each runtime runs in a process of its own, in {document['rounds']} alternating blocks of "
        f"{document['block_s']:g} s, on the same inputs; {document['sittings']} times, each with new processes. Its "
        "outputs are compared with ONNX Runtime's without optimisations, before and after. Ratios say how many times "
        "as fast as ONNX Runtime with all of its optimisations: the median over all blocks, with a 95 % interval from "
        "resampling the sittings and the blocks within them. Times of different tables, and of different hours, are "
        f"not comparable. Who needs more than {SLOW:g} times ONNX Runtime's time plays one block: the ratio is from "
        f"one sitting and has no interval. An asterisk marks who took more than {LONG_OPEN_SECONDS:g} s to open and "
        "kept one process for all sittings: what differs between its processes is not in its interval.",
        "",
        f"Made by `{document['command']}`.",
    ]


def _origin(document: Mapping[str, Any]) -> list[str]:
    """Return what is not in the run, and in which parts it was measured if there were several."""
    lines = []
    for names, reason in ((document["left_out"], "not measured yet"), (document["absent"], "without a file")):
        if names:
            lines += [f"{len(names)} {reason}: {', '.join(names)}.", ""]
    calls: dict[str, list[Mapping[str, Any]]] = {}
    for entry in (entry for part in ("models", "kernels", "scale") for entry in document[part]):
        made = entry["made"]
        calls.setdefault(made["call"], []).append(made)
    if len(calls) > 1:
        told = [
            f"{start} ({len(made)}, commit {made[0]['commit']}, {made[0]['processor']})"
            for start, made in sorted(calls.items())
        ]
        lines += [
            f"Measured in {len(calls)} parts, with the same versions, on the same kind of processor, from commits with "
            f"the same code of all that can change a figure; start, number of entries, commit and processor: "
            f"{'; '.join(told)}. "
            "What is compared in one row was always measured in one part.",
            "",
        ]
    return lines


def _models(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(row["runtime"] for entry in entries for row in entry.get("rows", ()))
    others = [name for name in names if name != BASELINE]
    lines = [
        "Milliseconds, and in brackets the ratio. The last column is what there is to gain: the speed-up if",
        "everything but convolutions and matrix products took no time at all.",
        "",
        f"| model | {BASELINE} | {' | '.join(others)} | ideal |",
        f"| --- | --: | {' | '.join('--:' for _ in others)} | --: |",
    ]
    for entry in entries:
        if "failure" in entry:
            lines.append(f"| {entry['model']} | {entry['failure']} |{' |' * (len(others) + 1)}")
            continue
        rows = {row["runtime"]: row for row in entry["rows"]}
        cells = [_milliseconds(rows.get(name)) for name in (BASELINE, *others)]
        lines.append(f"| {entry['model']} | {' | '.join(cells)} | {entry['ideal']['speed_up']:.2f} |")
    return lines + _means(entries, others)


def _means(entries: Sequence[Mapping[str, Any]], runtimes: Sequence[str]) -> list[str]:
    """Return the geometric means over the five models of the paper, for each exporter that wrote all of them."""
    by_name = {entry["model"]: entry for entry in entries}
    lines = []
    for exporter, image in product(("dynamo", "script"), ("224", "2048")):
        names = [f"{name}-{exporter}" for name in (*_PAPER, f"efficientvit_b1_{image}")]
        if all("rows" in by_name.get(name, {}) for name in names):
            five = [dict(_ratios(by_name[name])) for name in names]
            cells = [_mean([ratios.get(name) for ratios in five]) for name in runtimes]
            best = [max((r for name, r in ratios.items() if name != "korch"), default=1.0) for ratios in five]
            over = [
                ratios["korch"] / other if "korch" in ratios else None for ratios, other in zip(five, best, strict=True)
            ]
            lines.append(f"| {exporter}, {image} | {' | '.join(cells)} | {_mean(over)} |")
    if not lines:
        return []
    return [
        "",
        "Geometric means of the ratios over Candy, YOLOX-Nano, YOLOv4, Segformer-B0 and EfficientViT-B1, by torch's",
        "exporter and EfficientViT's image; the last column is korch over the best of the others, model by model.",
        "",
        f"| exporter, image | {' | '.join(runtimes)} | korch over the best |",
        f"| --- | {' | '.join('--:' for _ in runtimes)} | --: |",
        *lines,
    ]


def _mean(ratios: Sequence[float | None]) -> str:
    known = [ratio for ratio in ratios if ratio is not None]
    if len(known) < len(ratios):
        return "–"
    return f"{math.exp(sum(map(math.log, known)) / len(known)):.2f}"


def _milliseconds(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "–"
    if row["status"] != "ok":
        return str(row["status"])
    return f"{row['median_us'] / 1e3:.2f}{_bracket(row)}"


def _bracket(row: Mapping[str, Any]) -> str:
    if "ratio" not in row:
        return ""
    ratio = row["ratio"]
    if "low" not in ratio:
        return f" ({ratio['value']:.2f}, one block)"
    once = "\\*" if row["opened_once"] else ""
    return f" ({ratio['value']:.2f}, {ratio['low']:.2f} to {ratio['high']:.2f}{once})"


def _kernels(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        "Microseconds of a model that holds one pattern, the runtime's own overhead included, and in brackets the",
        "ratio. Copy is a copy of as many bytes as the pattern reads and writes; the share is its time over korch's.",
        "",
        f"| pattern | {BASELINE} | korch | torch.compile | copy | share of a copy's speed | GB/s |",
        "| --- | --: | --: | --: | --: | --: | --: |",
    ]
    for entry in entries:
        if "failure" in entry:
            lines.append(f"| {entry['pattern']} | {entry['failure']} | | | | | |")
            continue
        rows = {row["runtime"]: row for row in entry["rows"]}
        cells = [_microseconds(rows.get(name)) for name in (BASELINE, "korch", "torch.compile", "copy")]
        share = speed = "–"
        if rows["korch"]["status"] == "ok":
            speed = f"{entry['bytes'] / rows['korch']['median_us'] / 1e3:.1f}"
            if rows["copy"]["status"] == "ok":
                share = f"{rows['copy']['median_us'] / rows['korch']['median_us']:.0%}"
        lines.append(f"| {entry['pattern']} | {' | '.join(cells)} | {share} | {speed} |")
    return lines


def _microseconds(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "–"
    if row["status"] != "ok":
        return str(row["status"])
    return f"{row['median_us']:.1f}{_bracket(row) if row['runtime'] != 'copy' else ''}"


def _search(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        "All of `korch optimize`: the first time, and again with what the store remembers. The prediction is the sum",
        "of what the plan's kernels cost by themselves, at the pace that the machine had in the comparison,",
        "over the measured time of the whole model. Two figures are of the first time and of the second one: kernels",
        "that were measured, the proven distance from the best plan, and seconds.",
        "",
        "| model | primitives | candidates (distinct) | measured | gap | solving, s | first, s | again, s "
        "| predicted over measured |",
        "| --- | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for entry in entries:
        if "search" not in entry:
            continue
        first, second = entry["search"]["first"], entry["search"]["second"]
        again = "–" if second is None else f"{second['seconds']:.0f}"
        predicted = "–" if first["prediction"] is None else f"{first['prediction']['ratio']:.2f}"
        lines.append(
            f"| {entry['model']} | {first['primitives']:,} | {first['candidates']:,} ({first['distinct']:,}) | "
            f"{_both(first, second, 'measured', ',')} | {_both(first, second, 'gap', '.1%')} | "
            f"{first['solve_seconds']:.1f} | "
            f"{first['seconds']:.0f} | {again} | {predicted} |"
        )
    return lines


def _both(first: Mapping[str, Any], second: Mapping[str, Any] | None, name: str, form: str) -> str:
    return ", ".join(format(search[name], form) for search in (first, second) if search is not None)


def _scale(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        "The choice of kernels by itself, from priced candidates to a proven plan: seconds on the clock, in brackets",
        "of the processor. SCIP solves the same program. Prices are lower bounds (`benchmarks/programs.py`).",
        "",
        "| model | primitives | candidates | korch, s | result | SCIP, s | result |",
        "| --- | --: | --: | --: | --- | --: | --- |",
    ]
    for entry in entries:
        if "failure" in entry:
            lines.append(f"| {entry['model']} | {entry['failure']} | | | | | |")
            continue
        cells = [cell for by in ("korch", "scip") for cell in _solved(entry[by])]
        lines.append(
            f"| {entry['model']} | {entry['primitives']:,} | {entry['candidates']:,} | {' | '.join(cells)} |",
        )
    return lines


def _solved(result: Mapping[str, Any]) -> tuple[str, str]:
    status = result["status"]
    if status == "feasible":
        status = f"within {1 - result['bound_us'] / result['cost_us']:.1%}"
    return f"{result['seconds']:.2f} ({result['cpu_s']:.2f})", status


_FREEDOMS = ("no layouts", "no recomputation", "one output", "the paper's", "greedy")


def _ablation(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        "What the best plan costs over the same candidates and prices, relative to korch's: if every value lies plain",
        "(whoever works on blocked ones pays for the conversions itself); if no primitive is computed twice; if a",
        "generated kernel writes one value; with the last and the first of these, as in the paper's program; and as",
        "merging neighbours finds it. These are the solver's figures and no run times. Prices are those of the search",
        "above; a kernel that was not measured costs its lower bound times the usual ratio. `>` marks a plan whose",
        "optimality is not proven: what is shown is the best bound.",
        "",
        f"| model | distinct kernels (measured) | korch, ms | {' | '.join(_FREEDOMS)} |",
        f"| --- | --: | --: | {' | '.join('--:' for _ in _FREEDOMS)} |",
    ]
    for entry in entries:
        if "failure" in entry:
            lines.append(f"| {entry['model']} | {entry['failure']} |{' |' * (len(_FREEDOMS) + 1)}")
            continue
        ours = entry["rows"]["korch"]["cost_us"]
        cells = [_relative(name, entry["rows"][name], ours) for name in _FREEDOMS]
        lines.append(
            f"| {entry['model']} | {entry['distinct']:,} ({entry['measured']:,}) | {ours / 1e3:.2f} | "
            f"{' | '.join(cells)} |"
        )
    return lines


def _relative(name: str, row: Mapping[str, Any], ours: float) -> str:
    if name == "greedy" or row["status"] == "optimal":
        return f"{row['cost_us'] / ours:.3f}"
    return f"> {row['bound_us'] / ours:.3f}"


def _sizes(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        "Start is from a new process to a session that can run, the import of the runtime included; peak is the",
        "largest resident size of the process.",
        "",
        "| model | input, MB | output, MB | library, MB | start ORT, s | start korch, s | peak ORT, MB | korch, MB |",
        "| --- | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for entry in entries:
        if "size" not in entry:
            continue
        size = entry["size"]
        files = [f"{size[f'{name}_bytes'] / 1e6:.2f}" for name in ("input", "output", "library")]
        starts = [f"{size[f'{name}_open_s']:.2f}" for name in ("ort", "korch")]
        peaks = [f"{peak:.0f}" if (peak := size[f"{name}_peak_mb"]) else "–" for name in ("ort", "korch")]
        lines.append(f"| {entry['model']} | {' | '.join([*files, *starts, *peaks])} |")
    return lines


Bars = tuple[str, list[tuple[str, list[tuple[str, float]]]]]
"""What the length of a bar is, and for each group its name and its bars."""


def _model_bars(entries: Sequence[Mapping[str, Any]]) -> Bars:
    return "times as fast as ONNX Runtime", [(e["model"], _ratios(e)) for e in entries if "rows" in e]


def _kernel_bars(entries: Sequence[Mapping[str, Any]]) -> Bars:
    return "times as fast as ONNX Runtime", [(e["pattern"], _ratios(e)) for e in entries if "rows" in e]


def _ratios(entry: Mapping[str, Any]) -> list[tuple[str, float]]:
    rows = [row for row in entry["rows"] if row["status"] == "ok" and row["runtime"] != "copy"]
    return [(row["runtime"], row["ratio"]["value"] if "ratio" in row else 1.0) for row in rows]


def _search_bars(entries: Sequence[Mapping[str, Any]]) -> Bars:
    found = []
    for entry in entries:
        if "search" in entry:
            first, second = entry["search"]["first"], entry["search"]["second"]
            pairs = [("korch", first["seconds"])] + ([("again", second["seconds"])] if second else [])
            found.append((entry["model"], pairs))
    return "seconds", found


def _scale_bars(entries: Sequence[Mapping[str, Any]]) -> Bars:
    named = (("korch", "korch"), ("SCIP", "scip"))
    return "seconds", [(e["model"], [(name, e[by]["seconds"]) for name, by in named]) for e in entries if "korch" in e]


def _ablation_bars(entries: Sequence[Mapping[str, Any]]) -> Bars:
    found = []
    for entry in (entry for entry in entries if "rows" in entry):
        ours = entry["rows"]["korch"]["cost_us"]
        rows = [(name, row["cost_us"] / ours) for name, row in entry["rows"].items() if row["cost_us"] is not None]
        found.append((entry["model"], rows))
    return "cost of the plan, relative to korch's", found


def _size_bars(entries: Sequence[Mapping[str, Any]]) -> Bars:
    found = []
    for entry in entries:
        if "size" in entry:
            pairs = [("ORT", entry["size"]["ort_peak_mb"]), ("korch", entry["size"]["korch_peak_mb"])]
            found.append((entry["model"], pairs))
    return "largest resident size, MB", found


def bars(title: str, unit: str, groups: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> str:
    """Return horizontal bars in groups as SVG."""
    longest = max([value for _, pairs in groups for _, value in pairs], default=1.0) or 1.0
    scale = (_WIDTH - _LEFT - 130) / longest
    y = 48
    body = [f'<text x="12" y="20" font-weight="bold">{escape(title)}</text><text x="12" y="38">{escape(unit)}</text>']
    for name, pairs in groups:
        middle = y + _BAR * len(pairs) / 2 + 4
        body.append(f'<text x="{_LEFT - 8}" y="{middle:.0f}" text-anchor="end">{escape(name)}</text>')
        for runtime, value in pairs:
            width = max(1.0, value * scale)
            colour = _COLOURS.get(runtime, _OTHER)
            body.append(f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR - 2}" fill="{colour}"/>')
            body.append(f'<text x="{_LEFT + width + 5:.1f}" y="{y + 10}">{value:.2f} {escape(runtime)}</text>')
            y += _BAR
        y += _GAP - _BAR
    frame = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y + 8}" '
    frame += 'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>'
    return frame + "".join(body) + "</svg>\n"
