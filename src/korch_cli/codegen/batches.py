"""Rows in batches, as many as a vector has lanes: what rows have one of is computed for all of them at once.

The loops over elements run for one row after the other. Between them totals of all rows are joined by shuffles that
they share, and quotients and roots are vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from korch_cli.codegen.elements import COMBINERS, combined, is_rounded
from korch_cli.codegen.expressions import Tables, rounded_text
from korch_cli.codegen.index import Var
from korch_cli.codegen.nest import Literal, Nest, Reduction, Store, operands
from korch_cli.codegen.printer import MAX_LANES, Printer
from korch_cli.codegen.schedule import Schedule
from korch_cli.core.types import DType


class BatchPrinter(Printer):
    """Prints the loops of a nest with rows in batches."""

    def __init__(self, nest: Nest, schedule: Schedule, tables: Tables) -> None:
        super().__init__(nest, schedule, tables)
        assert schedule.blocked is not None
        self.row = schedule.blocked[0]
        self.spilled: set[int] = set()
        self.reciprocals: set[int] = set()

    def body(self) -> None:
        """Run the batches of one unit; rows that are left are batches of one."""
        with self.lane_loop(self.row, "lo", "hi", ()):
            self.line(f"const int64_t {self.row.name}_first = {self.row.name};")
            self.unit()

    def reduce(self, variables: tuple[Var, ...], members: Sequence[int]) -> None:
        """Compute reductions over the same variables, in one loop for each row."""
        roots = [self.operand_of(m) for m in members]
        self.hoist(roots)
        names = [self.nest.nodes[m].name for m in members]
        is_whole = variables[-1].extent % MAX_LANES == 0
        for name in names:
            self.line(f"vf {name}_totals[Types<V>::lanes];")
            if not is_whole:
                self.line(f"float {name}_rests[Types<V>::lanes];")
        with self.each_row(roots):
            for m in members:
                self.start(m, variables[-1])
            with self.braces():
                self.reduction_loops(variables, variables[-1], members, roots)
            for m, name in zip(members, names, strict=True):
                self.line(f"{name}_totals[row] = {self.joined(m)};")
                if not is_whole:
                    self.line(f"{name}_rests[row] = {name}_total_rest;")
        for m, name in zip(members, names, strict=True):
            self.line(f"const V {name} = {self.across_rows(m, is_whole=is_whole)};")
            self.scopes[-1].names[m] = name

    def across_rows(self, member: int, *, is_whole: bool) -> str:
        """Return the reduction of each row as a vector over rows."""
        node = self.nest.nodes[member]
        assert isinstance(node.operation, Reduction)
        text = f"across_rows<{COMBINERS[node.operation.function]}>({node.name}_totals)"
        if not is_whole:
            text = combined(node.operation.function, text, f"load<V>({node.name}_rests)", node.dtype)
        return rounded_text(text, node.dtype) if is_rounded(node) else text

    def results(self, stores: Sequence[Store]) -> None:
        """Write the results of one row after the other."""
        roots = [store.node for store in stores]
        self.hoist(roots)
        with self.each_row(roots):
            self.loops(self.schedule.inner, roots, stores)

    @contextmanager
    def each_row(self, roots: Sequence[int]) -> Iterator[None]:
        """Run a block for every row of a batch, in which what `roots` need of the rows is known."""
        used = self.used(roots)
        for position in used:
            self.spill(position)
        before, self.lane = self.lane, None
        with self.block("for (int64_t row = 0; row < Types<V>::lanes; ++row) {", ()):
            self.line(f"const int64_t {self.row.name} = {self.row.name}_first + row;")
            for position in used:
                node = self.nest.nodes[position]
                kind = "bool" if node.dtype is DType.BOOL else "float"
                self.line(f"const {kind} {node.name} = {node.name}_rows[row];")
                self.scopes[-1].names[position] = node.name
            self.hoist(roots)
            yield
        self.lane = before

    def used(self, roots: Sequence[int]) -> list[int]:
        """Return what `roots` are computed from directly, of what is known and differs between rows."""
        found: set[int] = set()
        pending, seen = list(roots), set(roots)
        while pending:
            position = pending.pop()
            if self.name_of(position) is not None:
                found |= {position} if self.is_varying(position) else set()
            elif not self.is_kept(position):
                new = set(operands(self.nest.nodes[position].operation)) - seen
                seen |= new
                pending += new
        return sorted(found)

    def spill(self, position: int) -> None:
        """Leave what a vector holds where single rows find it."""
        if position in self.spilled:
            return
        self.spilled.add(position)
        node = self.nest.nodes[position]
        is_mask = node.dtype is DType.BOOL
        self.line(f"{'bool' if is_mask else 'float'} {node.name}_rows[Types<V>::lanes];")
        self.line(f"{'store_mask' if is_mask else 'store'}({node.name}_rows, {node.name});")

    def hoist_divisor(self, position: int) -> None:
        """Prepare to divide by a node; the reciprocals of all rows of a batch are one vector."""
        node = self.nest.nodes[position]
        name = f"{node.name}_divisor"
        if self.lane is None and position in self.reciprocals:
            if self.divisor_of(position) is None:
                self.line(f"const Divisor {name} = divisor({node.name}, {node.name}_reciprocals[row]);")
                self.scopes[-1].divisors[position] = name
        elif self.lane != self.row or isinstance(node.operation, Literal) or not self.is_varying(position):
            super().hoist_divisor(position)
        elif position not in self.reciprocals and self.is_known(node.free) and self.is_ready(position):
            self.reciprocals.add(position)
            self.line(f"float {node.name}_reciprocals[Types<V>::lanes];")
            self.line(f"store({node.name}_reciprocals, reciprocal_({self.operand(position).text}));")

    def scratch(self, position: int) -> str:
        """Return where a kept value lies: every row of a batch has a row of its own."""
        return f"{super().scratch(position)} + {self.reuse.extent} * row"

    def scratch_extent(self) -> str:
        """Return how many elements the scratch rows of a batch have together."""
        return f"kLanes * {self.reuse.extent}"
