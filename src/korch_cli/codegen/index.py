"""Integer index expressions over loop variables of known extents, simplified exactly.

An `Expr` is a sum of atoms times coefficients plus a constant. Atoms are loop variables, quotients and remainders by a
positive constant (rounded towards minus infinity), and lookups in a constant table. Every operation returns a
simplified expression that has the same value for every assignment of the variables within their extents. Expressions
are compared and sorted all the time, so that each knows its hash and its atoms know the key that they are sorted by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import gcd


@dataclass(frozen=True, slots=True)
class Var:
    """A loop variable that runs from 0 to `extent` - 1."""

    name: str
    extent: int

    @property
    def key(self) -> str:
        """What it is sorted by."""
        return f"Var({self.name},{self.extent})"


@dataclass(frozen=True, slots=True)
class Div:
    """floor(`operand` / `by`), `by` >= 2."""

    operand: Expr
    by: int
    key: str = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"Div({self.operand.key},{self.by})")
        object.__setattr__(self, "_hash", hash((self.operand, self.by)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class Mod:
    """`operand` - `by` * floor(`operand` / `by`), `by` >= 2."""

    operand: Expr
    by: int
    key: str = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"Mod({self.operand.key},{self.by})")
        object.__setattr__(self, "_hash", hash((self.operand, self.by, 0)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class Lookup:
    """`table[operand]`; the operand is inside the table wherever the expression is evaluated."""

    operand: Expr
    table: tuple[int, ...]
    key: str = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"Lookup({self.operand.key},{len(self.table)},{hash(self.table)})")
        object.__setattr__(self, "_hash", hash((self.operand, self.table)))

    def __hash__(self) -> int:
        return self._hash


Atom = Var | Div | Mod | Lookup
Range = tuple[int, int]
"""Least and greatest value, both included."""


@dataclass(frozen=True, slots=True)
class Expr:
    """The sum of `terms` (atom, coefficient), sorted by the atoms' keys, plus `constant`."""

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.terms, self.constant)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def key(self) -> str:
        """A text that says what it is, the same in every process."""
        return f"{self.constant}+" + "+".join(f"{c}*{atom.key}" for atom, c in self.terms)

    def __add__(self, other: Expr | int) -> Expr:
        if isinstance(other, int):
            return Expr(self.terms, self.constant + other)
        if not other.terms:
            return Expr(self.terms, self.constant + other.constant)
        if not self.terms:
            return Expr(other.terms, self.constant + other.constant)
        return _added(self, other)

    def __sub__(self, other: Expr | int) -> Expr:
        return self + (-other if isinstance(other, int) else other * -1)

    def __mul__(self, factor: int) -> Expr:
        if factor == 0:
            return ZERO
        if factor == 1:
            return self
        return Expr(tuple((atom, coefficient * factor) for atom, coefficient in self.terms), self.constant * factor)

    def __floordiv__(self, by: int) -> Expr:
        return _quotient(self, by)

    def __mod__(self, by: int) -> Expr:
        return _remainder(self, by)

    @property
    def is_constant(self) -> bool:
        """Whether no variable occurs."""
        return not self.terms

    @property
    def range(self) -> Range:
        """Bounds of the value; exact for a sum of distinct variables."""
        return _range(self)

    @property
    def variables(self) -> frozenset[Var]:
        """Every variable that occurs, at any depth."""
        return _variables(self)

    def coefficient(self, variable: Var) -> int | None:
        """The number that the value grows by with `variable`, or None where that is not constant."""
        result = 0
        for atom, coefficient in self.terms:
            if atom == variable:
                result = coefficient
            elif not isinstance(atom, Var) and variable in _variables(atom.operand):
                return None
        return result

    def substitute(self, replacements: Mapping[Var, Expr]) -> Expr:
        """Replace variables by expressions."""
        if not self.variables & replacements.keys():
            return self
        result = Expr((), self.constant)
        for atom, coefficient in self.terms:
            result = result + _substituted(atom, replacements) * coefficient
        return result

    def evaluate(self, values: Mapping[Var, int]) -> int:
        """The value under an assignment of all variables."""
        return self.constant + sum(c * _evaluated(atom, values) for atom, c in self.terms)

    def atoms(self) -> Iterable[Atom]:
        """Every atom at any depth, innermost last."""
        for atom, _ in self.terms:
            yield atom
            if not isinstance(atom, Var):
                yield from atom.operand.atoms()


ZERO = Expr()


def constant(value: int) -> Expr:
    """Return the expression of a number."""
    return Expr((), value)


def variable(var: Var) -> Expr:
    """Return the expression of a loop variable; one that never moves is 0."""
    return ZERO if var.extent == 1 else Expr(((var, 1),))


def lookup(operand: Expr, table: tuple[int, ...]) -> Expr:
    """Return `table[operand]`, as arithmetic where the table follows a rule.

    Entries that the operand cannot reach do not matter; an operand that may leave the table is one under a guard that
    the caller checks first.
    """
    if operand.is_constant:
        return constant(table[operand.constant] if 0 <= operand.constant < len(table) else 0)
    if len(operand.terms) == 1:
        # Over the variable itself the rule shows, e.g. the table of a resize after the variable was split.
        atom = operand.terms[0][0]
        if isinstance(atom, Var) and operand != variable(atom):
            positions = [operand.evaluate({atom: i}) for i in range(atom.extent)]
            if all(0 <= p < len(table) for p in positions):
                return lookup(variable(atom), tuple(table[p] for p in positions))
        if isinstance(atom, Lookup) and operand.terms[0][1] == 1:
            inner = [i + operand.constant for i in atom.table]
            if all(0 <= i < len(table) for i in inner):
                return lookup(atom.operand, tuple(table[i] for i in inner))
    low, high = operand.range
    low, high = max(low, 0), min(high, len(table) - 1)
    rule = _rule(operand, table, low, high)
    return Expr(((Lookup(operand, table), 1),)) if rule is None else rule


def flatten(index: Iterable[Expr], shape: Iterable[int]) -> Expr:
    """Return the row-major position of `index` in a tensor of `shape`."""
    result = ZERO
    for position, extent in zip(index, shape, strict=True):
        result = result * extent + position
    return result


def unflatten(position: Expr, shape: tuple[int, ...]) -> tuple[Expr, ...]:
    """Return the index of row-major `position` in a tensor of `shape` that has no empty axis."""
    result: list[Expr] = []
    for extent in reversed(shape[1:]):
        result.append(position % extent)
        position = position // extent
    return (*([position] if shape else []), *reversed(result))


@lru_cache(maxsize=65536)
def _added(left: Expr, right: Expr) -> Expr:
    return _recombined(_sum((*left.terms, *right.terms), left.constant + right.constant))


def _sum(terms: Iterable[tuple[Atom, int]], number: int) -> Expr:
    collected: dict[Atom, int] = {}
    for atom, coefficient in terms:
        collected[atom] = collected.get(atom, 0) + coefficient
    kept = [(atom, coefficient) for atom, coefficient in collected.items() if coefficient]
    if len(kept) > 1:
        kept.sort(key=_order)
    return Expr(tuple(kept), number)


def _order(term: tuple[Atom, int]) -> str:
    return term[0].key


def _recombined(expr: Expr) -> Expr:
    """Apply m = by * (m // by) + m % by wherever that leaves fewer quotients and remainders."""
    for atom, coefficient in expr.terms:
        if not isinstance(atom, Mod):
            continue
        whole = atom.operand * coefficient
        quotient = (atom.operand // atom.by) * (-coefficient * atom.by)
        pieces = (*expr.terms, (atom, -coefficient), *whole.terms, *quotient.terms)
        candidate = _sum(pieces, expr.constant + whole.constant + quotient.constant)
        if _complexity(candidate) < _complexity(expr):
            return _recombined(candidate)
    return expr


def _complexity(expr: Expr) -> int:
    return sum(1 for atom, _ in expr.terms if not isinstance(atom, Var))


@lru_cache(maxsize=65536)
def _range(expr: Expr) -> Range:
    low = high = expr.constant
    for atom, coefficient in expr.terms:
        a, b = _atom_range(atom)
        low += min(a * coefficient, b * coefficient)
        high += max(a * coefficient, b * coefficient)
    return low, high


def _atom_range(atom: Atom) -> Range:
    if isinstance(atom, Var):
        return 0, atom.extent - 1
    if isinstance(atom, Lookup):
        low, high = _range(atom.operand)
        reached = atom.table[max(low, 0) : high + 1] or atom.table
        return min(reached), max(reached)
    low, high = _range(atom.operand)
    if isinstance(atom, Div):
        return low // atom.by, high // atom.by
    return 0, min(atom.by - 1, high) if low >= 0 else atom.by - 1


@lru_cache(maxsize=65536)
def _variables(expr: Expr) -> frozenset[Var]:
    return frozenset(atom for atom in expr.atoms() if isinstance(atom, Var))


def _substituted(atom: Atom, replacements: Mapping[Var, Expr]) -> Expr:
    if isinstance(atom, Var):
        return replacements.get(atom, variable(atom))
    operand = atom.operand.substitute(replacements)
    if isinstance(atom, Div):
        return operand // atom.by
    if isinstance(atom, Mod):
        return operand % atom.by
    return lookup(operand, atom.table)


def _evaluated(atom: Atom, values: Mapping[Var, int]) -> int:
    if isinstance(atom, Var):
        return values[atom]
    operand = atom.operand.evaluate(values)
    if isinstance(atom, Div):
        return operand // atom.by
    if isinstance(atom, Mod):
        return operand % atom.by
    # Under a guard that does not hold a position may leave the table.
    return atom.table[operand] if 0 <= operand < len(atom.table) else 0


def _split(expr: Expr, by: int) -> tuple[Expr, Expr]:
    """Return q and r with expr = q * by + r, where r holds what is no multiple of `by` by itself."""
    multiples = tuple((atom, c // by) for atom, c in expr.terms if c % by == 0)
    rest = tuple((atom, c) for atom, c in expr.terms if c % by)
    return Expr(multiples, expr.constant // by), Expr(rest, expr.constant % by)


def _aligned(rest: Expr, by: int) -> tuple[int, Expr, Expr] | None:
    """Find g dividing `by` with rest = g * high + low and 0 <= low < g: then rest // by is high // (by / g)."""
    for g in sorted({gcd(c, by) for _, c in rest.terms} - {1}, reverse=True):
        high, low = _split(rest, g)
        if not high.is_constant and low.range[0] >= 0 and low.range[1] < g:
            return g, high, low
    return None


@lru_cache(maxsize=65536)
def _quotient(expr: Expr, by: int) -> Expr:
    assert by >= 1
    if by == 1:
        return expr
    whole, rest = _split(expr, by)
    low, high = rest.range
    if low // by == high // by:
        return whole + low // by
    if aligned := _aligned(rest, by):
        g, upper, _ = aligned
        return whole + upper // (by // g)
    if rest.constant == 0 and len(rest.terms) == 1 and rest.terms[0][1] == 1:
        atom = rest.terms[0][0]
        if isinstance(atom, Div):
            return whole + atom.operand // (atom.by * by)
        if isinstance(atom, Mod) and atom.by % by == 0:
            return whole + (atom.operand // by) % (atom.by // by)
    return whole + Expr(((Div(rest, by), 1),))


@lru_cache(maxsize=65536)
def _remainder(expr: Expr, by: int) -> Expr:
    assert by >= 1
    _, rest = _split(expr, by)
    low, high = rest.range
    if low // by == high // by:
        return rest - (low // by) * by
    if aligned := _aligned(rest, by):
        g, upper, lower = aligned
        return (upper % (by // g)) * g + lower
    if rest.constant == 0 and len(rest.terms) == 1 and rest.terms[0][1] == 1:
        atom = rest.terms[0][0]
        if isinstance(atom, Mod) and atom.by % by == 0:
            return atom.operand % by
    return Expr(((Mod(rest, by), 1),))


def _rule(operand: Expr, table: tuple[int, ...], low: int, high: int) -> Expr | None:
    """Express table[low..high] as a * operand + b, or as b + operand // c or operand % c."""
    if low >= high:
        return constant(table[low]) if low == high else None
    reached = table[low : high + 1]
    step = reached[1] - reached[0]
    if all(b - a == step for a, b in pairwise(reached)):
        return operand * step + (reached[0] - step * low)
    if low == 0:
        period = next((i for i, t in enumerate(reached) if t != reached[0]), 0)
        if period > 1 and all(t == reached[0] + i // period for i, t in enumerate(reached)):
            return operand // period + reached[0]
        period = next((i for i, t in enumerate(reached) if i and t == reached[0]), 0)
        if period > 1 and all(t == reached[0] + i % period for i, t in enumerate(reached)):
            return operand % period + reached[0]
    return None
