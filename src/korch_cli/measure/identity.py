"""Names for the machine and for the place where its figures are kept."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path

from korch_cli.core.errors import MissingError
from korch_cli.core.processor import Feature


def machine_identity(threads: int) -> str:
    """Return the processor, its instruction sets, ONNX Runtime's version and the thread count in one string.

    Figures of machines with different identities are never mixed.
    """
    model, features = _processor()
    digest = hashlib.sha256(features.encode()).hexdigest()[:8]
    runtime = next((v for v in map(_version, ("onnxruntime", "onnxruntime-gpu")) if v), "none")
    cores = os.cpu_count() or 1
    return f"{model} {digest}, {cores} processors, {threads} threads, ONNX Runtime {runtime}"


def missing_features(features: Sequence[Feature]) -> tuple[str, ...]:
    """Return the names of those that this machine's processors lack, as far as the system says what they have."""
    known = frozenset(_processor()[1].split())
    return tuple(feature.name for feature in features if feature.name not in known) if len(known) > 1 else ()


def chosen_folder() -> Path:
    """Return where the store is to be: KORCH_CACHE_DIR, else korch in XDG_CACHE_HOME, else ~/.cache/korch.

    Raises:
        MissingError: nothing says so, and there is no home folder.
    """
    chosen = os.environ.get("KORCH_CACHE_DIR")
    if chosen:
        return Path(chosen)
    shared = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(shared) if shared else Path.home() / ".cache") / "korch"
    except RuntimeError as error:
        raise MissingError("there is no home folder for the cache", hint="name a folder in KORCH_CACHE_DIR") from error


def default_folder() -> Path:
    """Return `chosen_folder`, made if it is not there.

    Raises:
        MissingError: it cannot be made or written.
    """
    folder = chosen_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise MissingError(
            f"the cache folder cannot be written: {error.strerror}",
            where=str(folder),
            hint="name another folder in KORCH_CACHE_DIR",
        ) from error
    return folder


def _processor() -> tuple[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine(), platform.machine()
    found: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), value.strip())
    return found.get("model name", platform.machine()), found.get("flags", found.get("Features", ""))


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
