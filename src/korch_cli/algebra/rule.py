"""The table of rules: what each is called, what it does to numbers, and the function that applies it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from korch_cli.algebra.surgery import Surgery

Apply = Callable[[Surgery], int]
"""Rewrites a model wherever the rule fits, and returns how often it did."""


class Kind(Enum):
    """What a rule does to numbers."""

    EXACT = "exact"
    """Every result is the same number, or the same up to the rounding of a single operation."""
    REASSOCIATES = "reassociates"
    """The same over the reals; operations take place in another order, so that results are rounded differently."""
    APPROXIMATES = "approximates"
    """Another function, close to the first."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One equation, read from left to right.

    Attributes:
        name: the algebra, e.g. "x tanh(softplus x) = x t / (2 - t), t = s (2 - s), s = sigmoid x".
        kind: what it does to numbers.
        declines: what a user may wonder about that it leaves alone, and why; "" where there is nothing.
        contrib: whether it writes operators outside of the standard domain, so that ONNX Runtime alone runs the result.
        apply: the function.
    """

    name: str
    kind: Kind
    declines: str
    contrib: bool
    apply: Apply


_RULES: list[Rule] = []


def rule(name: str, kind: Kind, *, declines: str = "", contrib: bool = False) -> Callable[[Apply], Apply]:
    """Enter the decorated function into the table; see `Rule` for the arguments."""

    def enter(apply: Apply) -> Apply:
        _RULES.append(Rule(name, kind, declines, contrib, apply))
        return apply

    return enter


def entered() -> tuple[Rule, ...]:
    """Return what has been entered, in order; `families` is what enters everything."""
    return tuple(_RULES)
