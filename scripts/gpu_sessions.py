"""Whole models through ONNX Runtime's CUDA provider, for `gpu_check`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

_SECONDS = 8.0


def run_model(model: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Compare a model's output with its input, and time both.

    Raises:
        Exception: ONNX Runtime or its CUDA provider is missing.
    """
    from korch_cli import verify
    from korch_cli.core.model import Bindings
    from korch_cli.core.progress import Silent

    verify.require_cuda()
    source, output = folder / model["input"], folder / model["output"]
    shapes = {given: tuple(shape) for given, shape in model["shapes"].items()}
    feeds = verify.draw_inputs(source, verify.bind_inputs(source, Bindings({}, shapes)), seed=0, runs=2)
    library = verify.find_library(output)
    fast = verify.Subject("output", output, library, True, verify.CUDA_PROVIDER)
    verdict = verify.verify_models(
        verify.Subject("input", source, None, optimize=False),
        fast,
        feeds,
        rtol=1e-3,
        atol=1e-4,
        variant="with the library",
        threads=4,
    )
    own = verify.Subject("input", source, None, True, verify.CUDA_PROVIDER)
    compared = verify.compare_speed([own, fast], feeds[0], threads=4, seconds=_SECONDS, progress=Silent())
    return {"verdict": asdict(verdict), "ratio": asdict(compared.ratios[0])}
