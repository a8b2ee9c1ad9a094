"""Text in blocks, and what is known in each of them: what all printers of loop nests share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from korch_cli.codegen.index import Var
from korch_cli.codegen.nest import Nest, Reduction, operands


@dataclass(slots=True)
class Scope:
    """A block of text: the loop variables that are known in it, and the nodes that have a name."""

    variables: frozenset[Var]
    names: dict[int, str] = field(default_factory=dict)


_Scope = TypeVar("_Scope", bound=Scope)


class Scopes(Generic[_Scope]):
    """The text so far, and the blocks that are open, the innermost last."""

    def __init__(self, nest: Nest, outermost: _Scope) -> None:
        self.nest = nest
        self.lines: list[str] = []
        self.depth = 0
        self.scopes: list[_Scope] = [outermost]
        self._pending = _nearest_reductions(nest)

    def line(self, text: str) -> None:
        """Add a line at the depth of the current block."""
        self.lines.append("  " * self.depth + text)

    def is_known(self, variables: frozenset[Var]) -> bool:
        """Whether all these loop variables have a value here."""
        return variables <= self.scopes[-1].variables

    def is_ready(self, position: int) -> bool:
        """Whether all reductions below a node are finished."""
        return all(self.name_of(reduction) is not None for reduction in self._pending[position])

    def name_of(self, position: int) -> str | None:
        """Return the name that a node has here, if it has one."""
        return next((s.names[position] for s in reversed(self.scopes) if position in s.names), None)


def _nearest_reductions(nest: Nest) -> list[frozenset[int]]:
    """Return for each node the reductions that it reads, itself or through other nodes."""
    found: list[frozenset[int]] = []
    for position, node in enumerate(nest.nodes):
        if isinstance(node.operation, Reduction):
            found.append(frozenset({position}))
        else:
            found.append(frozenset[int]().union(*(found[arg] for arg in operands(node.operation))))
    return found
