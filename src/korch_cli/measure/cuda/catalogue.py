"""The GPUs of gpus.toml, and the assumptions of the model beside them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from korch_cli.core.errors import UsageError
from korch_cli.core.gpu import Gpu, capability_of


@cache
def _document() -> Mapping[str, Any]:
    file = resources.files("korch_cli.measure.cuda") / "gpus.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def model_constants() -> Mapping[str, float]:
    """Return the assumptions of the model, by name."""
    constants: Mapping[str, float] = _document()["model"]
    return constants


@cache
def known_gpus() -> tuple[Gpu, ...]:
    """Return all GPUs that there are figures of."""
    return tuple(
        Gpu(
            name=entry["name"],
            capability=entry["capability"],
            processors=entry["processors"],
            bytes_per_second=entry["gigabytes"] * 1e9,
            flops_per_second=entry["teraflops"] * 1e12,
            half_flops_per_second=entry["half_teraflops"] * 1e12,
            cache_bytes=entry["cache_megabytes"] * 1_000_000,
            shared_bytes=entry["shared_kilobytes"] << 10,
            threads=entry["threads"],
            blocks=entry["blocks"],
        )
        for entry in _document()["gpu"]
    )


def named_gpu(name: str) -> Gpu:
    """Return the GPU of a name; case does not matter. Raises UsageError."""
    for gpu in known_gpus():
        if gpu.name.lower() == name.lower():
            return gpu
    hint = f"known are {', '.join(gpu.name for gpu in known_gpus())}"
    raise UsageError("there are no figures of this GPU", where=name, hint=hint)


def gpu_of(arch: str) -> Gpu:
    """Return the GPU that stands for an architecture. Raises UsageError."""
    for gpu in known_gpus():
        if gpu.capability == capability_of(arch):
            return gpu
    hint = f"name one to estimate times for with --gpu: {', '.join(gpu.name for gpu in known_gpus())}"
    raise UsageError("there are no figures of a GPU of this architecture", where=arch, hint=hint)
