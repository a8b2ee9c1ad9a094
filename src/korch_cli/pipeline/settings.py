"""What `korch optimize` can be told."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from korch_cli.core.companions import library_beside, plan_beside
from korch_cli.core.model import Bindings
from korch_cli.core.types import Array


def available_processors() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Settings:
    """The choices of one run.

    Attributes:
        source: the model to optimise.
        output: the model to write; the library and the plan are written beside it.
        bindings: values of symbolic dimensions.
        threads: threads that the model will run with, and so those that every timing uses.
        jobs: compilers that run at the same time.
        seed: of the random inputs that the outputs are compared on.
        inputs: inputs that are not drawn at random, by name.
        rtol: relative tolerance of float32 outputs against the input model without optimisations.
        atol: absolute tolerance of the same.
        gap: the search stops when its plan is proven to be within this share of the optimum.
        budget_s: seconds that the search may take.
        solver_time_s: seconds that one solution of the program may take.
        max_primitives: primitives in one kernel.
        compiler: the C++ compiler to use, None for the first that works.
        processor: what kernels are built for, one of `core.processor.PROCESSORS`; None for what the plan says, else the
            processor at hand.
        plan: a plan file to build again, without search and timing.
        portable: keep to operators of ONNX's own domain where nodes are replaced by others that ONNX Runtime has.
        target: "cpu" or "cuda".
        archs: architectures to compile for, e.g. sm_90; of CUDA, none for the usual ones.
        gpu: the GPU that times are estimated for; None for the one that stands for the first architecture.
        force_fusion: put everything that can be generated into kernels and time nothing.
    """

    source: Path
    output: Path
    bindings: Bindings = field(default_factory=lambda: Bindings({}, {}))
    threads: int = field(default_factory=available_processors)
    jobs: int = field(default_factory=available_processors)
    seed: int = 0
    inputs: Mapping[str, Array] = field(default_factory=dict)
    rtol: float = 1e-4
    atol: float = 1e-5
    gap: float = 0.02
    budget_s: float = 420.0
    solver_time_s: float = 20.0
    max_primitives: int = 16
    compiler: str | None = None
    processor: str | None = None
    plan: Path | None = None
    portable: bool = False
    target: str = "cpu"
    archs: tuple[str, ...] = ()
    gpu: str | None = None
    force_fusion: bool = False

    @property
    def library(self) -> Path:
        """The kernel library to write."""
        return library_beside(self.output)

    @property
    def document(self) -> Path:
        """The plan to write."""
        return plan_beside(self.output)

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that may be written."""
        return self.output, self.output.with_name(f"{self.output.name}.data"), self.library, self.document
