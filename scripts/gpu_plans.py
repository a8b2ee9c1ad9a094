"""Kernels that were prepared for `gpu_check` on another machine: a folder of images, and a file that describes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from korch_cli.core.gpu import Resources
from korch_cli.core.launch import CudaKernel, Launch

SCHEMA = "korch.gpu-check-plans/1"
_FILE = "kernels.json"


@dataclass(frozen=True, slots=True)
class PreparedKernel:
    """A kernel, compiled.

    Attributes:
        group: "sizes" for every schedule and type at odd sizes, "workloads", or the name of a model.
        label: what it computes, in words.
        graph: the body, in the text form of graphs.
        kernel: without its source.
        images: file names of cubins, by compute capability times ten.
        resources: what its functions need, by the same.
    """

    group: str
    label: str
    graph: str
    kernel: CudaKernel
    images: Mapping[int, str]
    resources: Mapping[int, Mapping[str, Resources]]

    def capability_for(self, device: int) -> int | None:
        """Return that of the image for a GPU of this compute capability; None if none runs there."""
        fitting = [c for c in self.images if c <= device and c // 10 == device // 10]
        return max(fitting, default=None)


@dataclass(frozen=True, slots=True)
class Plans:
    """What was prepared.

    Attributes:
        made_with: versions.
        kernels: all kernels.
        models: for each model what `korch optimize` wrote, as file names: the input, the output, the shapes of inputs.
    """

    made_with: Mapping[str, str]
    kernels: tuple[PreparedKernel, ...]
    models: Mapping[str, Mapping[str, Any]]


def write_plans(plans: Plans, folder: Path) -> None:
    """Describe what is in the folder."""
    document = {
        "schema": SCHEMA,
        "made_with": plans.made_with,
        "kernels": [asdict(kernel) for kernel in plans.kernels],
        "models": plans.models,
    }
    (folder / _FILE).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def read_plans(folder: Path) -> Plans:
    """Return what is in the folder. Raises ValueError: another version wrote it."""
    document = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    if document["schema"] != SCHEMA:
        raise ValueError(f"{folder} was prepared by another version")
    return Plans(document["made_with"], tuple(map(_kernel, document["kernels"])), document["models"])


def _kernel(entry: dict[str, Any]) -> PreparedKernel:
    fields = dict(entry["kernel"])
    fields["launches"] = tuple(map(_launch, fields["launches"]))
    fields["scratch"] = tuple(fields["scratch"])
    return PreparedKernel(
        entry["group"],
        entry["label"],
        entry["graph"],
        CudaKernel(**fields),
        {int(capability): name for capability, name in entry["images"].items()},
        {
            int(capability): {name: Resources(**needs) for name, needs in functions.items()}
            for capability, functions in entry["resources"].items()
        },
    )


def _launch(fields: dict[str, Any]) -> Launch:
    return Launch(
        fields["function"],
        _extents(fields["grid"]),
        _extents(fields["block"]),
        fields["shared_bytes"],
        tuple((kind, index) for kind, index in fields["arguments"]),
    )


def _extents(given: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = given
    return x, y, z
