"""Bodies in a canonical order, so that repeated layers share their kernels.

Every value of a body gets a hash of what computes it and of what is computed from it. The values that the body writes
are sorted by that hash, then by the numbers of what they share with earlier ones, and the primitives are numbered in
depth-first order from there. Bodies that are equal up to ids and names thereby nearly always get the same order; where
two values still tie, the smaller id goes first, and the worst that follows is a kernel measured twice. No hash depends
on the process or the machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from korch_cli.candidates.legality import written
from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.kernel import Candidate, KernelBody
from korch_cli.core.primitive import Constant, Input
from korch_cli.core.text import print_op


@dataclass(frozen=True, slots=True)
class Canonical:
    """A body in canonical order; everything is an id of the whole graph.

    Attributes:
        reads: what it needs in memory, constants excluded.
        constants: the weights among its operands.
        literals: the constants printed into it, each value once.
        primitives: in an order in which they can be computed.
        writes: what it leaves in memory.
        refs: for each primitive, the positions of its operands in the concatenation of the above.
        texts: what `reads` and `constants`, `literals`, and `primitives` are, in words.
        key: equal for equal cut graphs, and only for these.
    """

    reads: tuple[int, ...]
    constants: tuple[int, ...]
    literals: tuple[int, ...]
    primitives: tuple[int, ...]
    writes: tuple[int, ...]
    refs: tuple[tuple[int, ...], ...]
    texts: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
    key: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class _Description:
    """What a value is, apart from its operands; hash and number also tell weights from computed values."""

    text: str
    hash: int
    literal: bool
    number: int


class Canonicalizer:
    """Puts bodies of one graph into canonical order; remembers how it described each value."""

    def __init__(self, graph: PrimitiveGraph) -> None:
        self._graph = graph
        self._inside: dict[int, _Description] = {}
        self._outside: dict[int, _Description] = {}
        self._digests: dict[tuple[object, ...], str] = {}
        self._outputs = frozenset(graph.outputs)
        self._numbers: dict[str, int] = {}
        self._patterns: dict[tuple[int, ...], Canonical] = {}

    def order(self, body: Sequence[int]) -> Canonical:
        """Return the canonical order of `body`, whose ids are ascending."""
        pattern, outside = self._pattern(body)
        around = (*body, *outside)
        found = self._patterns.get(pattern)
        if found is None:
            canonical = self._order(body)
            position = {v: i for i, v in enumerate(around)}
            self._patterns[pattern] = _renumbered(canonical, position)
            return canonical
        return _renumbered(found, around)

    def _pattern(self, body: Sequence[int]) -> tuple[tuple[int, ...], dict[int, int]]:
        """Return what the order of `body` depends on, and the operands from outside; equal in equal layers.

        Ids inside count by their order alone, and ids outside by their identity alone.
        """
        values, users, outputs = self._graph.values, self._graph.users, self._outputs
        inside = {v: i for i, v in enumerate(body)}
        outside: dict[int, int] = {}
        pattern: list[int] = []
        for v in body:
            kept = v in outputs or any(u not in inside for u in users[v])
            args = values[v].args
            pattern += (self._describe(v, inside=True).number, kept, len(args))
            for a in args:
                at = inside.get(a)
                pattern.append(len(body) + outside.setdefault(a, len(outside)) if at is None else at)
        pattern += [self._describe(a, inside=False).number for a in outside]
        return tuple(pattern), outside

    def _order(self, body: Sequence[int]) -> Canonical:
        hashes = self._structure(body)
        inside = set(body)
        seen: dict[int, int] = {}
        waiting: dict[int, list[int]] = {}
        writes = written(self._graph, body)
        for v in writes:
            waiting.setdefault(hashes[v], []).append(v)
        for _, roots in sorted(waiting.items()):
            while roots:
                root = roots[0] if len(roots) == 1 else min(roots, key=lambda v: self._trace(v, inside, seen))
                roots.remove(root)
                self._visit(root, inside, seen)
        order = tuple(v for v in seen if v in inside)
        assert len(order) == len(body), "a body holds a primitive from which nothing is computed"
        kept = set(writes)
        return self._number(order, tuple(v for v in order if v in kept))

    def digest(self, canonical: Canonical) -> str:
        """Return the digest of the cut graph."""
        found = self._digests.get(canonical.key)
        if found is None:
            found = self._digests[canonical.key] = hashlib.sha256(_text(canonical).encode()).hexdigest()
        return found

    def cut(self, candidate: Candidate) -> KernelBody:
        """Return the body of a generated candidate as a graph of its own."""
        canonical = self.order(candidate.body)
        assert canonical.reads == tuple(port.value for port in candidate.reads)
        assert canonical.writes == tuple(port.value for port in candidate.writes)
        arguments = canonical.reads + canonical.constants
        return KernelBody(self.digest(canonical), _build(self._graph, canonical), arguments, canonical.writes)

    def _describe(self, v: int, *, inside: bool) -> _Description:
        """Describe a primitive of a body, or what it takes from outside: a literal, a weight or a computed value."""
        table = self._inside if inside else self._outside
        found = table.get(v)
        if found is None:
            value = self._graph.values[v]
            constant = isinstance(value.op, Constant)
            literal = isinstance(value.op, Constant) and value.op.literal is not None
            # A weight and a value that some kernel computed are both operands: one kernel serves either.
            text = f"{value.type} = {print_op(value.op) if inside or literal else 'input'}"
            full = f"{constant} {text}"
            digest = hashlib.blake2b(full.encode(), digest_size=7).digest()
            number = self._numbers.setdefault(full, len(self._numbers))
            found = table[v] = _Description(text, int.from_bytes(digest, "little"), literal, number)
        return found

    def _is_literal(self, v: int) -> bool:
        return self._graph.values[v].is_source and self._describe(v, inside=False).literal

    def _visit(self, v: int, inside: set[int], seen: dict[int, int]) -> None:
        """Number `v` after everything that it is computed from, operands in their order."""
        if v in inside and v not in seen:
            for a in self._graph.values[v].args:
                self._visit(a, inside, seen)
        if v not in seen and not self._is_literal(v):
            seen[v] = len(seen)

    def _trace(self, v: int, inside: set[int], seen: dict[int, int]) -> tuple[int, ...]:
        """Tell alike values apart by which numbered ones they are computed from; the id decides what remains."""
        found: list[int] = []
        met: dict[int, int] = {}
        todo = [v]
        while todo:
            w = todo.pop()
            if w in inside and w not in seen and w not in met:
                todo.extend(self._graph.values[w].args)
            if not self._is_literal(w):
                found.append(seen[w] if w in seen else len(self._graph.values) + met.setdefault(w, len(met)))
        return (*found, v)

    def _structure(self, body: Sequence[int]) -> dict[int, int]:
        """Hash every value of the body, first from its operands, then from its uses, then from both."""
        values = self._graph.values
        inside = set(body)
        uses: dict[int, list[tuple[int, int]]] = {}
        outer: dict[int, int] = {}
        up: dict[int, int] = {}
        for v in body:
            args = values[v].args
            for position, a in enumerate(args):
                uses.setdefault(a, []).append((v, position))
                if a not in inside:
                    outer[a] = self._describe(a, inside=False).hash
            up[v] = hash((self._describe(v, inside=True).hash, *(up[a] if a in inside else outer[a] for a in args)))
        outputs = self._graph.outputs
        users = self._graph.users
        down: dict[int, int] = {}
        for v in reversed(body):
            kept = v in outputs or not inside.issuperset(users[v])
            down[v] = hash((kept, *sorted(hash((down[u], up[u], p)) for u, p in uses.get(v, ()))))
        both: dict[int, int] = {}
        for a, described in outer.items():
            context = sorted((down[u], up[u], p) for u, p in uses[a])
            # Where a literal is used says nothing: each use may have one of its own.
            both[a] = described if self._is_literal(a) else hash((described, *context))
        for v in body:
            both[v] = hash((up[v], down[v], *(both[a] for a in values[v].args)))
        return both

    def _number(self, primitives: tuple[int, ...], writes: tuple[int, ...]) -> Canonical:
        values = self._graph.values
        inside = set(primitives)
        texts = {v: self._describe(v, inside=True).text for v in primitives}
        reads: dict[int, None] = {}
        constants: dict[int, None] = {}
        literals: dict[str, int] = {}
        for v in primitives:
            for a in values[v].args:
                if a in inside:
                    continue
                texts[a] = self._describe(a, inside=False).text
                if self._is_literal(a):
                    literals.setdefault(texts[a], a)
                elif isinstance(values[a].op, Constant):
                    constants[a] = None
                else:
                    reads[a] = None
        sources = (*reads, *constants)
        position = {v: i for i, v in enumerate((*sources, *literals.values(), *primitives))}
        refs = tuple(
            tuple(position[a if a in position else literals[texts[a]]] for a in values[v].args) for v in primitives
        )
        words = (tuple(texts[v] for v in sources), tuple(literals), tuple(texts[v] for v in primitives))
        key = (words, refs, tuple(position[v] for v in writes))
        return Canonical(tuple(reads), tuple(constants), tuple(literals.values()), primitives, writes, refs, words, key)


def _renumbered(canonical: Canonical, ids: Mapping[int, int] | Sequence[int]) -> Canonical:
    """Return the same order of values with other ids."""

    def renumber(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([ids[v] for v in values])

    return Canonical(
        renumber(canonical.reads),
        renumber(canonical.constants),
        renumber(canonical.literals),
        renumber(canonical.primitives),
        renumber(canonical.writes),
        canonical.refs,
        canonical.texts,
        canonical.key,
    )


def cut(graph: PrimitiveGraph, candidate: Candidate) -> KernelBody:
    """Return the body of a generated candidate as a graph of its own, independent of ids and names around it."""
    return Canonicalizer(graph).cut(candidate)


def cut_all(graph: PrimitiveGraph, candidates: Iterable[Candidate]) -> Iterator[KernelBody]:
    """Cut many candidates out of one graph, which takes less time than one by one."""
    return map(Canonicalizer(graph).cut, candidates)


def _text(canonical: Canonical) -> str:
    """Print the graph that `_build` makes, as `print_graph` does."""
    sources, literals, primitives = canonical.texts
    lines = [f'%{i} "a{i}" {text}' for i, text in enumerate(sources)]
    lines += [f'%{len(sources) + i} "c{i}" {text}' for i, text in enumerate(literals)]
    first = len(lines)
    for i, (text, refs) in enumerate(zip(primitives, canonical.refs, strict=True)):
        lines.append(f'%{first + i} "v{i}" {text} ({", ".join(f"%{r}" for r in refs)})')
    position = {v: first + i for i, v in enumerate(canonical.primitives)}
    lines.append(f"outputs ({', '.join(f'%{position[v]}' for v in canonical.writes)})")
    return "\n".join(lines) + "\n"


def _build(graph: PrimitiveGraph, canonical: Canonical) -> PrimitiveGraph:
    values: list[Value] = []
    for i, v in enumerate(canonical.reads + canonical.constants):
        values.append(Value(len(values), f"a{i}", graph.values[v].type, Input()))
    for i, v in enumerate(canonical.literals):
        values.append(Value(len(values), f"c{i}", graph.values[v].type, graph.values[v].op))
    for i, (v, refs) in enumerate(zip(canonical.primitives, canonical.refs, strict=True)):
        values.append(Value(len(values), f"v{i}", graph.values[v].type, graph.values[v].op, refs))
    first = len(values) - len(canonical.primitives)
    position = {v: first + i for i, v in enumerate(canonical.primitives)}
    return PrimitiveGraph(tuple(values), tuple(position[v] for v in canonical.writes))
