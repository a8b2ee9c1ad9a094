"""Which ways of running a nest on a GPU are worth measuring."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from korch_cli.codegen.cuda.access import Access, accesses, best_width, instructions
from korch_cli.codegen.cuda.keeping import unified
from korch_cli.codegen.cuda.part import Part
from korch_cli.codegen.cuda.points import print_points
from korch_cli.codegen.cuda.rowplan import row_schedules
from korch_cli.codegen.cuda.rows import print_rows
from korch_cli.codegen.cuda.schedule import Points, Rows, Schedule, Tiles
from korch_cli.codegen.cuda.signature import Signature
from korch_cli.codegen.cuda.splitting import splits
from korch_cli.codegen.cuda.staging import extracted
from korch_cli.codegen.cuda.tiles import print_tiles, transposed_variable
from korch_cli.codegen.expressions import Tables
from korch_cli.codegen.index import Var, variable
from korch_cli.codegen.nest import Nest, rewrite

_GAIN = 0.8
"""By how much fewer accesses vectors must need, to be worth the division that finds where they are."""


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
    if not nest.reductions:
        plain = Plan((_points(nest),))
        across = transposed_variable(nest) if nest.variables else None
        return [plain] if across is None else [Plan((Step(nest, Tiles(across)),)), plain]
    together = unified(nest)
    staged = _staged(nest, signature)
    rest = [Plan((Step(together, schedule),)) for schedule in row_schedules(together)]
    return [staged, *rest] if staged is not None else rest


def _staged(nest: Nest, signature: Signature) -> Plan | None:
    """Return the plan that gives long and repeated reductions launches of their own, if there are any."""
    steps: list[Step] = []
    scratch: list[int] = []
    level = 1
    while level <= max((node.level for node in nest.nodes), default=0):
        split = next(splits(nest, level), None)
        if split is None:
            level += 1
            continue
        filling, nest, sizes = extracted(nest, split, signature, scratch)
        steps.append(Step(filling, row_schedules(filling)[0]))
        scratch += sizes
        # What is read from scratch has a lower level, or is a short reduction that is not split again.
    if not steps:
        return None
    nest = unified(nest)
    last = Step(nest, row_schedules(nest)[0]) if nest.reductions else _points(nest)
    return Plan((*steps, last), tuple(scratch))


def _points(nest: Nest) -> Step:
    if not nest.variables:
        return Step(nest, Points(1))
    best = nest
    for nearest in _flattened(nest):
        if _instructions(nearest) < _GAIN * _instructions(best):
            best = nearest
    return Step(best, Points(best_width(_moved(best), best.variables[-1])))


def _flattened(nest: Nest) -> Iterator[Nest]:
    """Yield the nest with its last two variables joined, and so on: vectors need long ones."""
    while len(nest.variables) > 1:
        outer, inner = nest.variables[-2:]
        joined = Var(f"{outer.name}_{inner.name}", outer.extent * inner.extent)
        position = variable(joined)
        nest = rewrite(nest, {outer: position // inner.extent, inner: position % inner.extent})
        yield nest


def _instructions(nest: Nest) -> float:
    return instructions(_moved(nest), nest.variables[-1])


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
            return print_tiles(step.nest, step.schedule, signature, tables)
