"""Nests with reductions: a team of threads a row, or a thread a row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from korch_cli.codegen.cuda.access import accesses, best_width, index_type
from korch_cli.codegen.cuda.keeping import kept_nodes, operands_of, phases, row_axes
from korch_cli.codegen.cuda.part import Part
from korch_cli.codegen.cuda.schedule import Rows
from korch_cli.codegen.cuda.signature import Signature
from korch_cli.codegen.cuda.writer import Writer
from korch_cli.codegen.elements import combined, is_rounded
from korch_cli.codegen.expressions import Tables, held_type, literal_text, rounded_text
from korch_cli.codegen.index import Var
from korch_cli.codegen.lower import identity
from korch_cli.codegen.nest import Nest, Reduction, Store

_OPERATIONS = {"sum": "Sum", "prod": "Product", "max": "Largest", "min": "Smallest"}
_WARP = 32


def print_rows(nest: Nest, schedule: Rows, signature: Signature, tables: Tables) -> Part:
    """Return the part that computes a nest row by row."""
    return _RowWriter(nest, schedule, signature, tables).run()


class _RowWriter(Writer):
    def __init__(self, nest: Nest, schedule: Rows, signature: Signature, tables: Tables) -> None:
        self.schedule = schedule
        self.count = math.prod(var.extent for var in schedule.rows)
        self.blocks = -(-self.count // schedule.teams) * schedule.spread
        self.axes = row_axes(nest)
        self.kept = kept_nodes(nest, self.axes) if schedule.keep else {}
        self.passed = 0
        self.active = ""
        lengths = [math.prod(var.extent for var in variables) for variables, _ in phases(nest)]
        lengths.append(math.prod(var.extent for var in schedule.inner))
        threads = schedule.spread * schedule.threads
        super().__init__(
            nest, signature, tables, index_type(nest, [self.blocks * schedule.threads, max(lengths) + threads])
        )

    def run(self) -> Part:
        with self._row():
            self._declare_kept()
            for variables, members in phases(self.nest):
                self._reduce(variables, members)
            self._results()
        return self.part(self.schedule.threads, self.blocks)

    # --- which row ---

    @contextmanager
    def _row(self) -> Iterator[None]:
        """Print which row a thread works on, as which member of its team."""
        schedule, thread = self.schedule, "(int)threadIdx.x"
        teams, team = schedule.teams, schedule.team
        own, member = "", thread
        if team == 1:
            own = thread
        elif schedule.columns:
            own, member = f"{thread} % {teams}", f"{thread} / {teams}"
        elif teams > 1:
            own, member = f"{thread} / {team}", f"{thread} % {team}"
        if team > 1:
            self.line(f"const int member = {member};")
        number = self.block_number
        if schedule.spread > 1:
            self.line(f"const int share = block % {schedule.spread};")
            number = f"{number} / {schedule.spread}"
        number = f"{number} * {teams} + {own}" if own else number
        complete = self.count % teams == 0
        if team == 1 or complete:
            self.line(f"const {self.index} row = {number};")
        else:
            # All threads take part in reductions; those behind the last row compute it again and write nothing.
            self.line(f"const {self.index} number = {number};")
            self.line(f"const bool active = number < {self.count};")
            self.line(f"const {self.index} row = active ? number : {self.count - 1};")
            self.active = "active"
        with nullcontext() if team > 1 or complete else self.block(f"if (row < {self.count})"):
            self.decode("row", schedule.rows)
            with self.scope(schedule.rows):
                yield

    # --- loops along a row ---

    @contextmanager
    def _along(self, variables: tuple[Var, ...], roots: Sequence[int], stores: Sequence[Store] = ()) -> Iterator[None]:
        """Print what is inside for each point of `variables` that falls to a thread."""
        self.hoist(roots)
        if self.schedule.team == 1:
            with self._nested(variables, roots):
                yield
                for store in stores:
                    self.store(store)
            return
        lane = variables[-1]
        repeated = variables == self.axes
        width = self.schedule.width if repeated else best_width(accesses(self.nest, roots, stores), lane)
        total = math.prod(var.extent for var in variables[:-1]) * -(-lane.extent // width)
        with self._steps(total, registers=repeated and self.schedule.keep, shared=bool(stores)):
            self.decode("step", variables, f"{lane.name}_0" if width > 1 else "", width)
            with self.scope(variables if width == 1 else variables[:-1]):
                if repeated and self.kept:
                    self._keep(width)
                with self.elements(lane, width, roots, stores):
                    yield

    @contextmanager
    def _steps(self, total: int, *, registers: bool, shared: bool) -> Iterator[None]:
        """Print the loop over the steps, of `total`, that a thread makes."""
        team, spread = self.schedule.team, self.schedule.spread if shared else 1
        if not registers:
            first = f"share * {team} + member" if spread > 1 else "member"
            with self.block(f"for ({self.index} step = {first}; step < {total}; step += {team * spread})"):
                yield
            return
        self.line("#pragma unroll")
        with self.block(f"for (int round = 0; round < {-(-total // team)}; ++round)"):
            self.line(f"const int step = round * {team} + member;")
            with self.block(f"if (step < {total})") if total % team else nullcontext():
                yield

    def _declare_kept(self) -> None:
        lane = self.axes[-1] if self.axes else None
        if lane is None or not self.kept:
            return
        width = self.schedule.width
        total = math.prod(var.extent for var in self.axes[:-1]) * -(-lane.extent // width)
        length = -(-total // self.schedule.team)
        for position in self.kept:
            node = self.nest.nodes[position]
            self.line(f"{held_type(node.dtype)} {node.name}_kept[{length * width}];")

    def _keep(self, width: int) -> None:
        """Say where the values of this loop come from and go to."""
        place = f"round * {width} + e" if width > 1 else "round"
        scope = self.scopes[-1]
        for position, life in self.kept.items():
            text = f"{self.nest.nodes[position].name}_kept[{place}]"
            if life.first < self.passed:
                scope.kept[position] = text
            elif life.first == self.passed:
                scope.keep[position] = text
        self.passed += 1

    @contextmanager
    def _nested(self, variables: tuple[Var, ...], roots: Sequence[int]) -> Iterator[None]:
        if not variables:
            yield
            return
        var, rest = variables[0], variables[1:]
        with self.block(self.loop(var), (var,)):
            self.hoist(roots)
            with self._nested(rest, roots):
                yield

    # --- what is computed ---

    def _reduce(self, variables: tuple[Var, ...], members: Sequence[int]) -> None:
        """Finish reductions over the same variables in one loop."""
        nodes = {member: self.nest.nodes[member] for member in members}
        roots = operands_of(self.nest, members)
        for node in nodes.values():
            assert isinstance(node.operation, Reduction)
            start = literal_text(identity(node.operation.function, node.dtype), node.dtype)
            self.line(f"{held_type(node.dtype)} {node.name}_total = {start};")
        with self._along(variables, roots):
            for node, root in zip(nodes.values(), roots, strict=True):
                assert isinstance(node.operation, Reduction)
                name = f"{node.name}_total"
                step = combined(node.operation.function, name, self.operand(root).text, node.dtype)
                self.line(f"{name} = {step};")
        for member, node in nodes.items():
            text = self._joined(member)
            self.define(member, rounded_text(text, node.dtype) if is_rounded(node) else text)

    def _joined(self, member: int) -> str:
        """Return the total of a team."""
        schedule, node = self.schedule, self.nest.nodes[member]
        assert isinstance(node.operation, Reduction)
        operation, name = _OPERATIONS[node.operation.function], f"{node.name}_total"
        if schedule.team == 1:
            return name
        if not schedule.columns and schedule.team <= _WARP:
            return f"warp_total<{operation}, {schedule.team}>({name})"
        elements = schedule.threads if schedule.columns else schedule.team // _WARP
        self.line(f"__shared__ {held_type(node.dtype)} {node.name}_shared[{elements}];")
        if schedule.columns:
            return f"column_total<{operation}, {schedule.teams}, {schedule.team}>({name}, {node.name}_shared)"
        return f"block_total<{operation}, {schedule.team}>({name}, {node.name}_shared)"

    def _results(self) -> None:
        known = frozenset(self.schedule.rows)
        of_row = [s for s in self.nest.stores if self.nest.nodes[s.node].free | s.address.variables <= known]
        along = [s for s in self.nest.stores if s not in of_row]
        if of_row:
            first = ["member == 0"] if self.schedule.team > 1 else []
            first += [self.active] if self.active else []
            first += ["share == 0"] if self.schedule.spread > 1 else []
            with self.block(f"if ({' && '.join(first)})") if first else nullcontext():
                for store in of_row:
                    self.store(store)
        if along:
            roots = [store.node for store in along]
            inside = self.block(f"if ({self.active})") if self.active else nullcontext()
            with inside, self._along(self.schedule.inner, roots, along):
                pass
