"""The values of a loop nest as C++ definitions, each in the outermost block that can hold it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from korch_cli.codegen.access import condition_operand, count_text, load_text, store_text
from korch_cli.codegen.expressions import (
    Operand,
    Tables,
    apply_text,
    choice_text,
    divisor_text,
    held_type,
    literal_text,
    rounded_text,
)
from korch_cli.codegen.idioms import with_idioms
from korch_cli.codegen.index import Var
from korch_cli.codegen.nest import Apply, Count, Literal, Load, Nest, Reduction, Select, Store, operands
from korch_cli.codegen.reuse import kept_values
from korch_cli.codegen.schedule import Schedule, is_vectorisable
from korch_cli.codegen.scopes import Scope, Scopes


@dataclass(slots=True)
class Block(Scope):
    """A block of C++, with the divisors that have a name in it."""

    divisors: dict[int, str] = field(default_factory=dict)


class Definitions(Scopes[Block]):
    """The definitions of a nest. A node is computed in the outermost block in which all that it depends on is known."""

    def __init__(self, nest: Nest, schedule: Schedule, tables: Tables) -> None:
        super().__init__(with_idioms(nest), Block(frozenset()))
        self.schedule, self.tables = schedule, tables
        self.vectors = is_vectorisable(nest)
        self.lane: Var | None = None
        self.reuse = kept_values(nest, schedule)
        self.kept: set[int] = set()

    # --- blocks ---

    @contextmanager
    def block(self, opening: str, variables: Sequence[Var]) -> Iterator[None]:
        """Add a block of C++ in which more loop variables are known."""
        self.line(opening)
        self.depth += 1
        self.scopes.append(Block(self.scopes[-1].variables | frozenset(variables)))
        yield
        self.scopes.pop()
        self.depth -= 1
        self.line("}")

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

    def is_sum_or_root(self, position: int) -> bool:
        """Whether a divisor has rounding errors of its own, so that nobody counts on the last digit of quotients."""
        seen: set[int] = set()
        pending = [position]
        while pending:
            match self.nest.nodes[pending.pop()].operation:
                case Reduction("sum") | Apply("sqrt"):
                    return True
                case Apply("add" | "max" | "min", args):
                    pending += [arg for arg in args if arg not in seen]
                    seen.update(args)
        return False

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
        """Whether an earlier loop left the value in a scratch row."""
        return self.reuse.rows.get(position) in self.kept

    def operand_of(self, member: int) -> int:
        """Return what a reduction reduces."""
        operation = self.nest.nodes[member].operation
        assert isinstance(operation, Reduction)
        return operation.operand

    def is_varying(self, position: int) -> bool:
        """Whether a node differs between the lanes of the current loop."""
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
        self.kept.add(position)
        self.line(f"store({self.scratch(position)}, {name});")

    def scratch(self, position: int) -> str:
        """Return where a kept value lies, for the lanes of the current loop."""
        assert self.lane is not None
        return f"{self.nest.nodes[position].name}_row + {self.lane.name}"

    def scratch_extent(self) -> str:
        """Return how many elements a scratch row has."""
        return str(self.reuse.extent)

    def text(self, position: int, varying: bool) -> str:
        """Return the expression that defines a node."""
        node = self.nest.nodes[position]
        if self.is_kept(position):
            assert self.lane is not None
            return f"load<V>({self.scratch(self.reuse.rows[position])})"
        lanes = "V" if varying else "float"
        lane = self.lane if varying and self.vectors else None
        match node.operation:
            case Load():
                return load_text(node.operation, node.dtype, lane, self.tables)
            case Apply("div", (number, by)) if lane is not None and not self.is_varying(by):
                divisor = self.divisor_of(by)
                if divisor is not None:
                    call = "divided_once" if self.is_sum_or_root(by) else "divided"
                    return rounded_text(f"{call}({self.operand(number).text}, {divisor})", node.dtype)
                return apply_text("div", [self.operand(number), self.operand(by)], node.dtype, lanes)
            case Apply(function, args):
                return apply_text(function, [self.operand(arg) for arg in args], node.dtype, lanes)
            case Select(guards, inside, outside):
                first, second = self.operand(inside), self.operand(outside)
                condition = condition_operand(guards, self.lane if self.vectors else None, self.tables)
                return choice_text(condition, first.wide(lanes), second.wide(lanes))
            case Count():
                return count_text(node.operation, node.dtype, lane, self.tables)
        raise AssertionError(node.operation)

    def store(self, store: Store) -> None:
        """Write a result."""
        dtype = self.nest.nodes[store.node].dtype
        lane = self.lane if self.vectors else None
        self.line(store_text(store, self.operand(store.node), dtype, lane, self.tables))
