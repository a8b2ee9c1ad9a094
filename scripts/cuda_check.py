"""Check what `korch optimize --target cuda` makes of models, as far as a machine without a GPU can.

Every model of the catalogue that lies in a folder is optimised, unless it was before. Every kernel of its plan is
compiled for each architecture; its text is run on the CPU, under AddressSanitizer and UndefinedBehaviorSanitizer in
two orders of its threads, and under ThreadSanitizer, and compared with the primitives' meaning in float64. Where
onnxruntime-gpu is installed, the model is opened with its library as on a machine with a GPU, and run.

Writes cuda-check.json and cuda-check.md after each model. What was found right stays found in the output folder, so
that a run that was stopped, or whose time was up, goes on where it was. Exits with 1 if something is wrong.

    python -m scripts.cuda_check build/models -o build/cuda-check
    python -m scripts.cuda_check build/models candy-script minilm -o build/cuda-check --minutes 10
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from korch_cli import load_session
from korch_cli.codegen import cuda_headers
from korch_cli.core.errors import KorchError
from korch_cli.core.gpu import Image, Resources
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.launch import CudaKernel
from korch_cli.core.model import Bindings
from korch_cli.core.progress import Silent
from korch_cli.toolchain import CudaCompiler, compile_images, find_nvrtc
from korch_cli.verify import CPU_PROVIDER, CUDA_PROVIDER, bind_inputs, draw_inputs
from scripts.acceptance import DASH, MODELS, korch
from scripts.prepare_gpu_check import most_elements, planned_kernels
from tests.cuda_on_cpu.agreement import Reference, compare_with, reference_of
from tests.cuda_on_cpu.execution import HERE as ON_CPU
from tests.cuda_on_cpu.execution import FaultError, Sanitizer, build

_ORDERS = {Sanitizer.ADDRESS: ("forward", "random:1"), Sanitizer.THREAD: ("random:1",)}
_TITLES = {Sanitizer.ADDRESS: "ASan, UBSan", Sanitizer.THREAD: "TSan"}

Late = Callable[[], bool]
"""Whether time is up."""
Planned = Sequence[tuple[PrimitiveGraph, CudaKernel]]


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one kernel under one sanitizer.

    Attributes:
        elements: that were compared.
        worst: the largest error, as a share of what is allowed.
        failure: what is wrong, to the last line; empty if nothing is.
    """

    elements: int = 0
    worst: float = 0.0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one model.

    Attributes:
        name: in the catalogue.
        kernels: of its plan.
        found: by the name of a sanitizer and that of a kernel.
        resources: what the function of a kernel that needs most needs, by architecture.
        session: how the model ran in ONNX Runtime with the library beside it.
        failures: sentences that name what is wrong.
        left: kernels that are larger than the limit.
        note: what korch said of its result.
    """

    name: str
    kernels: int = 0
    found: Mapping[str, Mapping[str, Finding]] = field(default_factory=dict)
    resources: Mapping[str, Resources] = field(default_factory=dict)
    session: str = DASH
    failures: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """`budget`: of each search; `most`: elements of the largest value of a kernel that is run; `late`: see there."""

    archs: tuple[str, ...]
    budget: str
    sanitizers: tuple[Sanitizer, ...]
    most: int
    late: Late


def main(words: Sequence[str] | None = None) -> None:
    """Read the command line, go through the models, write the tables."""
    sys.path.insert(0, str(MODELS))
    from fetch import catalogue

    parser = _parser()
    chosen = parser.parse_args(words)
    entries = catalogue()
    names = [name for name in chosen.names or entries if (chosen.folder / f"{name}.onnx").is_file()]
    absent = set(chosen.names) - (entries.keys() & names)
    if absent or not names:
        parser.error(f"not in the folder or not in the catalogue: {', '.join(sorted(absent)) or 'any model'}")
    end = time.monotonic() + 60.0 * chosen.minutes
    sanitizers = tuple(Sanitizer[word.upper()] for word in chosen.sanitizers.split(",") if word)
    archs = tuple(chosen.arch.split(","))
    limits = Limits(archs, chosen.budget, sanitizers, chosen.most_elements, lambda: time.monotonic() > end)
    try:
        nvrtc = find_nvrtc()
        nvrtc.require(archs)
    except KorchError as error:
        sys.exit(f"{error.message}: {error.hint}")
    rows = []
    for place, name in enumerate(names):
        print(f"[{place + 1} of {len(names)}] {name}", file=sys.stderr, flush=True)
        source = chosen.folder / f"{name}.onnx"
        rows.append(check(source, entries[name]["shapes"], chosen.output / name, nvrtc, limits))
        write(rows, limits, chosen.output)
    print(table(rows, limits))
    sys.exit(int(any(row.failures for row in rows)))


def check(source: Path, shapes: Mapping[str, str], folder: Path, nvrtc: CudaCompiler, limits: Limits) -> Row:
    """Optimise a model into `folder`, unless its plan is there, and check what came of it."""
    row = Row(source.stem)
    made = folder / f"{source.stem}.cuda.onnx"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if not made.with_suffix(".plan.json").exists():
            _optimise(source, shapes, made, limits)
        planned = list(planned_kernels(source, made))
        row = replace(row, kernels=len(planned), session=_session(source, made))
        plan = json.loads(made.with_suffix(".plan.json").read_text(encoding="utf-8"))
        if not planned:
            return replace(row, note=f"unchanged: {plan['reason']}")
        row = replace(row, resources=_resources(planned, nvrtc, limits.archs, folder))
    except KorchError as error:
        return replace(row, failures=(f"{error.message} {error.where or ''}".strip(),))
    small = [(graph, kernel) for graph, kernel in planned if most_elements(graph) <= limits.most]
    left = {kernel.name for _, kernel in planned} - {kernel.name for _, kernel in small}
    found = _executed(small, folder, limits)
    failures = tuple(
        f"{name}, {sanitizer.lower()} sanitizer: {_said(finding)}"
        for sanitizer, findings in found.items()
        for name, finding in findings.items()
        if finding.failure
    )
    return replace(row, found=found, left=tuple(sorted(left)), failures=failures)


def _optimise(source: Path, shapes: Mapping[str, str], made: Path, limits: Limits) -> None:
    """Write the model for GPUs, and check it against its source. Raises KorchError."""
    flags = [word for pair in shapes.items() for word in ("--shape", "=".join(pair))]
    target = ["--target", "cuda", "--arch", ",".join(limits.archs), "--budget", limits.budget]
    found = korch("optimize", source, "-o", made, *flags, *target, longest_s=3600.0)
    if isinstance(found, str):
        raise KorchError(f"optimize: {found}")
    made.with_suffix(".report.json").write_text(json.dumps(found), encoding="utf-8")


def _session(source: Path, made: Path) -> str:
    """Run a model as on a machine with a GPU, and without its library; return how it ran.

    Raises:
        KorchError: ONNX Runtime refuses the library or the model, or the results differ.
    """
    import onnxruntime

    if CUDA_PROVIDER not in onnxruntime.get_available_providers():
        return "not checked: needs onnxruntime-gpu"
    shapes = json.loads(made.with_suffix(".plan.json").read_text(encoding="utf-8"))["shapes"]
    bindings = Bindings({}, {name: tuple(shape) for name, shape in shapes.items()})
    feeds = draw_inputs(source, bind_inputs(source, bindings), seed=0, runs=1)[0]
    try:
        session = load_session(made, providers=[CUDA_PROVIDER, CPU_PROVIDER])
        got = session.run(None, dict(feeds))
        want = load_session(made, providers=[CPU_PROVIDER]).run(None, dict(feeds))
    except Exception as error:
        raise KorchError(f"ONNX Runtime: {str(error).splitlines()[0]}") from error
    if session.get_providers() != [CPU_PROVIDER]:
        return "on the GPU"
    if not all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(got, want, strict=True)):
        raise KorchError("with the library, which finds no GPU, the functions compute something else than without")
    return f"functions ran, onnxruntime-gpu {onnxruntime.__version__}"


def _resources(planned: Planned, nvrtc: CudaCompiler, archs: Sequence[str], folder: Path) -> dict[str, Resources]:
    """Compile kernels; return what the one that needs most of something needs. Raises KorchError."""
    units = {kernel.name: kernel.source for _, kernel in planned}
    images = folder / "images"
    images.mkdir(exist_ok=True)
    built = compile_images(nvrtc, units, cuda_headers(), archs, images, jobs=_jobs(), progress=Silent())
    found: dict[str, Resources] = {}
    for (name, arch), image in built.items():
        if not isinstance(image, Image):
            raise KorchError(f"a kernel does not compile for {arch}: {image.sentence}", where=name)
        for need in image.resources.values():
            most = found.get(arch, Resources(0, 0, 0))
            found[arch] = Resources(
                max(most.registers, need.registers),
                max(most.spill_bytes, need.spill_bytes),
                max(most.shared_bytes, need.shared_bytes),
            )
    return found


def _executed(planned: Planned, folder: Path, limits: Limits) -> dict[str, dict[str, Finding]]:
    """Run kernels on the CPU; what an earlier run found right is not run again."""
    known = _Known(folder / "right.json")
    found: dict[str, dict[str, Finding]] = {sanitizer.name: {} for sanitizer in limits.sanitizers}
    with tempfile.TemporaryDirectory() as builds:
        for graph, kernel in planned:
            reference = cache(partial(reference_of, graph))
            for sanitizer in limits.sanitizers:
                finding = known.of(kernel, sanitizer)
                if finding is None and not limits.late():
                    finding = _finding(reference(), kernel, Path(builds), sanitizer)
                    known.keep(kernel, sanitizer, finding)
                    print(f"  {kernel.name}, {_TITLES[sanitizer]}: {_said(finding)}", file=sys.stderr, flush=True)
                if finding is not None:
                    found[sanitizer.name][kernel.name] = finding
    return found


def _finding(reference: Reference, kernel: CudaKernel, builds: Path, sanitizer: Sanitizer) -> Finding:
    finding = Finding()
    try:
        library = build([kernel], builds, sanitizer)
        for order in _ORDERS[sanitizer]:
            agreement = compare_with(reference, kernel, library, order)
            finding = Finding(agreement.elements, max(finding.worst, agreement.worst))
    except (AssertionError, FaultError, RuntimeError, subprocess.TimeoutExpired) as error:
        return replace(finding, failure=str(error))
    return finding


def _said(finding: Finding) -> str:
    """Return a finding in one line: sanitizers draw lines, and the text of the kernel may follow."""
    lines = (line.strip() for line in finding.failure.splitlines() if line.strip(" ="))
    return next(lines, "it failed") if finding.failure else "right"


class _Known:
    """What was found right, in a file, by the text that ran."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def of(self, kernel: CudaKernel, sanitizer: Sanitizer) -> Finding | None:
        found = self._found.get(_key(kernel, sanitizer))
        return None if found is None else Finding(**found)

    def keep(self, kernel: CudaKernel, sanitizer: Sanitizer, finding: Finding) -> None:
        if not finding.failure:
            self._found[_key(kernel, sanitizer)] = asdict(finding)
            _write(self._path, json.dumps(self._found, indent=1))


def _key(kernel: CudaKernel, sanitizer: Sanitizer) -> str:
    ran = [kernel.source, repr(kernel.launches), *_ORDERS[sanitizer], *_surroundings()]
    return f"{sanitizer.name} {hashlib.sha256(json.dumps(ran).encode()).hexdigest()}"


@cache
def _surroundings() -> tuple[str, ...]:
    """Return what every kernel is run with."""
    machine = sorted(path for path in ON_CPU.iterdir() if path.suffix in (".h", ".cpp", ".py"))
    return (*cuda_headers().values(), *(path.read_text(encoding="utf-8") for path in machine))


def write(rows: Sequence[Row], limits: Limits, folder: Path) -> None:
    """Write both forms of the result; a reader never sees half of one."""
    document = {"archs": limits.archs, "models": [asdict(row) for row in rows]}
    _write(folder / "cuda-check.json", json.dumps(document, indent=2))
    _write(folder / "cuda-check.md", table(rows, limits))


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}.part")
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(path)


def table(rows: Sequence[Row], limits: Limits) -> str:
    """Return the result in Markdown."""
    titles = ["model", "kernels", *(_TITLES[sanitizer] for sanitizer in limits.sanitizers), "elements", "worst error"]
    titles += [f"{arch}: registers, spilled bytes" for arch in limits.archs]
    titles += ["session without a GPU", "result"]
    lines = [f"| {' | '.join(titles)} |", f"|{' --- |' * len(titles)}"]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in _cells(row, limits))} |" for row in rows]
    failed = sum(bool(row.failures) for row in rows)
    return "\n".join([*lines, "", f"{len(rows) - failed} of {len(rows)} models pass."])


def _cells(row: Row, limits: Limits) -> list[str]:
    cells = [row.name, str(row.kernels)]
    findings = [finding for found in row.found.values() for finding in found.values()]
    for sanitizer in limits.sanitizers:
        found = row.found.get(sanitizer.name, {})
        cells.append(f"{sum(not finding.failure for finding in found.values())} of {row.kernels} right")
    # Each sanitizer sees the same elements.
    cells.append(f"{max((sum(f.elements for f in found.values()) for found in row.found.values()), default=0):,}")
    cells.append(f"{max((f.worst for f in findings), default=0.0):.0%} of the tolerance" if findings else DASH)
    for arch in limits.archs:
        needs = row.resources.get(arch)
        cells.append(DASH if needs is None else f"{needs.registers}, {needs.spill_bytes}")
    return [*cells, row.session, _result(row, limits)]


def _result(row: Row, limits: Limits) -> str:
    if row.failures:
        return "FAILED: " + "; ".join(row.failures)
    tried = [name for found in row.found.values() for name in found]
    late = (row.kernels - len(row.left)) * len(limits.sanitizers) - len(tried)
    notes = [row.note] if row.note else []
    if row.left:
        notes.append(f"{len(row.left)} not run, larger than {limits.most:,} elements")
    if late:
        notes.append(f"{late} runs left out, as time was up")
    return "; ".join(notes) or "right"


def _jobs() -> int:
    return len(os.sched_getaffinity(0))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the models are, as models/fetch.py names them")
    parser.add_argument("names", nargs="*", help="only these models")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/cuda-check"), help="folder of the results")
    parser.add_argument("--arch", default="sm_90,sm_80", help="architectures to compile for (default %(default)s)")
    parser.add_argument("--budget", default="2m", help="budget of each search (default %(default)s)")
    parser.add_argument(
        "--sanitizers", default="address,thread", help="that kernels run under, by commas (default %(default)s)"
    )
    parser.add_argument(
        "--most-elements",
        type=int,
        default=1 << 23,
        help="of a kernel's largest value, to be run (default %(default)s)",
    )
    parser.add_argument("--minutes", type=float, default=1e6, help="after which no kernel is begun to run any more")
    return parser


if __name__ == "__main__":
    main()
