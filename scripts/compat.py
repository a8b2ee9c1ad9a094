"""Run an optimised model on several versions of ONNX Runtime, with its library and without it.

Every version gets an environment of its own, made once under build/compat. The outputs are compared with those of this
environment's ONNX Runtime without the library and without optimisations. Exits with 1 if any differ.

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
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
if library:
    options.register_custom_ops_library(library)
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
with np.load(folder + "/inputs.npz") as inputs:
    outputs = session.run(None, dict(inputs))
worst = 0.0
with np.load(folder + "/outputs.npz") as expected:
    for info, got in zip(session.get_outputs(), outputs):
        want = expected[info.name]
        allowed = float(sys.argv[5]) + float(sys.argv[4]) * np.abs(want)
        error = np.abs(got.astype(np.float64) - want)
        worst = max(worst, float((error / allowed).max(initial=0.0)))
print(json.dumps({"version": onnxruntime.__version__, "worst": worst}))
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
        pythons = [Path(sys.executable)]
        pythons += [_environment(v, arguments.folder) for v in arguments.versions.split(",") if v]
        ok = True
        for python in pythons:
            for name, path in (("with the library", str(library.resolve())), ("without it", "")):
                ok &= _report(python, arguments.model, path, folder, name)
    sys.exit(0 if ok else 1)


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


def _report(python: Path, model: Path, library: str, folder: Path, name: str) -> bool:
    command = [str(python), "-c", RUNNER, str(model.resolve()), library, str(folder), str(RTOL), str(ATOL)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        print(f"FAILED  {python.parent.parent.name:24} {name:18} {lines[-1][:120]}")
        return False
    found = json.loads(done.stdout.splitlines()[-1])
    passed = found["worst"] <= 1.0
    verdict = "ok    " if passed else "FAILED"
    share = f"worst error {found['worst']:.2f} of the tolerance"
    print(f"{verdict}  onnxruntime {found['version']:12} {name:18} {share}")
    return bool(passed)


if __name__ == "__main__":
    main()
