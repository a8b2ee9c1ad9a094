"""The machine, the versions, and whether anything else is running."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from korch_cli.toolchain.compiler import find_compiler

QUIET = 0.15
"""The machine is loaded if other processes use more than this share of all processors."""
_PACKAGES = {
    "korch-cli": "",
    "onnx": "",
    "onnxruntime": "",
    "ortools": "",
    "openvino": "openvino",
    "torch": "torch",
    "timm": "torch",
    "transformers": "torch",
    "apache-tvm": "tvm",
}
"""What figures depend on, and the runtime whose interpreter has it; timm and transformers make models."""
_CPUINFO = Path("/proc/cpuinfo")
_ROOT = Path(__file__).parents[1]
_CODE = ("src", "models", "benchmarks")
_WITHOUT_EFFECT = {
    "agreement.py",
    "agenda.py",
    "cases.py",
    "gpu_estimates.py",
    "journal.py",
    "naming.py",
    "page.py",
    "run.py",
}
"""Of the benchmarks: what arranges and shows figures and cannot change one."""


def describe(threads: int, pythons: Mapping[str, str]) -> dict[str, Any]:
    """Return the machine, the versions and the commit that figures hold for.

    Args:
        threads: of every runtime.
        pythons: interpreters by the runtime that is installed there.
    """
    versions = {name: _version(name, pythons.get(runtime)) for name, runtime in _PACKAGES.items()}
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": _cpuinfo("model name") or platform.processor() or "unknown",
        "processor_model": _processor_model(),
        "processors": os.cpu_count() or 1,
        "threads": threads,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "compiler": find_compiler().identity,
        "commit": _commit(),
        "versions": {name: version for name, version in versions.items() if version is not None},
    }


def code(root: Path = _ROOT) -> dict[str, str]:
    """Return a digest of the files in each folder of code that can change a figure, as they lie on the disk."""
    return {name: _digest(root / name) for name in _CODE}


def _digest(folder: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        parts = path.relative_to(folder).parts
        made = any(part.startswith((".", "__pycache__")) or part.endswith(".egg-info") for part in parts)
        shown = folder.name == "benchmarks" and (parts[0] == "results" or parts[0] in _WITHOUT_EFFECT)
        if not made and not shown and path.suffix not in (".md", ".onnx"):
            found.update(f"{'/'.join(parts)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return found.hexdigest()[:16]


def load(seconds: float = 1.0) -> float:
    """Return the share of all processors that is in use, or taken by other machines, while this process waits."""
    before = _jiffies()
    time.sleep(seconds)
    after = _jiffies()
    spent = [b - a for a, b in zip(before, after, strict=True)]
    idle = spent[3] + spent[4]
    return 1.0 - idle / max(1, sum(spent[:8]))


def _jiffies() -> list[int]:
    return [int(word) for word in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]]


def _processor_model() -> str:
    """Return what tells apart processors that give the same name: machines of one kind may differ in it."""
    family, model = _cpuinfo("cpu family"), _cpuinfo("model")
    flags = _cpuinfo("flags").split()
    vectors = next((name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags), "")
    told = [f"family {family}" if family else "", f"model {model}" if model else "", vectors]
    return ", ".join(part for part in told if part) or platform.machine()


def _cpuinfo(field: str) -> str:
    """Return what Linux says of the first processor; nothing where it does not say it."""
    for line in _CPUINFO.read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return ""


def _commit() -> str:
    """Return the commit, and whether code differs from it; figures and documents may."""
    commit = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--", *_CODE, ":!benchmarks/results", ":!*.md")
    return (commit or "unknown") + ("-dirty" if changed else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=_ROOT, check=False, capture_output=True, text=True)
    return done.stdout.strip()


def _version(package: str, python: str | None) -> str | None:
    if python is None:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return None
    ask = f"import importlib.metadata as m; print(m.version({package!r}))"
    found = subprocess.run([python, "-c", ask], check=False, capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else None
