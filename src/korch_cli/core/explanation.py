"""What `korch explain` finds: for a node, what a plan could run for it, and what each choice would cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing that a plan could run for a node.

    Attributes:
        kind: "operators" of the model as it is written, "rewritten" operators that stand for some of these, or a
            generated "kernel".
        nodes: names of the nodes that it runs, or of which a kernel computes all or a part.
        time_us: its own price, None if it is not known.
        source: where the price comes from: "profiled", "measured", or "bound": no such kernel was measured, and none is
            faster.
        plan_us: what the cheapest plan costs that runs it; None where this was not worked out.
        least_us: what such a plan costs at least; None where nothing was worked out.
        taken: whether the plan runs it.
    """

    kind: str
    nodes: tuple[str, ...]
    time_us: float | None
    source: str
    plan_us: float | None
    least_us: float | None
    taken: bool


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node of the model, and what could compute the same.

    Attributes:
        name: of the node.
        op_type: its operator.
        choices: the ones that the plan takes first, then by what they would cost the plan.
        considered: how many there are in all.
        reason: one sentence: why the plan runs what it runs.
    """

    name: str
    op_type: str
    choices: tuple[Choice, ...]
    considered: int
    reason: str


@dataclass(frozen=True, slots=True)
class ExplainRecord:
    """The result of `korch explain`.

    Attributes:
        model: path of the file that was asked about.
        plan_us: what the plan costs by the sum of its kernels' prices.
        nodes: those that were asked for; without one, all of them, each with what the plan runs for it.
        notes: what the reader should know.
    """

    model: str
    plan_us: float
    nodes: tuple[NodeRecord, ...]
    notes: tuple[str, ...]
