"""How models run on this machine, for the target that they are optimised for."""

from __future__ import annotations

from dataclasses import dataclass

CPU, CUDA = "cpu", "cuda"
"""The targets."""


@dataclass(frozen=True, slots=True)
class Execution:
    """What ONNX Runtime can do here with a model and its kernel library.

    Attributes:
        provider: that sessions run on.
        registers: whether sessions can be made with the library.
        runs_kernels: whether the library's kernels then run; else the functions that stand for them do, and neither
            kernels nor whole models can be timed.
    """

    provider: str = "CPUExecutionProvider"
    registers: bool = True
    runs_kernels: bool = True


ON_CPU = Execution()
