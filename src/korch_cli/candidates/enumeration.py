"""Every set of primitives that is worth trying as one kernel.

A body is connected (an edge, or an operand that two primitives both walk over, joins its parts) and convex (no path
leaves it and comes back). It is grown from its smallest primitive, one neighbour and the convex closure at a time,
which reaches every connected convex set exactly once: within such a set, any smaller one that holds the seed has a
neighbour, and the closure stays inside. Only limits that hold for all subsets of a body, such as its size, cut growth.
A value with very many readers or operands is an exception: next to one of them, a body takes only those that follow it,
so that the work for a hub grows with their number and not with its square.
Sizes are visited in ascending order. Where a wide region has more bodies of one size than its share, those that save
the most memory traffic stay (a beam), so that a chain keeps all its intervals and a hub does not explode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from korch_cli.candidates.canonical import Canonicalizer
from korch_cli.candidates.legality import fusible, plausible
from korch_cli.candidates.limits import CandidateSet, SearchLimits
from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.primitive import Constant, Linear, Reduce, Reshape, WindowReduce

_SAMPLE = 48


def enumerate_candidates(graph: PrimitiveGraph, limits: SearchLimits) -> CandidateSet:
    """Return the generated candidates of `graph`, each with the digest of its cut graph."""
    counters: Counter[str] = Counter()
    live = _live(graph)
    seeds = []
    for value in graph.primitives():
        reason = fusible(graph, value, limits) if value.id in live else "unused"
        if reason is None:
            seeds.append(value.id)
        else:
            counters[f"primitive: {reason}"] += 1
    region = _Region(graph, frozenset(seeds), limits)
    quota = _quota(region, seeds, limits)
    canonicalizer = Canonicalizer(graph)
    ports = [Port(v.id) for v in graph.values]
    candidates: list[Candidate] = []
    for seed in seeds:
        for body in region.grow(seed, quota, counters):
            reason = plausible(graph, body, limits)
            if reason is None and len(candidates) >= limits.max_candidates:
                reason = "more candidates than the limit"
            if reason is not None:
                counters[f"body: {reason}"] += 1
                continue
            candidates.append(_candidate(canonicalizer, ports, body))
    return CandidateSet(tuple(candidates), dict(counters))


def candidate_of(graph: PrimitiveGraph, body: Sequence[int]) -> Candidate:
    """Return the candidate of one body, whose ids are ascending."""
    return _candidate(Canonicalizer(graph), [Port(v.id) for v in graph.values], tuple(body))


def _candidate(canonicalizer: Canonicalizer, ports: Sequence[Port], body: tuple[int, ...]) -> Candidate:
    canonical = canonicalizer.order(body)
    reads, writes = (tuple([ports[v] for v in values]) for values in (canonical.reads, canonical.writes))
    return Candidate(CandidateKind.GENERATED, body, reads, writes, canonicalizer.digest(canonical))


def _live(graph: PrimitiveGraph) -> frozenset[int]:
    """The values from which an output is computed."""
    live = set(graph.outputs)
    for value in reversed(graph.values):
        if value.id in live:
            live.update(value.args)
    return frozenset(live)


def _quota(region: _Region, seeds: Sequence[int], limits: SearchLimits) -> int:
    """The bodies that each seed may have; the same for all, so that repeated layers are treated alike."""
    if len(seeds) * limits.per_seed <= limits.max_candidates:
        return limits.per_seed
    sample = seeds[:: max(1, len(seeds) // _SAMPLE)]
    found = [len(region.grow(seed, limits.per_seed, Counter())) for seed in sample]
    room = limits.max_candidates * len(sample) / len(seeds)
    low, high = 1, limits.per_seed
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(count, middle) for count in found) <= room:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True, slots=True)
class _Traffic:
    """Bytes that a value alone moves as a kernel, and that it adds to a body as an operand or as a result."""

    alone: int
    size: int


@dataclass(frozen=True, slots=True)
class _Worth:
    """What a kernel for a body moves less than one for each of its primitives.

    Attributes:
        saved: bytes.
        reads: values that the body reads, as bits.
    """

    saved: int
    reads: int


class _Region:
    """The primitives that bodies are made of, with all that growing needs; sets of values are bits of integers."""

    def __init__(self, graph: PrimitiveGraph, allowed: frozenset[int], limits: SearchLimits) -> None:
        self._limits = limits
        self._above, self._below = _reachable(graph)
        self._near, self._hubs = _neighbours(graph, allowed, limits)
        self._wide = _mask(self._hubs)
        self._forbidden = _mask(v.id for v in graph.values if v.id not in allowed)
        self._linear = _mask(v.id for v in graph.values if isinstance(v.op, Linear))
        self._reduces = _mask(v.id for v in graph.values if isinstance(v.op, Reduce | WindowReduce))
        self._traffic = [_traffic(graph, v) for v in graph.values]
        self._args = [_mask(v.args) for v in graph.values]
        # A graph's output has a reader that no body holds.
        outside = 1 << len(graph.values)
        outputs = frozenset(graph.outputs)
        self._users = [_mask(users) | (outside if v in outputs else 0) for v, users in enumerate(graph.users)]

    def grow(self, seed: int, quota: int, counters: Counter[str]) -> list[tuple[int, ...]]:
        """Return at most `quota` connected convex bodies whose smallest primitive is `seed`, by size."""
        largest = self._limits.max_primitives
        beam = max(quota, 2 * largest)
        levels: list[dict[int, _Worth]] = [{} for _ in range(largest + 1)]
        levels[1][1 << seed] = self._worth(1 << seed, seed)
        kept: list[tuple[int, int]] = []
        for size in range(1, largest + 1):
            # What small sizes leave unused goes to the larger ones.
            share = beam * size // largest - len(kept)
            level = levels[size]
            bodies = self._best(level, share, seed)
            counters["body: beyond the share of its seed"] += len(level) - len(bodies)
            for mask in bodies:
                kept.append((mask, level[mask].saved))
                self._extend(mask, level[mask], seed, levels, counters)
        if len(kept) > quota:
            counters["body: beyond the share of its seed"] += len(kept) - quota
            best = sorted(kept[1:], key=lambda entry: -entry[1])[: quota - 1]
            kept = [kept[0], *sorted(best, key=lambda entry: entry[0].bit_count())]
        return [tuple(_bits(mask, seed)) for mask, _ in kept]

    def _best(self, level: dict[int, _Worth], share: int, seed: int) -> list[int]:
        # Ties go by the distances from the seed, which are equal in equal layers.
        if len(level) <= share:
            return sorted(level)
        return sorted(level, key=lambda mask: (-level[mask].saved, mask >> seed))[:share]

    def _extend(
        self, mask: int, worth: _Worth, seed: int, levels: list[dict[int, _Worth]], counters: Counter[str]
    ) -> None:
        """Add to `levels` what one more neighbour of a body makes of it."""
        limits = self._limits
        above = below = near = 0
        for v in _bits(mask, seed):
            above |= self._above[v]
            below |= self._below[v]
            near |= self._near[v]
        for v in _bits(mask & self._wide, seed):
            for side in self._hubs[v]:
                near |= side.reached(mask)
        for u in _bits(near & ~mask, seed):
            added = 1 << u
            grown = mask | added | (above | self._above[u]) & (below | self._below[u])
            size = grown.bit_count()
            if size > limits.max_primitives:
                counters["growth: more primitives than the limit"] += 1
            elif grown & self._forbidden:
                counters["growth: a path through what no kernel takes"] += 1
            elif (grown & self._linear).bit_count() > limits.max_linear:
                counters["growth: more products than the limit"] += 1
            elif (grown & self._reduces).bit_count() > limits.max_reduces:
                counters["growth: more reductions than the limit"] += 1
            elif grown not in levels[size]:
                alone = grown == mask | added
                levels[size][grown] = self._joined(mask, worth, u) if alone else self._worth(grown, seed)

    def _worth(self, mask: int, seed: int) -> _Worth:
        body = list(_bits(mask, seed))
        reads = 0
        for v in body:
            reads |= self._args[v]
        reads &= ~mask
        moved = self._size(reads) + sum(self._traffic[v].size for v in body if self._users[v] & ~mask)
        return _Worth(sum(self._traffic[v].alone for v in body) - moved, reads)

    def _joined(self, mask: int, worth: _Worth, u: int) -> _Worth:
        """The worth of a body and one more primitive, from that of the body."""
        traffic, args = self._traffic, self._args[u]
        grown = mask | 1 << u
        saved = worth.saved + traffic[u].alone - self._size(args & ~worth.reads & ~mask)
        if worth.reads >> u & 1:
            saved += traffic[u].size
        if self._users[u] & ~grown:
            saved -= traffic[u].size
        # What only the new primitive still read from outside is a result no longer.
        saved += sum(traffic[a].size for a in _bits(args & mask, 0) if not self._users[a] & ~grown)
        return _Worth(saved, (worth.reads | args) & ~grown)

    def _size(self, mask: int) -> int:
        return sum(self._traffic[v].size for v in _bits(mask, 0))


def _reachable(graph: PrimitiveGraph) -> tuple[list[int], list[int]]:
    """For each value, what it is computed from and what is computed from it, opaque values included."""
    above = [0] * len(graph.values)
    below = [0] * len(graph.values)
    for value in graph.values:
        for a in value.args:
            if not graph.values[a].is_source:
                above[value.id] |= above[a] | 1 << a
    for value in reversed(graph.values):
        for u in graph.users[value.id]:
            below[value.id] |= below[u] | 1 << u
    return above, below


@dataclass(frozen=True, slots=True)
class _Side:
    """The many readers, or the many operands, of one value.

    Attributes:
        members: all of them, as bits.
        following: for each of them, the next ones.
    """

    members: int
    following: Mapping[int, int]

    def reached(self, mask: int) -> int:
        """What a body with the value may take: any of the members, then only those that follow the first it has."""
        taken = self.members & mask
        return self.following[(taken & -taken).bit_length() - 1] if taken else self.members


def _neighbours(
    graph: PrimitiveGraph, allowed: frozenset[int], limits: SearchLimits
) -> tuple[list[int], dict[int, list[_Side]]]:
    """Return what joins allowed values: for each, those that an edge or an operand in common joins to it, as bits.

    Where more than `limits.edge_reach` readers or operands would be among them, they are a side instead.
    """
    near = _siblings(graph, allowed, limits.sibling_reach)
    hubs: dict[int, list[_Side]] = {}
    for v in allowed:
        for ends in (graph.values[v].args, graph.users[v]):
            found = sorted(allowed.intersection(ends))
            if len(found) > limits.edge_reach:
                hubs.setdefault(v, []).append(_side(found, limits.edge_reach))
            else:
                near[v] |= _mask(found)
    return near, hubs


def _side(members: Sequence[int], reach: int) -> _Side:
    return _Side(_mask(members), {v: _mask(members[i + 1 : i + 1 + reach]) for i, v in enumerate(members)})


def _siblings(graph: PrimitiveGraph, allowed: frozenset[int], reach: int) -> list[int]:
    """For each allowed value, those that an operand in common joins to it, as bits."""
    near = [0] * len(graph.values)
    for value in graph.values:
        if isinstance(value.op, Constant):
            continue
        readers: dict[tuple[int, ...], list[int]] = {}
        for u in graph.users[value.id]:
            if u in allowed:
                readers.setdefault(_domain(graph, graph.values[u]), []).append(u)
        for alike in readers.values():
            for i, u in enumerate(alike):
                for v in alike[i + 1 : i + 1 + reach]:
                    near[u] |= 1 << v
                    near[v] |= 1 << u
    return near


def _domain(graph: PrimitiveGraph, value: Value) -> tuple[int, ...]:
    """The shape that a kernel for this primitive alone loops over."""
    return graph.values[value.args[0]].type.shape if isinstance(value.op, Reduce) else value.type.shape


def _traffic(graph: PrimitiveGraph, value: Value) -> _Traffic:
    size = value.type.size_bytes
    if value.is_source or isinstance(value.op, Reshape):
        return _Traffic(0, size)
    return _Traffic(size + sum(graph.values[a].type.size_bytes for a in set(value.args)), size)


def _mask(values: Iterable[int]) -> int:
    mask = 0
    for v in values:
        mask |= 1 << v
    return mask


def _bits(mask: int, start: int) -> Iterator[int]:
    """The values in `mask` from `start` on, ascending."""
    mask >>= start
    while mask:
        low = mask & -mask
        yield start + low.bit_length() - 1
        mask ^= low
