"""Einsum: sums of products over named axes, two operands at a time from the left."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from korch_cli.core.errors import Refusal
from korch_cli.core.graph import Value
from korch_cli.fission.build import Builder
from korch_cli.fission.registry import fission
from korch_cli.fission.view import OperatorView

_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")
_LETTERS = re.compile(r"\.\.\.|[A-Za-z]")
_REST = "..."


@dataclass(frozen=True, slots=True)
class Term:
    """An operand and the name of each of its axes: a letter, or "...3" for the third axis from the end of the rest."""

    value: Value
    names: tuple[str, ...]

    def extent(self, name: str) -> int:
        """Return the extent of the axis of this name."""
        return self.value.type.shape[self.names.index(name)]


@fission("Einsum", since=12, also=(28,))
def einsum(op: OperatorView, build: Builder) -> Value:
    """Contract the operands of an equation one after the other.

    Refuses equations in which an axis has two extents, unless it is of an ellipsis, which broadcasts.
    """
    operands = op.inputs()
    terms, wanted = _parsed(op.text("equation", ""), [x.type.rank for x in operands])
    named = [_diagonal(build, Term(x, names)) for x, names in zip(operands, terms, strict=True)]
    _check_extents(named)
    current = named[0]
    for i, other in enumerate(named[1:], 1):
        later = {name for term in named[i + 1 :] for name in term.names}
        current = _contracted(build, current, other, later.union(wanted))
    current = _summed(build, current, wanted)
    if set(current.names) != set(wanted) or len(set(wanted)) != len(wanted):
        raise Refusal("its result has axes that no operand has, or one axis twice")
    return _arranged(build, current, wanted)


def _parsed(equation: str, ranks: list[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Return the names of the axes of each operand and of the result."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(ranks) or not all(_TERM.fullmatch(text) for text in (*texts, right)):
        raise Refusal(f"the equation {equation!r} does not fit its {len(ranks)} operands")
    terms = [_names(text, rank) for text, rank in zip(texts, ranks, strict=True)]
    rest = max((tuple(n for n in names if n.startswith(_REST)) for names in terms), key=len)
    if arrow:
        if rest and _REST not in right:
            raise Refusal("it sums over an ellipsis")
        found = [rest if letter == _REST else (letter,) for letter in _LETTERS.findall(right)]
        return terms, tuple(name for part in found for name in part)
    counts = Counter(name for names in terms for name in names if not name.startswith(_REST))
    return terms, (*rest, *sorted(name for name, count in counts.items() if count == 1))


def _names(text: str, rank: int) -> tuple[str, ...]:
    letters = _LETTERS.findall(text)
    spare = rank - sum(letter != _REST for letter in letters)
    if spare < 0 or (spare and _REST not in letters):
        raise Refusal(f"the term {text!r} is not for an operand of rank {rank}")
    names: list[str] = []
    for letter in letters:
        names += [f"{_REST}{i}" for i in range(spare, 0, -1)] if letter == _REST else [letter]
    return tuple(names)


def _check_extents(terms: list[Term]) -> None:
    for name in {name for term in terms for name in term.names}:
        extents = {term.extent(name) for term in terms if name in term.names}
        if name.startswith(_REST):
            extents.discard(1)
        if len(extents) > 1:
            raise Refusal(f"its axis {name!r} has the extents {sorted(extents)}")


def _diagonal(build: Builder, term: Term) -> Term:
    """Take the diagonal of axes of one name."""
    twice = next((name for name, count in Counter(term.names).items() if count > 1), None)
    if twice is None:
        return term
    first = term.names.index(twice)
    second = term.names.index(twice, first + 1)
    shape = term.value.type.shape
    extent = shape[first]
    if shape[second] != extent:
        raise Refusal(f"its axis {twice!r} has the extents {sorted((extent, shape[second]))}")
    kept = [axis for axis in range(len(shape)) if axis not in (first, second)]
    moved = build.transpose(term.value, (*kept, first, second))
    outer = tuple(shape[axis] for axis in kept)
    flat = build.reshape(moved, (*outer, extent * extent))
    rank = len(outer)
    value = build.slice(flat, (0,) * (rank + 1), (1,) * rank + (extent + 1,), (*outer, extent))
    return _diagonal(build, Term(value, (*(term.names[axis] for axis in kept), twice)))


def _summed(build: Builder, term: Term, needed: Collection[str]) -> Term:
    """Sum over the axes that are not needed."""
    over = tuple(axis for axis, name in enumerate(term.names) if name not in needed)
    kept = tuple(name for name in term.names if name in needed)
    total = build.reduce("sum", term.value, over)
    return Term(build.reshape(total, tuple(term.extent(name) for name in kept)), kept)


def _arranged(build: Builder, term: Term, names: tuple[str, ...]) -> Value:
    return build.transpose(term.value, tuple(term.names.index(name) for name in names))


def _contracted(build: Builder, x: Term, y: Term, needed: Collection[str]) -> Term:
    """Multiply two operands and sum over what they share and nothing needs afterwards."""
    x = _summed(build, x, {*needed, *y.names})
    y = _summed(build, y, {*needed, *x.names})
    shared = [name for name in x.names if name in y.names]
    batch = tuple(name for name in shared if name in needed)
    inner = tuple(name for name in shared if name not in needed)
    rows = tuple(name for name in x.names if name not in shared)
    columns = tuple(name for name in y.names if name not in shared)
    names = (*batch, *rows, *columns)
    if inner and (rows or columns):
        left = _matrices(build, x, batch, rows, inner)
        right = _matrices(build, y, batch, inner, columns)
        product = build.matmul(left, right)
        outer = (*product.type.shape[: len(batch)], *map(x.extent, rows), *map(y.extent, columns))
        return Term(build.reshape(product, outer), names)
    every = (*names, *inner)
    product = build.mul(_spread(build, x, every), _spread(build, y, every))
    return _summed(build, Term(product, every), needed)


def _matrices(
    build: Builder, term: Term, batch: tuple[str, ...], rows: tuple[str, ...], columns: tuple[str, ...]
) -> Value:
    extents = [math.prod(map(term.extent, group)) for group in (rows, columns)]
    ordered = _arranged(build, term, (*batch, *rows, *columns))
    return build.reshape(ordered, (*map(term.extent, batch), *extents))


def _spread(build: Builder, term: Term, names: tuple[str, ...]) -> Value:
    """Return the operand with its axes in the order of `names`, and the extent 1 for those that it has not."""
    ordered = _arranged(build, term, tuple(name for name in names if name in term.names))
    return build.reshape(ordered, tuple(term.extent(name) if name in term.names else 1 for name in names))
