"""From a scheduled loop nest to the C++ of one function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from korch_cli.codegen.access import (
    condition_operand,
    count_text,
    load_text,
    repeats,
    store_text,
    transposed_rows,
)
from korch_cli.codegen.elements import COMBINERS, combined, is_rounded
from korch_cli.codegen.expressions import (
    LANES,
    Operand,
    Tables,
    apply_text,
    choice_text,
    divisor_text,
    held_type,
    index_text,
    literal_text,
    rounded_text,
)
from korch_cli.codegen.idioms import with_idioms
from korch_cli.codegen.index import Var
from korch_cli.codegen.lower import identity
from korch_cli.codegen.nest import Apply, Count, Literal, Load, Nest, Reduction, Select, Store, operands
from korch_cli.codegen.reuse import kept_values
from korch_cli.codegen.schedule import Schedule, is_vectorisable
from korch_cli.codegen.segments import segments

_ACCUMULATORS = 4
_MIN_LANES, _MAX_LANES = 4, 16


def print_nest(nest: Nest, schedule: Schedule, tables: Tables) -> list[str]:
    """Return the statements that run units `begin` to `end` of a nest.

    The arguments are `a0`, `a1`, ... and the results `r0`, `r1`, ..., pointers to their elements.
    """
    return _Printer(nest, schedule, tables).run()


@dataclass(slots=True)
class _Scope:
    """A block of C++: the loop variables that are known in it, and the nodes and divisors that have a name."""

    variables: frozenset[Var]
    names: dict[int, str] = field(default_factory=dict)
    divisors: dict[int, str] = field(default_factory=dict)


class _Printer:
    """Prints one nest. A node is computed in the outermost block in which all that it depends on is known."""

    def __init__(self, nest: Nest, schedule: Schedule, tables: Tables) -> None:
        self.nest, self.schedule, self.tables = with_idioms(nest), schedule, tables
        self.vectors = is_vectorisable(nest)
        self.lines: list[str] = []
        self.depth = 0
        self.scopes: list[_Scope] = [_Scope(frozenset())]
        self.lane: Var | None = None
        self.reuse = kept_values(nest, schedule)
        self.kept: dict[int, str] = {}

    def run(self) -> list[str]:
        schedule = self.schedule
        for position in sorted(set(self.reuse.rows.values())):
            name = f"{self.nest.nodes[position].name}_row"
            self.line(f"alignas(64) float {name}[{self.reuse.extent}];")
        with self.block("for (int64_t unit = begin; unit < end; ++unit) {", schedule.rows):
            self.decode()
            if schedule.blocked is None or not schedule.columns:
                self.unit()
            else:
                self.columns(schedule.blocked[0])
        return self.lines

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

    # --- blocks ---

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    @contextmanager
    def block(self, opening: str, variables: Sequence[Var]) -> Iterator[None]:
        self.line(opening)
        self.depth += 1
        self.scopes.append(_Scope(self.scopes[-1].variables | frozenset(variables)))
        yield
        self.scopes.pop()
        self.depth -= 1
        self.line("}")

    @contextmanager
    def lane_loop(self, var: Var, low: str, high: str, totals: Sequence[str]) -> Iterator[None]:
        """Run a block for every value of `var`, in vectors first; `totals` are the block's accumulators."""
        step = f"step{len(self.lines)}"
        parameters = "".join(f", auto& {name}" for name in totals)
        attribute = "__attribute__((always_inline))"
        self.line(f"const auto {step} = [&](auto lane, int64_t {var.name}{parameters}) {attribute} {{")
        self.depth += 1
        self.line("using V = decltype(lane);")
        self.scopes.append(_Scope(self.scopes[-1].variables | {var}))
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
        whole = var.extent % _MAX_LANES == 0
        single = self.block_count(var) == 1
        if self.vectors and not totals and not whole and self.can_overlap(var):
            last = f"{x} + kLanes <= {high} ? {x} : {high} - kLanes"
            loop = f"for (; {x} < {high}; {x} += kLanes) {step}(vf{{}}, {last});"
            whole = single and var.extent >= _MAX_LANES
            if not single:
                self.line(f"if ({high} - {low} >= kLanes) {loop}")
            elif var.extent >= _MIN_LANES:
                self.line(loop if whole else f"if ({high} >= kLanes) {loop}")
        elif self.vectors:
            for index in (_ACCUMULATORS, 1) if totals else (1,):
                wide = f"{index} * kLanes" if index > 1 else "kLanes"
                with self.block(f"for (; {x} + {wide} <= {high}; {x} += {wide}) {{", ()):
                    for i in range(index):
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
            if lane is not None and isinstance(node.operation, Load) and self.name_of(position) is None:
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
            self.accumulators(m, inner_lane is not None)
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

    def accumulators(self, member: int, lanes: bool) -> None:
        node = self.nest.nodes[member]
        assert isinstance(node.operation, Reduction)
        start = literal_text(identity(node.operation.function, node.dtype), node.dtype)
        element = held_type(node.dtype)
        if not lanes:
            varying = self.is_varying(member)
            kind = "V" if varying and node.dtype in LANES else element
            first = f"broadcast<V>({start})" if kind == "V" else start
            self.line(f"{kind} {node.name} = {first};")
            return
        if self.vectors:
            each = ", ".join([f"broadcast<vf>({start})"] * _ACCUMULATORS)
            self.line(f"vf {node.name}_total[{_ACCUMULATORS}] = {{{each}}};")
        self.line(f"{element} {node.name}_total_rest = {start};")

    def accumulate(self, members: Sequence[int]) -> None:
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
        pairs = [combined(function, f"{name}[{i}]", f"{name}[{i + 1}]", node.dtype) for i in (0, 2)]
        joined = combined(function, pairs[0], pairs[1], node.dtype)
        across = f"across_lanes<{COMBINERS[function]}>({joined})"
        text = combined(function, across, f"{name}_rest", node.dtype)
        self.line(f"const {element} {node.name} = {rounded_text(text, node.dtype) if is_rounded(node) else text};")

    # --- nodes ---

    def hoist(self, roots: Sequence[int]) -> None:
        """Compute here what the coming loop needs and does not change."""
        for position in sorted(self.needed(roots)):
            node = self.nest.nodes[position]
            if isinstance(node.operation, Literal | Reduction) or self.name_of(position) is not None:
                continue
            if self.is_known(node.free) and self.is_ready(position):
                self.operand(position)
            elif isinstance(node.operation, Apply) and node.operation.function == "div":
                self.hoist_divisor(node.operation.args[1])

    def hoist_divisor(self, position: int) -> None:
        """Prepare to divide by a node, where it is known before the numbers that it divides."""
        node = self.nest.nodes[position]
        if not self.vectors or isinstance(node.operation, Literal) or self.divisor_of(position) is not None:
            return
        if self.lane is None and self.is_known(node.free) and self.is_ready(position):
            name = f"{node.name}_divisor"
            self.line(f"const Divisor {name} = divisor({self.operand(position).text});")
            self.scopes[-1].divisors[position] = name

    def divisor_of(self, position: int) -> str | None:
        """Return the divisor of a node, if it has one."""
        operation = self.nest.nodes[position].operation
        if isinstance(operation, Literal):
            return divisor_text(operation.value, self.nest.nodes[position].dtype)
        return next((s.divisors[position] for s in reversed(self.scopes) if position in s.divisors), None)

    def needed(self, roots: Sequence[int]) -> set[int]:
        """Return what has to be computed for `roots`, kept values and reductions not taken apart."""
        found: set[int] = set()
        pending = list(roots)
        while pending:
            position = pending.pop()
            if position not in found:
                found.add(position)
                if not self.is_kept(position):
                    pending += operands(self.nest.nodes[position].operation)
        return found

    def is_kept(self, position: int) -> bool:
        return self.reuse.rows.get(position) in self.kept

    def is_known(self, variables: frozenset[Var]) -> bool:
        return variables <= self.scopes[-1].variables

    def is_ready(self, position: int) -> bool:
        """Whether all reductions below a node are finished."""
        node = self.nest.nodes[position]
        if isinstance(node.operation, Reduction):
            return self.name_of(position) is not None
        return all(self.is_ready(arg) for arg in operands(node.operation))

    def name_of(self, position: int) -> str | None:
        return next((s.names[position] for s in reversed(self.scopes) if position in s.names), None)

    def operand_of(self, member: int) -> int:
        operation = self.nest.nodes[member].operation
        assert isinstance(operation, Reduction)
        return operation.operand

    def is_varying(self, position: int) -> bool:
        return self.lane is not None and self.lane in self.nest.nodes[position].free

    def operand(self, position: int) -> Operand:
        """Return the expression of a node, after printing its definition where it has none yet."""
        node = self.nest.nodes[position]
        if isinstance(node.operation, Literal):
            text = literal_text(node.operation.value, node.dtype)
            return Operand(text, node.dtype, varying=False, literal=node.operation.value)
        varying = self.is_varying(position)
        name = self.name_of(position)
        if name is None:
            name = node.name
            text = self.text(position, varying)
            kind = "const auto" if varying and self.vectors else f"const {held_type(node.dtype)}"
            self.line(f"{kind} {name} = {text};")
            self.scopes[-1].names[position] = name
            if position in self.reuse.rows and not self.is_kept(position):
                self.keep(position)
        return Operand(name, node.dtype, varying=varying)

    def keep(self, position: int) -> None:
        """Leave a value for the next loops over the row."""
        assert self.lane is not None
        name = self.nest.nodes[position].name
        self.kept[position] = f"{name}_row"
        self.line(f"store({name}_row + {self.lane.name}, {name});")

    def text(self, position: int, varying: bool) -> str:
        node = self.nest.nodes[position]
        if self.is_kept(position):
            assert self.lane is not None
            return f"load<V>({self.kept[self.reuse.rows[position]]} + {self.lane.name})"
        lanes = "V" if varying else "float"
        lane = self.lane if varying and self.vectors else None
        match node.operation:
            case Load():
                return load_text(node.operation, node.dtype, lane, self.tables)
            case Apply("div", (number, by)) if lane is not None and not self.is_varying(by):
                divisor = self.divisor_of(by)
                if divisor is not None:
                    return rounded_text(f"divided({self.operand(number).text}, {divisor})", node.dtype)
                return apply_text("div", [self.operand(number), self.operand(by)], node.dtype, lanes)
            case Apply(function, args):
                return apply_text(function, [self.operand(arg) for arg in args], node.dtype, lanes)
            case Select(guards, inside, outside):
                first, second = self.operand(inside), self.operand(outside)
                condition = condition_operand(guards, self.lane if self.vectors else None, self.tables)
                return choice_text(condition, first.wide(lanes), second.wide(lanes))
            case Count(factors):
                if lane is not None:
                    return count_text(factors, lane, self.tables)
                product = " * ".join(f"({index_text(f, self.tables)})" for f in factors)
                return f"({held_type(node.dtype)})({product})"
        raise AssertionError(node.operation)

    def store(self, store: Store) -> None:
        dtype = self.nest.nodes[store.node].dtype
        lane = self.lane if self.vectors else None
        self.line(store_text(store, self.operand(store.node), dtype, lane, self.tables))
