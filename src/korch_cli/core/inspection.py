"""What `korch inspect` finds in a model, in a form that `report` renders as text or JSON."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExternalFile:
    """A file beside the model that holds elements of its tensors.

    Attributes:
        name: as the model writes it, relative to its folder.
        tensors: how many lie in it.
        size_bytes: of these tensors together.
    """

    name: str
    tensors: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A model file as it is, before anything is bound, inlined or folded.

    Attributes:
        producer: name and version of the program that wrote it, "" if it does not say.
        ir_version: of the file.
        opsets: imported version by domain; the default domain is "ai.onnx".
        nodes: in the graph, those of functions and subgraphs aside.
        functions: model-local ones.
        tensors: that hold elements: initializers and attributes, in subgraphs too.
        size_bytes: of these tensors together, wherever they lie.
        external: the files that hold some of them, by name.
        kernels: for each domain of korch's, how many nodes run each of its operators.
    """

    producer: str
    ir_version: int
    opsets: dict[str, int]
    nodes: int
    functions: int
    tensors: int
    size_bytes: int
    external: tuple[ExternalFile, ...]
    kernels: dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class PortRecord:
    """An input or an output of the model, with the numbers that its dimensions were given.

    Attributes:
        name: of the tensor.
        dtype: element type, None if it is not known before the model runs.
        shape: extents, None if they are not known before the model runs.
    """

    name: str
    dtype: str | None
    shape: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class PrimitiveCount:
    """How many primitives of one kind there are; `function` says which one of it, "" where there is but one."""

    kind: str
    function: str
    count: int


@dataclass(frozen=True, slots=True)
class OpaqueRecord:
    """An operator that is left to ONNX Runtime as a whole, and why it was not split."""

    name: str
    op_type: str
    domain: str
    reason: str


@dataclass(frozen=True, slots=True)
class CandidateRecord:
    """What a search would choose among.

    Attributes:
        operators: kernels of ONNX Runtime's, one for each operator that computes something.
        enumerated: sets of primitives that one generated kernel could compute.
        distinct: kernels that this takes, because equal layers share theirs.
        tried: distinct ones that the code generator was asked for.
        accepted: of these, how many it generates, by schedule.
        refused: of these, how many it declines, by sentence.
        inexpressible: of these, how many standard operators cannot say, by sentence.
        left_out: primitives and sets that were not looked at, by reason; limits of the search are among them.
        max_primitives: in one kernel.
    """

    operators: int
    enumerated: int
    distinct: int
    tried: int
    accepted: dict[str, int]
    refused: dict[str, int]
    inexpressible: dict[str, int]
    left_out: dict[str, int]
    max_primitives: int


@dataclass(frozen=True, slots=True)
class InstalledKernel:
    """A generated kernel that the model runs.

    Attributes:
        name: of its custom operator.
        uses: nodes that run it.
        time_us: of one use when it was measured; None without a plan, or where nothing was measured.
        schedule: the variant in words; None without a plan.
        replaces: for each use the nodes of the original model that it computes, wholly or in part.
    """

    name: str
    uses: int
    time_us: float | None
    schedule: str | None
    replaces: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class OutputRecord:
    """What is known of a model that korch wrote.

    Attributes:
        library: path of its kernel library, None if it is not beside the model.
        plan: path of its plan, None if the one beside it is missing or another model's.
        reason: the plan's sentence: why the model is what it is.
        kernels: by the number of nodes that run them.
    """

    library: str | None
    plan: str | None
    reason: str | None
    kernels: tuple[InstalledKernel, ...]


@dataclass(frozen=True, slots=True)
class InspectRecord:
    """The result of `korch inspect`.

    Attributes:
        model: path of the file.
        file: what is in the file.
        inputs: that must be fed.
        outputs: in order.
        operators: how many there are of each type once functions are inlined and constants folded; a type of another
            domain than ONNX's own has that before it.
        primitives: what they are split into.
        opaque: the operators that are not split.
        candidates: the kernels that a search would choose among.
        output: None unless korch wrote the model.
        notes: what loading did.
    """

    model: str
    file: FileRecord
    inputs: tuple[PortRecord, ...]
    outputs: tuple[PortRecord, ...]
    operators: dict[str, int]
    primitives: tuple[PrimitiveCount, ...]
    opaque: tuple[OpaqueRecord, ...]
    candidates: CandidateRecord
    output: OutputRecord | None
    notes: tuple[str, ...]
