"""What `korch doctor` looks at, one function a subject."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from korch_cli.cli.cuda_checkup import examine_cuda
from korch_cli.cli.options import processors
from korch_cli.core.errors import KorchError
from korch_cli.report import Check, Level
from korch_cli.version import __version__

_OLDEST_PYTHON = (3, 11)
_NEEDED = ("numpy", "onnx", "onnx-graphsurgeon", "ortools")
_FREE_BYTES = 1 << 30
_INSTALL = "pip install onnxruntime"


def examine(compiler: str | None) -> tuple[Check, ...]:
    """Look at everything; `compiler` is the C++ compiler to try, None for the one that korch would take."""
    checks = [
        _python(),
        *map(_package, _NEEDED),
        _guarded("onnxruntime", _onnxruntime),
        _guarded("compiler", lambda: _compiler(compiler)),
        _processor(),
        _guarded("cache", _cache),
        _load(),
        *examine_cuda(),
    ]
    return tuple(checks)


def _guarded(subject: str, look: Callable[[], Check]) -> Check:
    """Make a problem of what `look` raises, so that the checks after it take place."""
    try:
        return look()
    except KorchError as error:
        return Check(Level.PROBLEM, subject, error.message, error.hint or "")


def _python() -> Check:
    finding = f"{platform.python_version()} at {sys.executable}, korch {__version__}"
    if sys.version_info < _OLDEST_PYTHON:
        return Check(Level.PROBLEM, "python", finding, "install Python 3.11 or newer")
    return Check(Level.OK, "python", finding)


def _package(name: str) -> Check:
    try:
        return Check(Level.OK, name, metadata.version(name))
    except metadata.PackageNotFoundError:
        return Check(Level.PROBLEM, name, "not installed", f"pip install {name}")


def _onnxruntime() -> Check:
    from korch_cli.verify import require_onnxruntime  # onnx comes with it

    version = require_onnxruntime()
    try:
        import onnxruntime
    except ImportError as error:
        return Check(Level.PROBLEM, "onnxruntime", f"{version} does not load: {error}", _INSTALL)
    return Check(Level.OK, "onnxruntime", f"{version} with {', '.join(onnxruntime.get_available_providers())}")


def _compiler(preference: str | None) -> Check:
    from korch_cli.toolchain import find_compiler

    return Check(Level.OK, "compiler", find_compiler(preference).identity)


def _processor() -> Check:
    vectors = [name for name in ("avx2", "fma", "avx512f", "asimd") if name in _processor_line("flags", "Features")]
    model = _processor_line("model name") or platform.processor() or "unknown"
    count = processors()
    threads = "1 processor" if count == 1 else f"{count} processors"
    return Check(Level.OK, "processor", f"{model}, {platform.machine()}, {threads}, {' '.join(vectors) or 'baseline'}")


def _processor_line(*keys: str) -> str:
    """Return what /proc/cpuinfo says under the first of the keys that it has, "" where there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() in keys), "")


def _cache() -> Check:
    from korch_cli.measure import default_folder

    folder = default_folder()
    free = shutil.disk_usage(folder).free
    if free < _FREE_BYTES:
        advice = "free some space, or set KORCH_CACHE_DIR to a folder on another disk"
        return Check(Level.WARNING, "cache", f"{folder} has {free / _FREE_BYTES:.1f} GiB left", advice)
    return Check(Level.OK, "cache", f"{folder}, {free / _FREE_BYTES:.0f} GiB free")


def _load() -> Check:
    """Timings on a machine that does something else at the same time mislead the search."""
    if not hasattr(os, "getloadavg"):
        return Check(Level.OK, "load", "unknown on this system")
    load = os.getloadavg()[0]
    finding = f"{load:.1f} in the last minute"
    if load > processors():
        return Check(Level.WARNING, "load", finding, "other programs run now; timings will vary")
    return Check(Level.OK, "load", finding)
