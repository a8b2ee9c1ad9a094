"""Loop nests: what a body computes at each point of its iteration domain, as a graph of nodes over loop variables.

Layout primitives are gone here: they live on in the addresses of loads. Nodes are in topological order, without
repeats; a `Reduction` binds loop variables, all others are free. Passes are functions from nest to nest that replace
loop variables by expressions of others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from korch_cli.codegen.index import Div, Expr, Lookup, Mod, Var
from korch_cli.core.elementwise import FUNCTIONS
from korch_cli.core.types import DType


@dataclass(frozen=True, slots=True)
class Guard:
    """The condition `low` <= `position` < `high`."""

    position: Expr
    low: int
    high: int

    @property
    def always(self) -> bool:
        """Whether it holds everywhere."""
        low, high = self.position.range
        return self.low <= low and high < self.high

    @property
    def never(self) -> bool:
        """Whether it holds nowhere."""
        low, high = self.position.range
        return high < self.low or low >= self.high


Guards = tuple[Guard, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """The element at `address` of argument number `argument`; zero, without touching memory, unless all guards hold."""

    argument: int
    address: Expr
    guards: Guards = ()


@dataclass(frozen=True, slots=True)
class Literal:
    """A number."""

    value: float | int | bool


@dataclass(frozen=True, slots=True)
class Apply:
    """An elementwise function of other nodes."""

    function: str
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Select:
    """`inside` where all guards hold, else `outside`."""

    guards: Guards
    inside: int
    outside: int


@dataclass(frozen=True, slots=True)
class Reduction:
    """`function` (sum, max, min, prod) of `operand` over every value of `variables`."""

    function: str
    operand: int
    variables: tuple[Var, ...]


@dataclass(frozen=True, slots=True)
class Count:
    """The product of index expressions, as a number; one, without computing it, unless all guards hold."""

    factors: tuple[Expr, ...]
    guards: Guards = ()


Operation = Load | Literal | Apply | Select | Reduction | Count


@dataclass(frozen=True, slots=True)
class Node:
    """One computed value.

    Attributes:
        operation: how it is computed; operands are positions in `Nest.nodes`, before this one.
        dtype: its element type.
        name: after the body's value that it stands for, unique in the nest.
        free: the loop variables that it depends on.
        level: how many reductions have to be finished, one after the other, before it can be computed.
    """

    operation: Operation
    dtype: DType
    name: str
    free: frozenset[Var]
    level: int


@dataclass(frozen=True, slots=True)
class Store:
    """`node` goes to `address` of result number `result`."""

    result: int
    address: Expr
    node: int


@dataclass(frozen=True, slots=True)
class Nest:
    """A loop nest.

    Attributes:
        variables: the free loop variables, outermost first; together they reach every point once.
        nodes: what is computed, operands first.
        stores: what is written; an address that does not depend on a variable is written once for all its values.
    """

    variables: tuple[Var, ...]
    nodes: tuple[Node, ...]
    stores: tuple[Store, ...]

    @property
    def reductions(self) -> list[Node]:
        """The nodes that reduce, in order."""
        return [node for node in self.nodes if isinstance(node.operation, Reduction)]

    def expressions(self) -> list[Expr]:
        """Every index expression of the nest."""
        found: list[Expr] = [store.address for store in self.stores]
        for node in self.nodes:
            found += operation_expressions(node.operation)
        return found


def operation_expressions(operation: Operation) -> list[Expr]:
    """Return the index expressions that an operation holds."""
    match operation:
        case Load(_, address, guards):
            return [address, *(guard.position for guard in guards)]
        case Select(guards):
            return [guard.position for guard in guards]
        case Count(factors, guards):
            return [*factors, *(guard.position for guard in guards)]
    return []


def operands(operation: Operation) -> tuple[int, ...]:
    """Return the positions of the nodes that an operation reads."""
    match operation:
        case Apply(_, args):
            return args
        case Select(_, inside, outside):
            return (inside, outside)
        case Reduction(_, operand):
            return (operand,)
    return ()


def operation_flops(operation: Operation) -> int:
    """Return the cost of one evaluation, in units of a float addition."""
    match operation:
        case Apply(function):
            return FUNCTIONS[function].flops
        case Select() | Reduction():
            return 1
    return 0


def reachable(nodes: Sequence[Node], roots: Sequence[int]) -> set[int]:
    """Return the positions of `roots` and of everything that they are computed from."""
    found: set[int] = set()
    pending = list(roots)
    while pending:
        position = pending.pop()
        if position not in found:
            found.add(position)
            pending += operands(nodes[position].operation)
    return found


def unreduced(nodes: Sequence[Node], roots: Sequence[int]) -> set[int]:
    """Return what `roots` are computed from, themselves included, where all reductions are finished."""
    found: set[int] = set()
    pending = list(roots)
    while pending:
        position = pending.pop()
        if position not in found and not isinstance(nodes[position].operation, Reduction):
            found.add(position)
            pending += operands(nodes[position].operation)
    return found


@dataclass(slots=True)
class NestBuilder:
    """Collects nodes without repeats."""

    nodes: list[Node] = field(default_factory=list)
    _known: dict[tuple[Operation, DType], int] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)

    def add(self, operation: Operation, dtype: DType, name: str) -> int:
        """Return the position of a node that computes `operation`, after trivial simplification."""
        simple = _simplified(operation, dtype)
        if isinstance(simple, int):
            return simple
        operation = simple
        key = (operation, dtype)
        if key not in self._known:
            self._known[key] = len(self.nodes)
            self.nodes.append(Node(operation, dtype, self._unique(name), *self._derived(operation)))
        return self._known[key]

    def copy(self) -> NestBuilder:
        """Return a builder that can go on without changing this one."""
        return NestBuilder(list(self.nodes), dict(self._known), set(self._names))

    def _derived(self, operation: Operation) -> tuple[frozenset[Var], int]:
        free: set[Var] = set()
        for expr in operation_expressions(operation):
            free |= expr.variables
        for arg in operands(operation):
            free |= self.nodes[arg].free
        level = max((self.nodes[arg].level for arg in operands(operation)), default=0)
        if isinstance(operation, Reduction):
            return frozenset(free - set(operation.variables)), level + 1
        return frozenset(free), level

    def _unique(self, name: str) -> str:
        unique, count = name, 1
        while unique in self._names:
            count += 1
            unique = f"{name}_{count}"
        self._names.add(unique)
        return unique


def _simplified(operation: Operation, dtype: DType) -> Operation | int:
    """Return an equal operation without guards and variables that do nothing, or the operand that it always is."""
    match operation:
        case Select(guards, inside, outside):
            guards = _open(guards)
            if not guards:
                return inside
            return outside if _is_never(guards) else Select(guards, inside, outside)
        case Load(argument, address, guards):
            if _is_never(guards):
                return Literal(False if dtype is DType.BOOL else 0)
            return Load(argument, address, _open(guards))
        case Count(factors, guards):
            return Literal(1) if _is_never(guards) else Count(factors, _open(guards))
        case Reduction(function, operand, variables):
            variables = tuple(var for var in variables if var.extent > 1)
            return Reduction(function, operand, variables) if variables else operand
    return operation


def _open(guards: Guards) -> Guards:
    return tuple(guard for guard in guards if not guard.always)


def _is_never(guards: Guards) -> bool:
    return any(guard.never for guard in guards)


def rewrite(nest: Nest, replacements: Mapping[Var, Expr]) -> Nest:
    """Replace loop variables, free and bound, by expressions of other variables.

    The new variables take the place of the old one in loop order, those with larger coefficients first. The caller
    makes sure that they reach every value of the old variables once.
    """
    builder = NestBuilder()
    moved: dict[int, int] = {}
    live = reachable(nest.nodes, [store.node for store in nest.stores])
    for position, node in enumerate(nest.nodes):
        if position in live:
            operation = moved_operation(node.operation, moved, replacements)
            moved[position] = builder.add(operation, node.dtype, node.name)
    stores = tuple(
        Store(store.result, store.address.substitute(replacements), moved[store.node]) for store in nest.stores
    )
    kept = reachable(builder.nodes, [store.node for store in stores])
    if len(kept) < len(builder.nodes):
        # Simplified guards leave operands behind that nothing reads.
        trimmed = Nest(_renamed(nest.variables, replacements), tuple(builder.nodes), stores)
        return rewrite(trimmed, {})
    return Nest(_renamed(nest.variables, replacements), tuple(builder.nodes), stores)


def moved_operation(operation: Operation, moved: Mapping[int, int], replacements: Mapping[Var, Expr]) -> Operation:
    """Return the same operation on nodes and variables that have moved."""
    match operation:
        case Load(argument, address, guards):
            return Load(argument, address.substitute(replacements), _guards(guards, replacements))
        case Apply(function, args):
            return Apply(function, tuple(moved[arg] for arg in args))
        case Select(guards, inside, outside):
            return Select(_guards(guards, replacements), moved[inside], moved[outside])
        case Reduction(function, operand, variables):
            return Reduction(function, moved[operand], _renamed(variables, replacements))
        case Count(factors, guards):
            return Count(tuple(factor.substitute(replacements) for factor in factors), _guards(guards, replacements))
        case Literal():
            return operation


def _guards(guards: Guards, replacements: Mapping[Var, Expr]) -> Guards:
    return tuple(Guard(g.position.substitute(replacements), g.low, g.high) for g in guards)


def _renamed(variables: tuple[Var, ...], replacements: Mapping[Var, Expr]) -> tuple[Var, ...]:
    result: dict[Var, None] = {}
    for var in variables:
        if var in replacements:
            result |= dict.fromkeys(variables_in_order(replacements[var]))
        else:
            result[var] = None
    return tuple(result)


def variables_in_order(expr: Expr) -> list[Var]:
    """Return the variables of an expression, those with larger coefficients first."""
    direct = sorted((-abs(c), repr(atom), atom) for atom, c in expr.terms if isinstance(atom, Var))
    rest = expr.variables - {var for _, _, var in direct}
    return [var for _, _, var in direct] + sorted(rest, key=lambda var: var.name)


def nonlinear(nest: Nest) -> int:
    """Return how many quotients, remainders and lookups the index expressions of a nest hold."""
    return sum(1 for expr in nest.expressions() for atom in expr.atoms() if isinstance(atom, Div | Mod | Lookup))
