"""What passes between emit, toolchain and measure: entries of a kernel library, and jobs and results of measuring."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from korch_cli.core.gpu import Image
from korch_cli.core.kernel import Kernel, KernelBody, Timing
from korch_cli.core.launch import CudaKernel, Launch
from korch_cli.core.types import TensorType


@dataclass(frozen=True, slots=True)
class LibraryEntry:
    """One custom operator of a kernel library; it is named `kernel.name`.

    Attributes:
        kernel: what runs.
        inputs: static types of the operands, in the order of the kernel's `in` pointers.
        outputs: static types of the results, in the order of its `out` pointers.
    """

    kernel: Kernel
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]

    @classmethod
    def of(cls, body: KernelBody, kernel: Kernel) -> LibraryEntry:
        """Return the entry of a kernel that computes `body`."""
        inputs = tuple(value.type for value in body.graph.inputs())
        return cls(kernel, inputs, tuple(body.graph.values[v].type for v in body.graph.outputs))


@dataclass(frozen=True, slots=True)
class CudaEntry:
    """One custom operator of a library of CUDA kernels; it is named `kernel.name`.

    Attributes:
        kernel: what runs.
        inputs: static types of the operands, in the order of the kernel's `in` pointers.
        outputs: static types of the results, in the order of its `out` pointers.
        images: the kernel, compiled for several architectures.
    """

    kernel: CudaKernel
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    images: tuple[Image, ...]


@dataclass(frozen=True, slots=True)
class KernelJob:
    """What measuring one kernel needs.

    Attributes:
        digest: of the body that the kernel computes.
        name: of the kernel, and of its operator.
        model: an ONNX file whose graph holds `replicas` nodes of the operator `name`. Each reads graph inputs of its
            own (equal nodes with equal inputs would be merged, and one buffer would stay in the first cache) and
            writes graph outputs. A model-local function of the same name computes the same with standard operators.
        domain: of the operator.
        replicas: number of nodes.
        library: shared library that registers the operator.
        inputs: name and type of every graph input.
        rtol: relative tolerance of the check, |a - b| <= atol + rtol * |b| where b is the expected value.
        atol: absolute tolerance.
    """

    digest: str
    name: str
    model: Path
    domain: str
    replicas: int
    library: Path
    inputs: tuple[tuple[str, TensorType], ...]
    rtol: float
    atol: float


@dataclass(frozen=True, slots=True)
class CudaJob:
    """What measuring one CUDA kernel needs.

    Attributes:
        name: of the kernel, and of its operator.
        model: an ONNX file whose graph holds one node of the operator `name`, with a model-local function that computes
            the same with standard operators.
        image: the cubin that ships.
        launches: in order, on one stream.
        scratch: bytes of each scratch buffer.
        inputs: name and type of every graph input, in the order of the kernel's `in` pointers.
        outputs: types of the results, in the order of its `out` pointers.
        rtol: relative tolerance of the check, |a - b| <= atol + rtol * |b| where b is the expected value.
        atol: absolute tolerance.
    """

    name: str
    model: Path
    image: Path
    launches: tuple[Launch, ...]
    scratch: tuple[int, ...]
    inputs: tuple[tuple[str, TensorType], ...]
    outputs: tuple[TensorType, ...]
    rtol: float
    atol: float


@dataclass(frozen=True, slots=True)
class KernelResult:
    """What measuring one kernel found.

    Attributes:
        name: of the kernel.
        timing: one run of the kernel, its dispatch included; None where the kernel failed.
        alternative: ONNX Runtime's own nodes for the same, measured beside it; None if they could not be.
        failure: one sentence: why the kernel must not be used; None where it is sound.
    """

    name: str
    timing: Timing | None
    alternative: Timing | None
    failure: str | None
