"""The ways in which CUDA threads run a nest."""

from __future__ import annotations

from dataclasses import dataclass

from korch_cli.codegen.index import Var


@dataclass(frozen=True, slots=True)
class Points:
    """A thread takes vectors of neighbouring points; for nests without reductions.

    Attributes:
        width: elements of a vector.
    """

    width: int

    @property
    def kind(self) -> str:
        """In words."""
        return "pointwise" if self.width == 1 else f"pointwise, vectors of {self.width}"


@dataclass(frozen=True, slots=True)
class Tiles:
    """A block takes a square of points, and reads what lies across through shared memory.

    Attributes:
        across: the variable along which some operands are contiguous; results are along the nest's last one.
    """

    across: Var

    @property
    def kind(self) -> str:
        """In words."""
        return "tiled"


@dataclass(frozen=True, slots=True)
class Rows:
    """A team of threads takes a row: it computes its reductions, then the results along it.

    Attributes:
        rows: the variables that number the rows, the fastest one last.
        inner: the nest's other variables, over which the results of a row run.
        team: threads of a team, a power of two: up to 32, or the whole block, where neighbouring threads share a row.
        columns: whether neighbouring threads have neighbouring rows instead; a team is then spread over the block.
        threads: of a block.
        width: elements of a vector along a row.
        keep: whether the values of a row stay in registers between the loops over it, rather than being read again.
        spread: teams that compute the same reductions and share the results of a row.
    """

    rows: tuple[Var, ...]
    inner: tuple[Var, ...]
    team: int
    columns: bool
    threads: int
    width: int = 1
    keep: bool = False
    spread: int = 1

    @property
    def teams(self) -> int:
        """Teams of a block."""
        return self.threads // self.team

    @property
    def kind(self) -> str:
        """In words."""
        if self.team == 1:
            return "row a thread"
        name = "columns" if self.columns else "row a block" if self.teams == 1 else f"row by {self.team} threads"
        details = ["registers"] if self.keep else []
        details += [f"shared by {self.spread} blocks"] if self.spread > 1 else []
        return ", ".join([name, *details])


Schedule = Points | Tiles | Rows
