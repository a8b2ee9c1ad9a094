"""CUDA text of the nodes of a loop nest, one element or one vector of neighbouring elements at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from korch_cli.codegen.access import count_text
from korch_cli.codegen.cuda.access import is_packed
from korch_cli.codegen.cuda.part import Part
from korch_cli.codegen.cuda.signature import Signature, pointer
from korch_cli.codegen.elements import read, written
from korch_cli.codegen.expressions import (
    CPP_TYPES,
    Operand,
    Tables,
    apply_text,
    choice_text,
    guards_text,
    held_type,
    index_text,
    literal_text,
)
from korch_cli.codegen.index import Expr, Var, variable
from korch_cli.codegen.nest import (
    Apply,
    Count,
    Literal,
    Load,
    Nest,
    Reduction,
    Select,
    Store,
    operands,
    reachable,
)
from korch_cli.codegen.scopes import Scope, Scopes
from korch_cli.core.types import DType


@dataclass(slots=True)
class Block(Scope):
    """A block of text, with what other loops over the same points compute or need."""

    kept: dict[int, str] = field(default_factory=dict)
    """Where nodes are found that were computed in an earlier loop over the same points."""
    keep: dict[int, str] = field(default_factory=dict)
    """Where nodes are put that a later loop over the same points needs."""


class Writer(Scopes[Block]):
    """Prints nodes. Each is computed in the outermost block in which all that it depends on is known."""

    def __init__(self, nest: Nest, signature: Signature, tables: Tables, index: str) -> None:
        super().__init__(nest, Block(frozenset()))
        self.signature, self.tables, self.index = signature, tables, index

    @property
    def block_number(self) -> str:
        """The number of the block, in the type of indices."""
        return "block" if self.index == "int" else f"({self.index})block"

    def part(self, threads: int, blocks: int) -> Part:
        """Return what was printed, for a launch of `blocks` blocks of `threads` threads."""
        buffers = self.signature.buffers(self.nest)
        written = frozenset(self.signature.target(store.result) for store in self.nest.stores)
        return Part(tuple(self.lines), buffers, written, threads, blocks)

    # --- blocks ---

    @contextmanager
    def block(self, opening: str, variables: Sequence[Var] = ()) -> Iterator[None]:
        """Print what is inside between braces; `variables` are known there."""
        self.line(f"{opening} {{" if opening else "{")
        self.depth += 1
        with self.scope(variables):
            yield
        self.depth -= 1
        self.line("}")

    @contextmanager
    def scope(self, variables: Sequence[Var]) -> Iterator[None]:
        """Let `variables` be known, and names be forgotten at the end."""
        self.scopes.append(Block(self.scopes[-1].variables | frozenset(variables)))
        yield
        self.scopes.pop()

    def loop(self, var: Var) -> str:
        """Print how far a serial loop is unrolled; return its head."""
        self.line("#pragma unroll" if var.extent <= 16 else "#pragma unroll 4")
        return f"for ({self.index} {var.name} = 0; {var.name} < {var.extent}; ++{var.name})"

    def decode(self, number: str, variables: Sequence[Var], last: str = "", unit: int = 1) -> None:
        """Print the variables that `number` counts, the last one fastest, called `last` and in steps of `unit`."""
        divisor = 1
        lines = []
        for i, var in reversed(list(enumerate(variables))):
            steps = -(-var.extent // unit) if var == variables[-1] else var.extent
            text = f"{number} / {divisor}" if divisor > 1 else number
            text = "0" if steps == 1 else f"{text} % {steps}" if i else text
            if var == variables[-1]:
                text = f"{text} * {unit}" if unit > 1 and steps > 1 else text
                lines.append(f"const {self.index} {last or var.name} = {text};")
            else:
                lines.append(f"const {self.index} {var.name} = {text};")
            divisor *= steps
        for text in reversed(lines):
            self.line(text)

    # --- vectors ---

    @contextmanager
    def elements(self, lane: Var, width: int, roots: Sequence[int], stores: Sequence[Store]) -> Iterator[None]:
        """Print what is inside once for each of the `width` values of `lane` from `{lane.name}_0` on.

        What lies side by side in memory is loaded before and stored after; `stores` are written at the end.
        """
        if width == 1:
            yield
            for store in stores:
                self.store(store)
            return
        first, tail = f"{lane.name}_0", lane.extent % width
        self.hoist(roots)
        if tail:
            self.line(f"const int count = {lane.extent} - {first} < {width} ? {lane.extent} - {first} : {width};")
        names = self._packs(lane, width, roots)
        targets = {}
        for store in stores:
            dtype = self.nest.nodes[store.node].dtype
            if is_packed(store.address, (), lane, width):
                targets[store.result] = f"{pointer(self.signature.target(store.result))}_pack"
                self.line(f"Pack<{CPP_TYPES[dtype]}, {width}> {targets[store.result]};")
        self.line("#pragma unroll")
        inside = self.block("if (e < count)") if tail else nullcontext()
        with self.block(f"for (int e = 0; e < {width}; ++e)", (lane,)), inside:
            self.line(f"const {self.index} {lane.name} = {first} + e;")
            for position, name in names.items():
                dtype = self.nest.nodes[position].dtype
                element = read(f"{name}.at[e]", dtype)
                self.define(position, f"{element} != 0" if dtype is DType.BOOL else element)
            yield
            for store in stores:
                self.store(store, targets.get(store.result))
        for store in stores:
            if store.result in targets:
                address = _at_first(store.address, lane)
                more = ", count" if tail else ""
                text = f"{pointer(self.signature.target(store.result))} + {index_text(address, self.tables)}"
                self.line(f"store<{width}>({text}, {targets[store.result]}{more});")

    def _packs(self, lane: Var, width: int, roots: Sequence[int]) -> dict[int, str]:
        """Print the vector loads that `roots` need; return their names by node."""
        names = {}
        more = ", count" if lane.extent % width else ""
        for position in sorted(self.needed(roots)):
            node = self.nest.nodes[position]
            load = node.operation
            if not isinstance(load, Load) or not is_packed(load.address, load.guards, lane, width):
                continue
            names[position] = f"{node.name}_pack"
            address = index_text(_at_first(load.address, lane), self.tables)
            text = f"load<{width}>({pointer(self.signature.source(load.argument))} + {address}{more})"
            kind = f"Pack<{CPP_TYPES[node.dtype]}, {width}>"
            if load.guards:
                text = f"{guards_text(load.guards, self.tables)} ? {text} : {kind}{{}}"
            self.line(f"const {kind} {names[position]} = {text};")
        return names

    # --- nodes ---

    def needed(self, roots: Sequence[int]) -> set[int]:
        """Return the nodes without a name that `roots` are computed from."""
        found: set[int] = set()
        pending = list(roots)
        while pending:
            position = pending.pop()
            if position in found or self.name_of(position) is not None or self._kept(position) is not None:
                continue
            found.add(position)
            if not isinstance(self.nest.nodes[position].operation, Reduction):
                pending += operands(self.nest.nodes[position].operation)
        return found

    def hoist(self, roots: Sequence[int]) -> None:
        """Compute here what the coming loop needs and does not change."""
        needed = reachable(self.nest.nodes, roots)
        for position in sorted(needed):
            node = self.nest.nodes[position]
            if isinstance(node.operation, Literal | Reduction) or self.name_of(position) is not None:
                continue
            if self.is_known(node.free) and self.is_ready(position):
                self.operand(position)

    def _kept(self, position: int) -> str | None:
        return next((s.kept[position] for s in reversed(self.scopes) if position in s.kept), None)

    def define(self, position: int, text: str) -> str:
        """Give a node a name for the expression `text`."""
        node = self.nest.nodes[position]
        self.line(f"const {held_type(node.dtype)} {node.name} = {text};")
        self.scopes[-1].names[position] = node.name
        for scope in self.scopes:
            if position in scope.keep:
                self.line(f"{scope.keep[position]} = {node.name};")
        return node.name

    def operand(self, position: int) -> Operand:
        """Return the expression of a node, after printing its definition where it has none yet."""
        node = self.nest.nodes[position]
        if isinstance(node.operation, Literal):
            text = literal_text(node.operation.value, node.dtype)
            return Operand(text, node.dtype, varying=False, literal=node.operation.value)
        name = self.name_of(position)
        if name is None:
            name = self.define(position, self._kept(position) or self._text(position))
        return Operand(name, node.dtype, varying=False)

    def _text(self, position: int) -> str:
        node = self.nest.nodes[position]
        match node.operation:
            case Load():
                return self._load(node.operation, node.dtype)
            case Apply(function, args):
                return apply_text(function, [self.operand(arg) for arg in args], node.dtype, "float")
            case Select(guards, inside, outside):
                condition = Operand(f"({guards_text(guards, self.tables)})", DType.BOOL, varying=False)
                return choice_text(condition, self.operand(inside).text, self.operand(outside).text)
            case Count():
                return count_text(node.operation, node.dtype, None, self.tables)
        raise AssertionError(node.operation)

    def _load(self, load: Load, dtype: DType) -> str:
        name = pointer(self.signature.source(load.argument))
        element = read(f"{name}[{index_text(load.address, self.tables)}]", dtype)
        guarded = guards_text(load.guards, self.tables)
        text = element if guarded == "true" else f"(({guarded}) ? {element} : 0)"
        return f"{text} != 0" if dtype is DType.BOOL else text

    def store(self, store: Store, pack: str | None = None) -> None:
        """Print a store, into element `e` of a pack if one is named."""
        dtype = self.nest.nodes[store.node].dtype
        value = written(self.operand(store.node).text, dtype)
        name = pointer(self.signature.target(store.result))
        self.line(
            f"{pack}.at[e] = {value};" if pack else f"{name}[{index_text(store.address, self.tables)}] = {value};"
        )


def _at_first(expr: Expr, lane: Var) -> Expr:
    """The expression for the first element of a vector."""
    return expr.substitute({lane: variable(Var(f"{lane.name}_0", lane.extent))})
