"""Run an optimised model on several versions of ONNX Runtime, with its library and without it.

Every version gets an environment of its own, made once under build/compat. The outputs are compared with those of this
environment's ONNX Runtime without the library and without optimisations; with the library every kernel must have run,
without it none. Exits with 1 if anything is not so, or if a version cannot be installed.

    python scripts/compat.py build/demo/ppocr_rec.onnx --versions 1.17.3,1.20.1,1.23.2
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

VERSIONS = "1.17.3,1.20.1,1.23.2"
"""Besides the version of this environment, which is always tried."""
SEED = 0
RTOL, ATOL = 1e-3, 1e-4
"""Versions of ONNX Runtime differ among themselves by more than a kernel may."""

RUNNER = """
import json, sys
import numpy as np
import onnxruntime

model, library, folder = sys.argv[1:4]
rtol, atol = map(float, sys.argv[4:6])
kernels = set(json.loads(sys.argv[6]))
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.enable_profiling = True
options.profile_file_prefix = folder + "/profile"
if library:
    options.register_custom_ops_library(library)
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
with np.load(folder + "/inputs.npz") as inputs:
    outputs = session.run(None, dict(inputs))
with open(session.end_profiling()) as trace:
    ran = kernels & {event.get("args", {}).get("op_name") for event in json.load(trace)}
worst = 0.0
with np.load(folder + "/outputs.npz") as expected:
    for info, got in zip(session.get_outputs(), outputs, strict=True):
        want = expected[info.name]
        if got.shape != want.shape:
            sys.exit(f"{info.name} has the shape {list(got.shape)} instead of {list(want.shape)}")
        same = (got == want) | ((got != got) & (want != want))
        with np.errstate(invalid="ignore"):
            error = np.abs(got.astype(np.float64) - want) / (atol + rtol * np.abs(want))
        # A NaN or an infinity where none belongs is wrong by any tolerance; a maximum would drop it.
        error = np.where(same, 0.0, np.where(np.isfinite(error), error, np.inf))
        worst = max(worst, float(error.max(initial=0.0)))
print(json.dumps({"version": onnxruntime.__version__, "worst": worst, "ran": len(ran)}))
"""


def main() -> None:
    """Try all versions and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="an ONNX file that korch wrote")
    parser.add_argument("--versions", default=VERSIONS, help="versions of ONNX Runtime, separated by commas")
    parser.add_argument("--folder", type=Path, default=Path("build/compat"), help="where the environments are made")
    arguments = parser.parse_args()
    library = arguments.model.with_suffix(".korch.so")
    if not library.exists():
        parser.error(f"{library} does not exist; korch left this model unchanged, or it is not korch's")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _references(arguments.model, folder)
        kernels = _kernels(arguments.model)
        ok = report(Path(sys.executable), arguments.model, library, kernels, folder)
        for version in filter(None, arguments.versions.split(",")):
            try:
                python = _environment(version, arguments.folder)
            except subprocess.CalledProcessError as error:
                print(f"FAILED  onnxruntime {version:12} cannot be installed: exit code {error.returncode}")
                ok = False
                continue
            ok &= report(python, arguments.model, library, kernels, folder)
    sys.exit(0 if ok else 1)


def _kernels(model: Path) -> list[str]:
    """Return the operators of the library: those that have a function of their name."""
    import onnx

    proto = onnx.load(model, load_external_data=False)
    functions = {(function.domain, function.name) for function in proto.functions}
    return sorted({node.op_type for node in proto.graph.node if (node.domain, node.op_type) in functions})


def _references(model: Path, folder: Path) -> None:
    """Write random inputs and the outputs that they give here, without the library and without optimisations."""
    import numpy as np
    import onnxruntime

    from korch_cli.core.model import Bindings
    from korch_cli.verify import bind_inputs, draw_inputs

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    (feeds,) = draw_inputs(model, bind_inputs(model, Bindings({}, {})), seed=SEED, runs=1)
    names = [info.name for info in session.get_outputs()]
    inputs: dict[str, Any] = dict(feeds)
    outputs: dict[str, Any] = dict(zip(names, session.run(None, feeds), strict=True))
    np.savez(folder / "inputs.npz", **inputs)
    np.savez(folder / "outputs.npz", **outputs)


def _environment(version: str, folder: Path) -> Path:
    """Return the interpreter of an environment with this version of ONNX Runtime."""
    made = folder / f"onnxruntime-{version}"
    python = made / "bin" / "python"
    ready = made / ".ready"
    if not ready.exists():
        print(f"making {made}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(made)], check=True)
        # The older versions were built for numpy 1.
        numpy = "numpy<2" if tuple(map(int, version.split(".")[:2])) < (1, 19) else "numpy"
        packages = [f"onnxruntime=={version}", numpy]
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
        ready.touch()
    return python


def report(python: Path, model: Path, library: Path, kernels: list[str], folder: Path) -> bool:
    """Print a line for the model with its library and one for the model alone; return whether both are right.

    Args:
        python: interpreter of an environment with ONNX Runtime.
        model: what to run.
        library: its library.
        kernels: operators of the library.
        folder: holds inputs.npz and the expected outputs.npz, by name.
    """
    with_it = _line(python, model, str(library.resolve()), kernels, folder, "with the library")
    without = _line(python, model, "", kernels, folder, "without it")
    return with_it and without


def _line(python: Path, model: Path, library: str, kernels: list[str], folder: Path, name: str) -> bool:
    command = [str(python), "-c", RUNNER, str(model.resolve()), library, str(folder), str(RTOL), str(ATOL)]
    command.append(json.dumps(kernels))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        print(f"FAILED  {python.parent.parent.name:24} {name:18} {lines[-1][:120]}")
        return False
    found = json.loads(done.stdout.splitlines()[-1])
    passed = found["worst"] <= 1.0 and found["ran"] == (len(kernels) if library else 0)
    verdict = "ok    " if passed else "FAILED"
    share = f"{found['ran']} of {len(kernels)} kernels ran, worst error {found['worst']:.2f} of the tolerance"
    print(f"{verdict}  onnxruntime {found['version']:12} {name:18} {share}")
    return bool(passed)


if __name__ == "__main__":
    main()
