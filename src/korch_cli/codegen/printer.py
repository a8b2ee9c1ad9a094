"""From a scheduled loop nest to the C++ of one function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from korch_cli.codegen.access import repeats, transposed_rows
from korch_cli.codegen.definitions import Block, Definitions
from korch_cli.codegen.elements import COMBINERS, combined, is_rounded
from korch_cli.codegen.expressions import LANES, held_type, literal_text, rounded_text
from korch_cli.codegen.index import Var
from korch_cli.codegen.lower import identity
from korch_cli.codegen.nest import Load, Reduction, Store
from korch_cli.codegen.segments import segments

_ACCUMULATORS = 4
_MIN_LANES, MAX_LANES = 4, 16


def accumulators(lane: Var) -> int:
    """Return how many vectors the lanes' totals of a loop are spread over: a power of two, fewer for short loops."""
    return min(_ACCUMULATORS, 1 << max(0, (lane.extent // (2 * MAX_LANES)).bit_length() - 1))


class Printer(Definitions):
    """Prints the loops of one nest.

    The arguments are `a0`, `a1`, ... and the results `r0`, `r1`, ..., pointers to their elements.
    """

    def run(self) -> list[str]:
        """Return the statements that run units `begin` to `end`."""
        for position in sorted(set(self.reuse.rows.values())):
            name = f"{self.nest.nodes[position].name}_row"
            self.line(f"alignas(64) float {name}[{self.scratch_extent()}];")
        with self.block("for (int64_t unit = begin; unit < end; ++unit) {", self.schedule.rows):
            self.decode()
            self.body()
        return self.lines

    def body(self) -> None:
        """Run one unit."""
        if self.schedule.blocked is None or not self.schedule.columns:
            self.unit()
        else:
            self.columns(self.schedule.blocked[0])

    def columns(self, lane: Var) -> None:
        """Run a unit in which every lane stands alone."""
        cut = segments(self.nest, lane) if not self.nest.reductions and self.block_count() == 1 else []
        if not cut:
            if not self.nest.reductions:
                self.hoist([store.node for store in self.nest.stores])
            with self.lane_loop(lane, "lo", "hi", ()):
                self.unit()
        whole = self.nest
        for start, var, self.nest in cut:
            with self.block(f"{{  // {lane.name} from {start} to {start + var.extent - 1}", ()):
                if var.extent == 1:
                    self.unit()
                else:
                    self.hoist([store.node for store in self.nest.stores])
                    with self.lane_loop(var, "0", str(var.extent), ()):
                        self.unit()
        self.nest = whole

    # --- loops over lanes ---

    @contextmanager
    def lane_loop(self, var: Var, low: str, high: str, totals: Sequence[str]) -> Iterator[None]:
        """Run a block for every value of `var`, in vectors first; `totals` are the block's accumulators."""
        step = f"step{len(self.lines)}"
        parameters = "".join(f", auto& {name}" for name in totals)
        attribute = "__attribute__((always_inline))"
        self.line(f"const auto {step} = [&](auto lane, int64_t {var.name}{parameters}) {attribute} {{")
        self.depth += 1
        self.line("using V = decltype(lane);")
        self.scopes.append(Block(self.scopes[-1].variables | {var}))
        before, self.lane = self.lane, var
        yield
        self.lane = before
        self.scopes.pop()
        self.depth -= 1
        self.line("};")
        self.lane_calls(step, var, (low, high), totals)

    def lane_calls(self, step: str, var: Var, bounds: tuple[str, str], totals: Sequence[str]) -> None:
        """Call the block of a lane loop for whole vectors, then for what is left."""
        x, (low, high) = var.name, bounds
        self.line(f"int64_t {x} = {low};")
        # Nothing is left if the vectors of every processor fit, or if the last vector may do some elements again.
        whole = var.extent % MAX_LANES == 0
        single = self.block_count(var) == 1
        if self.vectors and not totals and not whole and self.can_overlap(var):
            last = f"{x} + kLanes <= {high} ? {x} : {high} - kLanes"
            loop = f"for (; {x} < {high}; {x} += kLanes) {step}(vf{{}}, {last});"
            whole = single and var.extent >= MAX_LANES
            if not single:
                self.line(f"if ({high} - {low} >= kLanes) {loop}")
            elif var.extent >= _MIN_LANES:
                self.line(loop if whole else f"if ({high} >= kLanes) {loop}")
        elif self.vectors:
            for count in sorted({accumulators(var) if totals else 1, 1}, reverse=True):
                wide = f"{count} * kLanes" if count > 1 else "kLanes"
                with self.block(f"for (; {x} + {wide} <= {high}; {x} += {wide}) {{", ()):
                    for i in range(count):
                        offset = f" + {i} * kLanes" if i else ""
                        self.line(f"{step}(vf{{}}, {x}{offset}{''.join(f', {name}[{i}]' for name in totals)});")
        if not self.vectors or not whole:
            rest = "".join(f", {name}_rest" for name in totals)
            self.line(f"for (; {x} < {high}; ++{x}) {step}(float{{}}, {x}{rest});")

    def can_overlap(self, lane: Var) -> bool:
        """Whether vectors may begin anywhere."""
        loads = [node.operation for node in self.nest.nodes if isinstance(node.operation, Load)]
        return all(repeats(load, lane) == 1 for load in loads)

    def block_count(self, var: Var | None = None) -> int:
        """Into how many blocks the units cut the blocked variable; 1 for any other."""
        blocked = self.schedule.blocked
        if blocked is None or (var is not None and blocked[0] != var):
            return 1
        return -(-blocked[0].extent // blocked[1])

    def decode(self) -> None:
        """Compute the variables of the unit from its number."""
        divisor = 1
        if self.schedule.blocked is not None:
            var, length = self.schedule.blocked
            divisor = -(-var.extent // length)
            if divisor == 1:
                self.line(f"const int64_t lo = 0, hi = {var.extent};")
            else:
                number = f"(unit % {divisor})" if self.schedule.rows else "unit"
                self.line(f"const int64_t lo = {number} * {length};")
                self.line(f"const int64_t hi = lo + {length} < {var.extent} ? lo + {length} : {var.extent};")
        for i, var in reversed(list(enumerate(self.schedule.rows))):
            quotient = f"unit / {divisor}" if divisor > 1 else "unit"
            self.line(f"const int64_t {var.name} = {quotient}{f' % {var.extent}' if i else ''};")
            divisor *= var.extent

    # --- what a unit does ---

    def unit(self) -> None:
        """Finish the reductions level by level, then write the results."""
        levels = max((node.level for node in self.nest.nodes), default=0)
        for level in range(1, levels + 1):
            groups: dict[tuple[Var, ...], list[int]] = {}
            for position, node in enumerate(self.nest.nodes):
                if isinstance(node.operation, Reduction) and node.level == level:
                    groups.setdefault(node.operation.variables, []).append(position)
            for variables, members in groups.items():
                self.reduce(variables, members)
        row = [s for s in self.nest.stores if self.is_known(self.nest.nodes[s.node].free | s.address.variables)]
        for store in row:
            self.store(store)
        rest = [s for s in self.nest.stores if s not in row]
        if rest:
            self.results(rest)

    def results(self, stores: Sequence[Store]) -> None:
        """Loop over the variables that the rows leave open."""
        roots = [store.node for store in stores]
        self.hoist(roots)
        self.loops(self.schedule.inner, roots, stores)

    def loops(self, variables: tuple[Var, ...], roots: Sequence[int], stores: Sequence[Store]) -> None:
        """Open one loop for each variable, then write `stores`; the lanes' loop is a vector loop wherever it stands."""
        if not variables:
            for store in stores:
                self.store(store)
            return
        var, rest = variables[0], variables[1:]
        blocked = self.schedule.blocked
        low, high = ("lo", "hi") if blocked is not None and blocked[0] == var else ("0", str(var.extent))
        if var == self.schedule.lanes:
            with self.braces(), self.lane_loop(var, low, high, ()):
                self.hoist(roots)
                self.loops(rest, roots, stores)
        else:
            x = var.name
            low = self.squares(var, (low, high), rest, roots, stores)
            with self.block(f"for (int64_t {x} = {low}; {x} < {high}; ++{x}) {{", (var,)):
                self.hoist(roots)
                self.loops(rest, roots, stores)

    def squares(
        self,
        across: Var,
        bounds: tuple[str, str],
        rest: tuple[Var, ...],
        roots: Sequence[int],
        stores: Sequence[Store],
    ) -> str:
        """Run whole squares of lanes by `across`, in which operands are transposed; return where the rest starts."""
        rows: dict[int, str] = {}
        lane = self.lane
        for position in self.needed(roots) if self.vectors else ():
            node = self.nest.nodes[position]
            if lane is None or not isinstance(node.operation, Load) or self.name_of(position) is not None:
                continue
            if node.free.isdisjoint(rest):
                found = transposed_rows(node.operation, node.dtype, lane, across, self.tables)
                rows |= {position: found} if found is not None else {}
        low, high = bounds
        if not rows:
            return low
        x, first = across.name, f"{across.name}_first"
        self.line(f"int64_t {first} = {low};")
        with (
            self.block("if constexpr (sizeof(V) > sizeof(float)) {", ()),
            self.block(f"for (; {first} + kLanes <= {high}; {first} += kLanes) {{", ()),
        ):
            for position, row in rows.items():
                square = f"{self.nest.nodes[position].name}_square"
                self.line(f"vf {square}[kLanes];")
                self.line(f"load_transposed({square}, [&](int64_t i) {{ return {row}; }});")
            with self.block("for (int64_t j = 0; j < kLanes; ++j) {", (across,)):
                self.line(f"const int64_t {x} = {first} + j;")
                for position in rows:
                    self.scopes[-1].names[position] = f"{self.nest.nodes[position].name}_square[j]"
                self.hoist(roots)
                self.loops(rest, roots, stores)
        return first

    @contextmanager
    def braces(self) -> Iterator[None]:
        """Add a block of C++ in which names are its own."""
        with self.block("{", ()):
            yield

    def reduce(self, variables: tuple[Var, ...], members: Sequence[int]) -> None:
        """Compute reductions over the same variables in one loop."""
        roots = [self.operand_of(m) for m in members]
        self.hoist(roots)
        # In columns every lane has a reduction of its own; in rows the lanes share one.
        inner_lane = None if self.schedule.columns else variables[-1]
        names = {m: self.nest.nodes[m].name for m in members}
        for m in members:
            self.start(m, inner_lane)
        with self.braces():
            self.reduction_loops(variables, inner_lane, members, roots)
        for m in members:
            if inner_lane is not None:
                self.combine(m)
            elif is_rounded(self.nest.nodes[m]):
                self.line(f"{names[m]} = {rounded_text(names[m], self.nest.nodes[m].dtype)};")
            self.scopes[-1].names[m] = names[m]

    def reduction_loops(
        self, variables: tuple[Var, ...], lane: Var | None, members: Sequence[int], roots: Sequence[int]
    ) -> None:
        """Open one loop for each variable of reductions, the last one in lanes if `lane` is it."""
        var, rest = variables[0], variables[1:]
        x = var.name
        if rest or lane is None:
            with self.block(f"for (int64_t {x} = 0; {x} < {var.extent}; ++{x}) {{", (var,)):
                self.hoist(roots)
                if rest:
                    self.reduction_loops(rest, lane, members, roots)
                else:
                    self.accumulate(members)
            return
        totals = [f"{self.nest.nodes[m].name}_total" for m in members]
        with self.lane_loop(var, "0", str(var.extent), totals):
            self.accumulate(members)

    def start(self, member: int, lane: Var | None) -> None:
        """Define the accumulators of a reduction; lanes along `lane` share it, or each has one of its own."""
        node = self.nest.nodes[member]
        assert isinstance(node.operation, Reduction)
        start = literal_text(identity(node.operation.function, node.dtype), node.dtype)
        element = held_type(node.dtype)
        if lane is None:
            varying = self.is_varying(member)
            kind = "V" if varying and node.dtype in LANES else element
            first = f"broadcast<V>({start})" if kind == "V" else start
            self.line(f"{kind} {node.name} = {first};")
            return
        if self.vectors:
            count = accumulators(lane)
            each = ", ".join([f"broadcast<vf>({start})"] * count)
            self.line(f"vf {node.name}_total[{count}] = {{{each}}};")
        self.line(f"{element} {node.name}_total_rest = {start};")

    def accumulate(self, members: Sequence[int]) -> None:
        """Add what the lanes hold to the accumulators."""
        for m in members:
            node = self.nest.nodes[m]
            assert isinstance(node.operation, Reduction)
            target = node.name if self.schedule.columns else f"{node.name}_total"
            value = self.operand(self.operand_of(m))
            text = value.text if self.schedule.columns and not self.is_varying(m) else value.wide("V")
            self.line(f"{target} = {combined(node.operation.function, target, text, node.dtype)};")

    def combine(self, member: int) -> None:
        """Join the accumulators of the lanes."""
        node = self.nest.nodes[member]
        assert isinstance(node.operation, Reduction)
        function, name = node.operation.function, f"{node.name}_total"
        element = held_type(node.dtype)
        if not self.vectors:
            text = f"{name}_rest"
            self.line(f"const {element} {node.name} = {rounded_text(text, node.dtype) if is_rounded(node) else text};")
            return
        across = f"across_lanes<{COMBINERS[function]}>({self.joined(member)})"
        text = combined(function, across, f"{name}_rest", node.dtype)
        self.line(f"const {element} {node.name} = {rounded_text(text, node.dtype) if is_rounded(node) else text};")

    def joined(self, member: int) -> str:
        """Return the accumulators as one vector."""
        node = self.nest.nodes[member]
        assert isinstance(node.operation, Reduction)
        parts = [f"{node.name}_total[{i}]" for i in range(accumulators(node.operation.variables[-1]))]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [combined(node.operation.function, left, right, node.dtype) for left, right in pairs]
        return parts[0]
