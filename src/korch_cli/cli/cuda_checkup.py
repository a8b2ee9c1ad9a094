"""What `korch doctor` looks at for the CUDA target; for CPUs none of it is needed, so nothing missing is a problem."""

from __future__ import annotations

from importlib import metadata

from korch_cli.core.errors import MissingError
from korch_cli.report import Check, Level

_NEEDLESS = "not needed for CPUs"
_CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")


def examine_cuda() -> tuple[Check, ...]:
    """Look at the driver, NVRTC, CuPy and ONNX Runtime's CUDA provider."""
    driver, has_gpu = _driver()
    return driver, _nvrtc(), _cupy(has_gpu=has_gpu), _provider(has_gpu=has_gpu)


def _driver() -> tuple[Check, bool]:
    from korch_cli.verify import find_driver  # onnx comes with it

    try:
        found = find_driver()
    except MissingError as error:
        return Check(Level.OK, "gpu", f"none: {error.message} ({_NEEDLESS})", error.hint or ""), False
    names = ", ".join(f"{gpu.name} (sm_{gpu.capability})" for gpu in found.devices)
    return Check(Level.OK, "gpu", f"{names}; driver for CUDA {'.'.join(map(str, found.version))}"), True


def _nvrtc() -> Check:
    from korch_cli.toolchain import find_nvrtc

    try:
        found = find_nvrtc()
    except MissingError:
        return Check(Level.OK, "nvrtc", f"not installed ({_NEEDLESS}); --target cuda needs nvidia-cuda-nvrtc")
    known = " ".join(map(str, found.capabilities))
    return Check(Level.OK, "nvrtc", f"{'.'.join(map(str, found.version))} at {found.library}, for sm_ {known}")


def _cupy(*, has_gpu: bool) -> Check:
    for package in _CUPY:
        try:
            return Check(Level.OK, "cupy", f"{metadata.version(package)} ({package})")
        except metadata.PackageNotFoundError:
            continue
    if has_gpu:
        advice = "pip install cupy-cuda13x: kernels are measured through it; without it, times are estimated"
        return Check(Level.WARNING, "cupy", "not installed", advice)
    return Check(Level.OK, "cupy", f"not installed ({_NEEDLESS})")


def _provider(*, has_gpu: bool) -> Check:
    try:
        import onnxruntime
    except ImportError:
        return Check(Level.OK, "cuda provider", "ONNX Runtime does not load")
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        return Check(Level.OK, "cuda provider", "ONNX Runtime has it" + ("" if has_gpu else ", and no GPU to run on"))
    if has_gpu:
        advice = "pip uninstall onnxruntime, then pip install onnxruntime-gpu"
        return Check(Level.WARNING, "cuda provider", "this ONNX Runtime runs models on the CPU alone", advice)
    return Check(Level.OK, "cuda provider", f"not in this ONNX Runtime ({_NEEDLESS})")
