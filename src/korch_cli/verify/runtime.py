"""Whether ONNX Runtime is there, alone, and recent enough."""

from __future__ import annotations

import importlib
import importlib.util
import re
from importlib import metadata

from korch_cli.core.errors import MissingError
from korch_cli.verify.driver import find_driver
from korch_cli.verify.library import CUDA_PROVIDER

_OLDEST = (1, 17)
_PACKAGES = ("onnxruntime", "onnxruntime-gpu")
_INSTALL = "pip install --upgrade onnxruntime"


def require_onnxruntime() -> str:
    """Return the version of the installed ONNX Runtime; it is imported only where no package names its version.

    Raises:
        MissingError: there is none, two packages overwrite each other, or it is older than 1.17.
    """
    found = {name: version for name in _PACKAGES if (version := _installed(name)) is not None}
    if len(found) > 1:
        raise MissingError(
            "both onnxruntime and onnxruntime-gpu are installed, and they overwrite each other's files",
            hint=f"pip uninstall -y {' '.join(_PACKAGES)}, then {_INSTALL}",
        )
    version = next(iter(found.values())) if found else _unpackaged()
    if _release(version) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise MissingError(f"ONNX Runtime {version} is too old; korch needs {oldest} or newer", hint=_INSTALL)
    return version


def require_cuda() -> None:
    """Make sure that models can run on a GPU here.

    Raises:
        MissingError: this ONNX Runtime has no CUDA provider, or there is no GPU.
    """
    require_onnxruntime()
    import onnxruntime

    if CUDA_PROVIDER not in onnxruntime.get_available_providers():
        hint = "pip uninstall onnxruntime, then pip install onnxruntime-gpu"
        raise MissingError("this ONNX Runtime does not run models on a GPU", hint=hint)
    find_driver()


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _unpackaged() -> str:
    """Return the version of a build from source or under another name."""
    if importlib.util.find_spec("onnxruntime") is None:
        raise MissingError("ONNX Runtime is not installed", hint=_INSTALL)
    try:
        return str(importlib.import_module("onnxruntime").__version__)
    except (ImportError, AttributeError) as error:
        raise MissingError(f"ONNX Runtime is installed but does not load: {error}", hint=_INSTALL) from error


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
