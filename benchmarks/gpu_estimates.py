"""What `korch optimize --target cuda` is estimated to gain on GPUs that are not here, as a page.

Every figure is an estimate: ONNX Runtime's own kernels, run operator by operator, and the chosen plan are priced by the
same roofline of the GPU's data sheet (src/korch_cli/measure/cuda/gpus.toml). Nothing is measured. What the paper
measured on an A100 stands beside it.

    python benchmarks/gpu_estimates.py --models build/models -o docs/gpu-estimates.md
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from naming import known_names

_GPUS = {"A100-80GB": "sm_80,sm_90", "H100-SXM": "sm_90,sm_80"}
_PAPER_GPU = "A100-80GB"
_PROVEN = 0.02
"""The gap that `korch optimize` stops at by itself."""
_COLUMNS = (
    "model",
    "GPU",
    "ONNX Runtime, estimated",
    "plan, estimated",
    "ratio, estimated",
    "kernels",
    "most spilled bytes a thread",
    "proof",
    "the paper's ratios on an A100, measured: to PyTorch, TVM, TensorRT",
)

_ABOUT = """\
**Every figure but the paper's is an estimate; none was measured.** Both sides are priced by the same roofline: a
launch, and then memory traffic or arithmetic, whichever takes longer, at the shares of the data sheet that
`src/korch_cli/measure/cuda/gpus.toml` assumes. ONNX Runtime's side is its own graph after its optimisations for any
processor, one kernel an operator, each of which is taken to use the whole GPU and to touch its operands and results
once. Products of float32 are taken to run as TensorFloat-32, at 0.6 of the matrix units.
"""

Report = dict[str, Any] | str
"""What `korch optimize` reports, or why there is nothing."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A model.

    Attributes:
        file: its file name without the ending.
        title: what to call it.
        flags: the shapes that it needs.
        paper: how many times as fast as PyTorch 2.0, TVM 0.11 and TensorRT 8.2 the paper's plan ran on an A100 (figure
            6 of arXiv 2406.09465); None for a model that is not the paper's.
    """

    file: str
    title: str
    flags: tuple[str, ...] = ()
    paper: tuple[float, float, float] | None = None


SUBJECTS = (
    Subject("candy-script", "Candy, 224", paper=(1.8, 1.7, 1.1)),
    Subject("segformer_b0-script", "Segformer-B0, 512", paper=(2.0, 3.3, 1.4)),
    Subject("yolox_nano-script", "YOLOX-Nano, 416", paper=(7.0, 2.7, 1.6)),
    Subject("yolov4-script", "YOLOv4, 416", paper=(2.9, 1.5, 1.3)),
    Subject("efficientvit_b1_2048-script", "EfficientViT-B1, 2048", paper=(1.6, 3.8, 1.1)),
    Subject("efficientvit_b1_224-script", "EfficientViT-B1, 224"),
    Subject("ppocr_rec", "PP-OCRv4 recognition, 48 x 320", ("--shape", "x=1x3x48x320")),
    Subject(
        "minilm",
        "paraphrase-MiniLM-L3, 128 tokens",
        ("--shape", "input_ids=1x128", "--shape", "attention_mask=1x128"),
    ),
)


def main() -> None:
    """Do what the command line says."""
    parser = _parser()
    arguments = parser.parse_args()
    names = known_names(parser, arguments.only, (subject.file for subject in SUBJECTS), "model")
    rows = []
    for subject in SUBJECTS:
        if subject.file not in names:
            continue
        for gpu in _GPUS:
            report = _report(subject, gpu, arguments.models, arguments.folder, arguments.budget)
            rows.append((subject, gpu, report))
            print(row(subject, gpu, report), flush=True)
    if arguments.output is not None:
        arguments.output.write_text(page(rows, arguments.budget), encoding="utf-8")


def page(rows: Iterable[tuple[Subject, str, Report]], budget: str) -> str:
    """Return the page."""
    lines = [
        "# Estimated gains on GPUs",
        "",
        *_ABOUT.splitlines(),
        "",
        f"Written by `python benchmarks/gpu_estimates.py`, with a budget of {budget} a run; batch 1, float32.",
        "",
        f"| {' | '.join(_COLUMNS)} |",
        f"|{' --- |' * len(_COLUMNS)}",
        *(row(*given) for given in rows),
    ]
    return "\n".join([*lines, ""])


def row(subject: Subject, gpu: str, report: Report) -> str:
    """Return a row of the table."""
    paper = "" if subject.paper is None or gpu != _PAPER_GPU else ", ".join(f"{ratio:.1f}" for ratio in subject.paper)
    if isinstance(report, str):
        cells = [report, *[""] * (len(_COLUMNS) - 4)]
    else:
        search, kernels = report["search"], report["kernels"]
        plan_us = search["plan_us"] if report["changed"] else search["vendor_us"]
        cells = [
            f"{search['vendor_us']:.0f} µs",
            f"{plan_us:.0f} µs",
            f"{search['vendor_us'] / plan_us:.2f}",
            f"{len(kernels)}, used {sum(kernel['uses'] for kernel in kernels)} times",
            str(max((kernel["spill_bytes"] for kernel in kernels), default=0)),
            proof(search),
        ]
    return f"| {' | '.join([subject.title, gpu, *cells, paper])} |"


def proof(search: Mapping[str, Any]) -> str:
    """Say what is proven of a plan's estimated time: how far the best of all candidate kernels may lie below it."""
    if search["gap"] <= _PROVEN:
        return f"within {search['gap']:.1%} of the best"
    return f"best found in the budget; the best may be up to {search['gap']:.1%} lower"


def _report(subject: Subject, gpu: str, models: Path, folder: Path, budget: str) -> Report:
    """Return the report of a run, or of an earlier one."""
    place = folder / f"{subject.file}-{gpu}"
    place.mkdir(parents=True, exist_ok=True)
    report = place / "report.json"
    if not report.exists():
        command = [sys.executable, "-m", "korch_cli", "optimize", str(models / f"{subject.file}.onnx")]
        command += ["-o", str(place / f"{subject.file}.onnx"), *subject.flags, "--target", "cuda", "--gpu", gpu]
        command += ["--arch", _GPUS[gpu], "--budget", budget, "--report", str(report), "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        (place / "log.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode:
            return next(iter(done.stderr.splitlines()), f"ended with {done.returncode}")
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=Path("build/models"), help="where the models are")
    parser.add_argument("--folder", type=Path, default=Path("build/gpu-estimates"), help="for outputs and reports")
    parser.add_argument("--budget", default="2m", help="of each run (default %(default)s)")
    parser.add_argument("--only", type=_names, default=(), help="file names of models, without endings, by commas")
    parser.add_argument("-o", "--output", type=Path, help="the page to write")
    return parser


def _names(text: str) -> Sequence[str]:
    return text.split(",")


if __name__ == "__main__":
    main()
