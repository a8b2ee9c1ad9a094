"""The rules of the table, applied until none fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from korch_cli.algebra.acceptance import accepted
from korch_cli.algebra.families import entered
from korch_cli.algebra.rule import Kind, Rule
from korch_cli.algebra.surgery import Surgery
from korch_cli.core.model import Model
from korch_cli.core.types import DType

_MOST_ROUNDS = 8
"""Every rule removes work, so that few rounds are needed; this bounds what two rules could do to each other."""


@dataclass(frozen=True, slots=True)
class Simplified:
    """A model that was simplified.

    Attributes:
        proto: an `onnx.ModelProto`.
        sentence: what was done.
        applied: how often each rule was applied, by name; those that were not are absent.
    """

    proto: object
    sentence: str
    applied: tuple[tuple[str, int], ...]


def default_rules() -> tuple[Rule, ...]:
    """Return the rules that are used unless others are asked for: those that compute the same function."""
    return tuple(rule for rule in entered() if rule.kind is not Kind.APPROXIMATES)


def simplify(model: Model, *, portable: bool = False, chosen: Sequence[Rule] | None = None) -> Simplified | None:
    """Return a model that computes the same in a form that ONNX Runtime runs faster, None where no rule fits.

    Wherever nodes were replaced, the tensors that others read of them keep their names and their values; sums may be
    formed in another order. Only the main graph is looked at.

    Args:
        model: as `load` returns it.
        portable: write operators of the standard domain alone.
        chosen: the rules to apply, all that are exact or reassociate by default.
    """
    table = default_rules() if chosen is None else tuple(chosen)
    surgery = Surgery(model, _nothing if portable else accepted)
    applied: Counter[str] = Counter()
    for _ in range(_MOST_ROUNDS):
        counts = [(rule.name, rule.apply(surgery)) for rule in table]
        applied.update(dict(counts))
        if not any(count for _, count in counts):
            break
    done = tuple((rule.name, applied[rule.name]) for rule in table if applied[rule.name])
    if not done:
        return None
    parts = [name if count == 1 else f"{name} ({count} times)" for name, count in done]
    return Simplified(surgery.result(), f"Simplified by {'; '.join(parts)}.", done)


def _nothing(_op_type: str, _dtype: DType) -> bool:
    """Accept no operator outside of the standard domain."""
    return False
