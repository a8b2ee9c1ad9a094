"""Which ways of running a nest on a GPU are worth measuring."""

from __future__ import annotations

from dataclasses import dataclass

from korch_cli.codegen.cuda.access import Access, accesses, best_width
from korch_cli.codegen.cuda.keeping import unified
from korch_cli.codegen.cuda.part import Part
from korch_cli.codegen.cuda.points import print_points
from korch_cli.codegen.cuda.rowplan import row_schedules
from korch_cli.codegen.cuda.rows import print_rows
from korch_cli.codegen.cuda.schedule import Points, Rows, Schedule, Tiles
from korch_cli.codegen.cuda.signature import Signature
from korch_cli.codegen.expressions import Tables
from korch_cli.codegen.nest import Nest


@dataclass(frozen=True, slots=True)
class Step:
    """A nest and how it runs."""

    nest: Nest
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Plan:
    """What computes one nest of a body.

    Attributes:
        steps: one after the other, each with a launch.
        scratch: bytes of the buffers through which a step hands values on.
    """

    steps: tuple[Step, ...]
    scratch: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        """In words."""
        return ", then ".join(step.schedule.kind for step in self.steps)


def plans(nest: Nest, signature: Signature) -> list[Plan]:
    """Return the ways to compute a nest that are worth measuring, the most promising first."""
    if nest.reductions:
        nest = unified(nest)
        return [Plan((Step(nest, schedule),)) for schedule in row_schedules(nest)]
    return [Plan((_points(nest),))]


def _points(nest: Nest) -> Step:
    if not nest.variables:
        return Step(nest, Points(1))
    return Step(nest, Points(best_width(_moved(nest), nest.variables[-1])))


def _moved(nest: Nest) -> list[Access]:
    return accesses(nest, [store.node for store in nest.stores], nest.stores)


def print_step(step: Step, signature: Signature, tables: Tables) -> Part:
    """Return the text of a step."""
    match step.schedule:
        case Points():
            return print_points(step.nest, step.schedule, signature, tables)
        case Rows():
            return print_rows(step.nest, step.schedule, signature, tables)
        case Tiles():
            raise AssertionError(step.schedule)
