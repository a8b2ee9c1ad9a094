"""How far the search for candidate kernels goes, and what it found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from korch_cli.core.kernel import Candidate
from korch_cli.core.types import DType


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Limits of the enumeration.

    Attributes:
        max_primitives: in one body.
        max_linear: products in one body; none as long as the code generator takes none.
        max_reduces: reductions (over axes or windows) in one body.
        max_outputs: values that one kernel writes.
        max_operands: values that one kernel reads, weights included.
        per_seed: bodies that share their smallest primitive.
        max_candidates: in all; `per_seed` is lowered until they fit.
        sibling_reach: of the values that read the same operand over the same domain, how many of the next ones each
            may be fused with although no edge joins them.
        edge_reach: of the readers of one value, and of its operands, how many of the next ones a body with the value
            and one of them may take. Values that have no more are not limited.
        dtypes: element types that kernels take.
    """

    max_primitives: int = 16
    max_linear: int = 0
    max_reduces: int = 6
    max_outputs: int = 12
    max_operands: int = 24
    per_seed: int = 400
    max_candidates: int = 50_000
    sibling_reach: int = 4
    edge_reach: int = 16
    dtypes: frozenset[DType] = frozenset(DType) - {DType.STRING}


@dataclass(frozen=True, slots=True)
class CandidateSet:
    """The generated candidates of a graph.

    Attributes:
        candidates: by smallest primitive, then by size.
        counters: how many primitives or bodies were left out for each reason.
    """

    candidates: tuple[Candidate, ...]
    counters: Mapping[str, int]
