"""The machine, the versions, and whether anything else is running."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

QUIET = 0.15
"""The machine is loaded if other processes use more than this share of all processors."""
_PACKAGES = ("korch-cli", "onnx", "onnxruntime", "ortools", "openvino", "torch", "apache-tvm")


def describe(threads: int, pythons: tuple[str, ...]) -> dict[str, Any]:
    """Return the machine, the versions and the commit that figures hold for."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": _processor(),
        "processors": os.cpu_count() or 1,
        "threads": threads,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "commit": _commit(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name, pythons)) is not None},
    }


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


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _commit() -> str:
    here = Path(__file__).parent
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=here, check=False, capture_output=True, text=True
    )
    return found.stdout.strip() or "unknown"


def _version(package: str, pythons: tuple[str, ...]) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        pass
    ask = f"import importlib.metadata as m; print(m.version({package!r}))"
    for python in pythons:
        found = subprocess.run([python, "-c", ask], check=False, capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.strip()
    return None
