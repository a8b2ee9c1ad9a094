"""From a scheduled loop nest to the C++ of one function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from korch_cli.codegen.elements import COMBINERS, combined, is_rounded, read, suffixed, written
from korch_cli.codegen.expressions import (
    LANES,
    Operand,
    Tables,
    apply_text,
    choice_text,
    guards_text,
    held_type,
    index_text,
    literal_text,
    rounded_text,
)
from korch_cli.codegen.index import Expr, Var, variable
from korch_cli.codegen.lower import identity
from korch_cli.codegen.nest import (
    Apply,
    Count,
    Guard,
    Guards,
    Literal,
    Load,
    Nest,
    Reduction,
    Select,
    Store,
    operands,
    reachable,
)
from korch_cli.codegen.schedule import Schedule, is_vectorisable
from korch_cli.core.types import DType

_ACCUMULATORS = 4
_MAX_LANES = 16


def print_nest(nest: Nest, schedule: Schedule, tables: Tables) -> list[str]:
    """Return the statements that run units `begin` to `end` of a nest.

    The arguments are `a0`, `a1`, ... and the results `r0`, `r1`, ..., pointers to their elements.
    """
    return _Printer(nest, schedule, tables).run()


@dataclass(slots=True)
class _Scope:
    """A block of C++: the loop variables that are known in it, and the nodes that have a name."""

    variables: frozenset[Var]
    names: dict[int, str] = field(default_factory=dict)


class _Printer:
    """Prints one nest. A node is computed in the outermost block in which all that it depends on is known."""

    def __init__(self, nest: Nest, schedule: Schedule, tables: Tables) -> None:
        self.nest, self.schedule, self.tables = nest, schedule, tables
        self.vectors = is_vectorisable(nest)
        self.lines: list[str] = []
        self.depth = 0
        self.scopes: list[_Scope] = [_Scope(frozenset())]
        self.lane: Var | None = None

    def run(self) -> list[str]:
        schedule = self.schedule
        with self.block("for (int64_t unit = begin; unit < end; ++unit) {", schedule.rows):
            self.decode()
            if schedule.blocked is None:
                self.unit()
            elif schedule.columns:
                with self.lane_loop(schedule.blocked[0], "lo", "hi", ()):
                    self.unit()
            else:
                self.unit()
        return self.lines

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
        x = var.name
        self.line(f"int64_t {x} = {low};")
        if self.vectors:
            for index in (_ACCUMULATORS, 1) if totals else (1,):
                wide = f"{index} * kLanes" if index > 1 else "kLanes"
                with self.block(f"for (; {x} + {wide} <= {high}; {x} += {wide}) {{", ()):
                    for i in range(index):
                        offset = f" + {i} * kLanes" if i else ""
                        self.line(f"{step}(vf{{}}, {x}{offset}{''.join(f', {name}[{i}]' for name in totals)});")
        rest = "".join(f", {name}_rest" for name in totals)
        self.line(f"for (; {x} < {high}; ++{x}) {step}(float{{}}, {x}{rest});")

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
            with self.block(f"for (int64_t {x} = {low}; {x} < {high}; ++{x}) {{", (var,)):
                self.hoist(roots)
                self.loops(rest, roots, stores)

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
        needed = reachable(self.nest.nodes, roots)
        for position in sorted(needed):
            node = self.nest.nodes[position]
            if isinstance(node.operation, Literal | Reduction) or self.name_of(position) is not None:
                continue
            if self.is_known(node.free) and self.is_ready(position):
                self.operand(position)

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
        return Operand(name, node.dtype, varying=varying)

    def text(self, position: int, varying: bool) -> str:
        node = self.nest.nodes[position]
        lanes = "V" if varying else "float"
        match node.operation:
            case Load():
                return self.load(node.operation, node.dtype, varying)
            case Apply(function, args):
                return apply_text(function, [self.operand(arg) for arg in args], node.dtype, lanes)
            case Select(guards, inside, outside):
                first, second = self.operand(inside), self.operand(outside)
                return choice_text(self.condition(guards), first.wide(lanes), second.wide(lanes))
            case Count(factors):
                return self.count(factors, node.dtype, varying)
        raise AssertionError(node.operation)

    def condition(self, guards: Guards) -> Operand:
        """Whether all guards hold, in each lane where that differs."""
        if not self.vectors or self.lane is None or all(self.lane not in g.position.variables for g in guards):
            return Operand(f"({guards_text(guards, self.tables)})", DType.BOOL, varying=False)
        text = guards_text(_guards_in_lane(guards, self.lane), self.tables)
        return Operand(f"lane_mask<V>([&](int64_t i) {{ return {text}; }})", DType.BOOL, varying=True)

    def count(self, factors: tuple[Expr, ...], dtype: DType, varying: bool) -> str:
        if varying and self.vectors and self.lane is not None:
            product = " * ".join(f"({index_text(_in_lane(f, self.lane), self.tables)})" for f in factors)
            return f"lanes<V>([&](int64_t i) {{ return (float)({product}); }})"
        return f"({held_type(dtype)})(" + " * ".join(f"({index_text(f, self.tables)})" for f in factors) + ")"

    def load(self, load: Load, dtype: DType, varying: bool) -> str:
        pointer = f"a{load.argument}"
        address = index_text(load.address, self.tables)
        if not varying or not self.vectors or self.lane is None:
            guarded = guards_text(load.guards, self.tables)
            element = read(f"{pointer}[{address}]", dtype)
            text = element if guarded == "true" else f"(({guarded}) ? {element} : 0)"
            return f"{text} != 0" if dtype is DType.BOOL else text
        uniform = all(self.lane not in g.position.variables for g in load.guards)
        if load.address.coefficient(self.lane) == 1 and uniform:
            call, nothing = ("load_mask", "Mask<V>{}") if dtype is DType.BOOL else (suffixed("load", dtype), "V{}")
            text = f"{call}<V>({pointer} + {address})"
            return f"({guards_text(load.guards, self.tables)}) ? {text} : {nothing}" if load.guards else text
        call = "lane_mask" if dtype is DType.BOOL else "lanes"
        element = read(f"{pointer}[{index_text(_in_lane(load.address, self.lane), self.tables)}]", dtype)
        condition = guards_text(_guards_in_lane(load.guards, self.lane), self.tables)
        value = element if condition == "true" else f"({condition}) ? {element} : 0"
        return f"{call}<V>([&](int64_t i) {{ return {value}; }})"

    def store(self, store: Store) -> None:
        dtype = self.nest.nodes[store.node].dtype
        value = self.operand(store.node)
        pointer = f"r{store.result}"
        address = index_text(store.address, self.tables)
        if not self.vectors or self.lane is None or self.lane not in store.address.variables:
            self.line(f"{pointer}[{address}] = {written(value.text, dtype)};")
            return
        text = value.wide("V") if dtype in LANES else f"mask_of<V>({value.text})"
        if store.address.coefficient(self.lane) == 1:
            call = "store_mask" if dtype is DType.BOOL else suffixed("store", dtype)
            self.line(f"{call}({pointer} + {address}, {text});")
        else:
            element = f"{pointer}[{index_text(_in_lane(store.address, self.lane), self.tables)}]"
            call = "spread_mask" if dtype is DType.BOOL else "spread"
            self.line(f"{call}<V>({text}, [&](int64_t i, auto x) {{ {element} = {written('x', dtype)}; }});")


def _in_lane(expr: Expr, lane: Var) -> Expr:
    """The expression in lane `i` of the vector that begins at `lane`."""
    return expr.substitute({lane: variable(lane) + variable(Var("i", _MAX_LANES))})


def _guards_in_lane(guards: Guards, lane: Var) -> Guards:
    return tuple(Guard(_in_lane(g.position, lane), g.low, g.high) for g in guards)
