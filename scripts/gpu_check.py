"""Run what `prepare_gpu_check` prepared on the GPU of this machine, in under four minutes; write down what is found.

Checks every kernel against the primitives' meaning in float64, times kernels against torch.compile and CuPy, compares
both with what the roofline estimates, runs compute-sanitizer over the kernels, and whole models through ONNX Runtime.
It needs this checkout, numpy, ml_dtypes and CuPy; what needs torch, onnxruntime-gpu or compute-sanitizer is left out
where that is missing, with the reason. Ends with 1 if a kernel computes something else or fails, with 4 if it
cannot begin.

The parts run in processes of their own (scripts/gpu_parts.py): a kernel that crashes or never ends is a finding, and
the check goes on with the next one. The findings are written again and again while it runs; "complete" says whether
they are all there.

    PYTHONPATH=src python -m scripts.gpu_check build/gpu-check -o build/gpu-check.json
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from korch_cli.measure.cuda import Roofline
from scripts.gpu_bench import SIZES, calibration, left_out
from scripts.gpu_parts import LATE, READY, gpu_here, names_of
from scripts.gpu_plans import Plans, read_plans
from scripts.gpu_process import Child

SCHEMA = "korch.gpu-check/2"
_SECONDS = 210.0
_SHARES = {"kernels": 0.5, "rivals": 0.75, "models": 0.85}
"""Of the time, when each part has to be done; what comes later takes what is left."""
_STEP_S = {"kernels": 20.0, "bare": 20.0, "rivals": 40.0, "models": 60.0}
"""A step that takes longer is ended."""
_START_S = 60.0
"""For modules to be imported, on a machine that never did."""
_WRITE_EVERY_S = 2.0
_TOOLS = ("memcheck", "racecheck", "synccheck")
_UNABLE = 4
"""Exit code where there is no GPU, no CuPy, or nothing that was prepared."""
_LOG_LINES = 40


@dataclass(frozen=True, slots=True)
class Budget:
    """The time that a check may take: `seconds` from `start` on."""

    start: float
    seconds: float

    def left(self) -> float:
        """Return the seconds that are left."""
        return self.until(1.0)

    def until(self, share: float) -> float:
        """Return the seconds that are left until this share of the time is over."""
        return self.start + share * self.seconds - time.monotonic()


@dataclass(slots=True)
class Findings:
    """What is found so far, in a file that always holds all of it but the last seconds'."""

    path: Path | None
    budget: Budget
    document: dict[str, Any] = field(default_factory=dict)
    _written: float = 0.0

    def note(self, part: str, done: int, total: int, failure: str | None = None) -> None:
        """Say how far a part is, from time to time; a failure at once."""
        if failure is not None:
            print(f"FAILED  {failure}", file=sys.stderr, flush=True)
        now = time.monotonic()
        if now > self._written + _WRITE_EVERY_S or done == total:
            self._written = now
            print(f"{now - self.budget.start:5.0f} s  {part}: {done} of {total}", file=sys.stderr, flush=True)
            self.write(complete=False)

    def write(self, *, complete: bool) -> None:
        """Write the file; a reader never sees half of one."""
        self.document["complete"] = complete
        self.document["seconds"] = round(time.monotonic() - self.budget.start, 1)
        if self.path is not None:
            partial = self.path.with_name(f"{self.path.name}.part")
            partial.write_text(json.dumps(self.document, indent=1) + "\n", encoding="utf-8")
            partial.replace(self.path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit code."""
    given = _parser().parse_args(arguments)
    try:
        plans = read_plans(given.folder)
        cupy = _cupy()
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        print(f"The check cannot begin: {error}", file=sys.stderr)
        return _UNABLE
    findings = Findings(given.output, Budget(time.monotonic(), given.seconds))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    complete = False
    try:
        check(cupy, plans, given.folder, findings, bare=given.bare)
        complete = True
    finally:
        findings.write(complete=complete)
    document = findings.document
    if given.output is None:
        print(json.dumps(document, indent=1))
    checked = [entry for entry in document["kernels"] if "failure" in entry]
    failed = sum(entry["failure"] is not None for entry in checked)
    total = len(document["kernels"])
    print(f"{len(checked)} of {total} kernels checked, {failed} failed, {document['seconds']} s", file=sys.stderr)
    return int(bool(failed))


def check(cupy: Any, plans: Plans, folder: Path, findings: Findings, *, bare: bool = False) -> None:
    """Find everything.

    Args:
        cupy: the module; nothing is run with it here.
        plans: what was prepared.
        folder: where.
        findings: to fill; steps that its budget forbids are named as left out.
        bare: only check what the kernels of all schedules and types compute.
    """
    document, budget = findings.document, findings.budget
    roofline = Roofline(gpu_here(cupy))
    document |= {"schema": SCHEMA, "made_with": dict(plans.made_with), "machine": _machine(cupy, roofline)}
    names = names_of("bare" if bare else "kernels", plans)
    kernels = document["kernels"] = []

    def keep_kernel(found: Any, at: int) -> None:
        # Of a kernel that ended its process, there is only what it was and why.
        entry = found if "group" in found else names[at] | ({"failure": found["ended"]} if "ended" in found else found)
        kernels.append(entry)
        failure = entry.get("failure")
        sentence = None if failure is None else f"{entry['group']}: {entry['label']}: {failure}"
        findings.note("kernels", len(kernels), len(names), sentence)

    if bare:
        _steps("bare", len(names), folder, budget.left, keep_kernel)
        return
    _steps("kernels", len(names), folder, lambda: budget.until(_SHARES["kernels"]), keep_kernel)
    document["calibration"] = calibration(kernels, roofline)
    document["products"], rivals = None, names_of("rivals", plans)
    document["rivals"] = {label: {} for label, key in rivals if key}

    def keep_rival(found: Any, at: int) -> None:
        label, key = rivals[at]
        found = left_out(found["ended"]) if isinstance(found, dict) and "ended" in found else found
        if key:
            document["rivals"][label][key] = found
        else:
            document["products"] = found
        findings.note("rivals", at + 1, len(rivals))

    _steps("rivals", len(rivals), folder, lambda: budget.until(_SHARES["rivals"]), keep_rival)
    models = document["models"] = {}

    def keep_model(found: Any, at: int) -> None:
        models[list(plans.models)[at]] = left_out(found["ended"]) if "ended" in found else found
        findings.note("models", at + 1, len(plans.models))

    _steps("models", len(plans.models), folder, lambda: budget.until(_SHARES["models"]), keep_model)
    _sanitize(folder, findings, sum(kernel.group == SIZES for kernel in plans.kernels))


def _steps(part: str, total: int, folder: Path, left: Callable[[], float], keep: Callable[[Any, int], None]) -> None:
    """Give `keep` what each step of a part finds, or {"ended": why} of one that ended its process."""
    done = 0
    while done < total:
        if left() <= 0:
            keep(LATE, done)
            done += 1
            continue
        before = done
        with Child(_command(part, folder, left(), done)) as child:
            ready = child.line(_START_S) == READY
            while ready and done < total and (found := child.line(_STEP_S[part])) is not None:
                keep(found, done)
                done += 1
            if done < total and (done == before or not child.may_go_on()):
                keep({"ended": child.why if ready else f"its part did not start: {child.why}"}, done)
                done += 1


def _command(part: str, folder: Path, seconds: float, after: int = 0) -> list[str]:
    command = [sys.executable, "-m", "scripts.gpu_parts", part, str(folder)]
    return [*command, "--seconds", f"{seconds:.1f}", "--after", str(after)]


def _machine(cupy: Any, roofline: Roofline) -> dict[str, Any]:
    device = cupy.cuda.Device()
    return {
        "gpu": cupy.cuda.runtime.getDeviceProperties(device.id)["name"].decode(),
        "capability": int(device.compute_capability),
        "estimates_for": roofline.gpu.name,
        "driver": cupy.cuda.runtime.driverGetVersion(),
        "cupy": cupy.__version__,
    }


def _cupy() -> Any:
    """Return CuPy. Raises ImportError: it is missing; RuntimeError: there is no GPU, or no driver."""
    import cupy

    cupy.cuda.runtime.getDeviceCount()
    return cupy


def _sanitize(folder: Path, findings: Findings, total: int) -> None:
    """Run the kernels of all schedules and types under compute-sanitizer, tool by tool, in equal shares of the time."""
    program = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if program is None:
        findings.document["sanitizer"] = left_out("there is no compute-sanitizer here")
        return
    found = findings.document["sanitizer"] = {}
    for at, tool in enumerate(_TOOLS):
        limit_s = findings.budget.left() / (len(_TOOLS) - at)
        if limit_s <= 0:
            found[tool] = LATE
            continue
        command = [program, "--tool", tool, "--error-exitcode", "9", *_command("bare", folder, 0.8 * limit_s)]
        found[tool] = _sanitized(command, limit_s, total)
        findings.note(tool, 1, 1)


def _sanitized(command: Sequence[str], limit_s: float, total: int) -> dict[str, Any]:
    """Return how many kernels ran, which of them failed, and what the tool said; the time need not suffice."""
    end = time.monotonic() + limit_s
    with Child(command) as child:
        entries = []
        while (found := child.line(end - time.monotonic())) is not None:
            entries += [found] if isinstance(found, dict) else []
        ran = [entry for entry in entries if "failure" in entry]
        return {
            "status": child.status,
            "ran": f"{len(ran)} of {total}",
            "failed": [entry for entry in ran if entry["failure"] is not None],
            "log": child.other[:_LOG_LINES] + child.other[_LOG_LINES:][-4:],
        }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what prepare_gpu_check wrote")
    parser.add_argument("-o", "--output", type=Path, help="write the findings to this file, not to stdout")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="start nothing after this time (%(default)s)")
    parser.add_argument("--bare", action="store_true", help="only check kernels of all schedules and types")
    return parser


if __name__ == "__main__":
    sys.exit(main())
