"""Candidate kernels, generated kernels, and what is known of their speed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from korch_cli.core.graph import PrimitiveGraph

DOMAIN_PREFIX = "korch."
"""Of the domain of every custom operator; a hash of the kernels follows."""


class Arrangement(Enum):
    """How a tensor's elements lie in memory; part of the identity of what kernels exchange."""

    PLAIN = "plain"
    """Row-major."""
    BLOCKED = "blocked"
    """ONNX Runtime's blocked NCHWc, which its convolutions exchange."""


@dataclass(frozen=True, slots=True, order=True)
class Port:
    """A value in a given arrangement: what one kernel writes and another reads."""

    value: int
    arrangement: str = Arrangement.PLAIN.value


class CandidateKind(Enum):
    """Who runs a candidate kernel."""

    GENERATED = "generated"
    """Code of ours, run as a custom operator."""
    VENDOR = "vendor"
    """Whole ONNX operators, or one product or reshape as a node of its own, run by ONNX Runtime."""
    REORDER = "reorder"
    """A conversion between arrangements that ONNX Runtime inserts by itself."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A set of primitives that one kernel could compute.

    Attributes:
        kind: who runs it.
        body: ids of the primitives it computes, ascending; empty for a reorder.
        reads: what it needs in memory, constants excluded; in the canonical order for a generated kernel.
        writes: what it leaves in memory, in the canonical order for a generated kernel.
        digest: equal for candidates that the same kernel serves (generated), or that name the same work (others).
        operators: indices of the ONNX operators it runs, ascending (vendor only); none for a node of its own.
        way: the number of the way of writing the model that it was found in; others may have the same candidate.
    """

    kind: CandidateKind
    body: tuple[int, ...]
    reads: tuple[Port, ...]
    writes: tuple[Port, ...]
    digest: str
    operators: tuple[int, ...] = ()
    way: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class KernelBody:
    """A generated candidate cut out of its graph: what the code generator sees, and what its digest covers.

    Attributes:
        digest: SHA-256 hex of the canonical text of `graph`.
        graph: sources first. Inputs are the operands in order: what `Candidate.reads` names and then the constants that
            are operands; literals stay Constants. Outputs are in the order of `Candidate.writes`.
        arguments: for each Input of `graph`, the id it has in the whole graph (a read value or a constant).
        results: for each output of `graph`, the id it has in the whole graph.
    """

    digest: str
    graph: PrimitiveGraph
    arguments: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """Generated text for a body, under one schedule.

    Attributes:
        name: a C identifier, unique for the text: `k_` and the first 16 hex digits of the hash of `source`.
        digest: of the body it computes.
        schedule: the variant in words, e.g. "row, scratch".
        source: one C++ translation unit that defines
            `extern "C" void <name>(const void* const* in, void* const* out, int64_t begin, int64_t end)`, which
            computes parallel units [begin, end).
        units: number of parallel units (>= 1); any partition of [0, units) may run at the same time.
        unit_bytes: memory traffic of one unit, for choosing the chunk size.
        unit_flops: arithmetic of one unit (elementwise functions weighted by cost), for the same.
        in_place: pairs of an operand and a result, as positions in `in` and `out`, that may be the same memory.
    """

    name: str
    digest: str
    schedule: str
    source: str
    units: int
    unit_bytes: int
    unit_flops: int
    in_place: tuple[tuple[int, int], ...] = ()


class TimingSource(Enum):
    """Where a figure comes from."""

    MEASURED = "measured"
    PROFILED = "profiled"
    BOUND = "bound"
    ESTIMATED = "estimated"
    """By a model of a machine that is not there."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Time of one run, in microseconds.

    `low_us` and `high_us` are the quartiles. Plans are made with the lower one: what is above it comes from other
    processes rather than from the kernel. A bound has all three equal.
    """

    median_us: float
    low_us: float
    high_us: float
    samples: int
    source: TimingSource
