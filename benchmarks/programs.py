"""Orchestration programs without a stopwatch: real graphs and candidates, with prices that are the same everywhere."""

from __future__ import annotations

import hashlib
import math
import statistics
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from korch_cli.candidates import (
    SearchLimits,
    cut,
    enumerate_candidates,
    lower_bound_us,
    single_nodes,
    single_operators,
)
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate, CandidateKind
from korch_cli.core.machine import MachineLimits
from korch_cli.core.model import Bindings
from korch_cli.core.plan import Priced
from korch_cli.core.primitive import Linear
from korch_cli.core.progress import Silent
from korch_cli.core.text import print_op
from korch_cli.fission import fission
from korch_cli.load import load, unroll
from korch_cli.measure import ProfileStore, default_folder
from korch_cli.pipeline.prepare import prepare
from korch_cli.pipeline.search import prepare_search
from korch_cli.pipeline.settings import Settings
from korch_cli.pipeline.target import find_tools, make_target
from korch_cli.pipeline.ways import find_ways
from korch_cli.rewrite import rewrite

LIMITS = MachineLimits("two processors of a server", 2, ((1 << 18, 80e9), (1 << 22, 40e9), (1 << 27, 12e9)), 60e9, 4.0)
"""A machine that the figures are made up for; near the one that korch is developed on."""
_PRODUCT_FLOPS_PER_SECOND = 80e9
"""Of ONNX Runtime's products on that machine."""
_STEPS = 1 << 32
_UNKNOWN_RATIO = 2.0
"""Time over bound of generated kernels, where none was measured."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A graph with its candidates and their prices.

    Attributes:
        graph: what to compute.
        priced: every candidate.
        generated: how many of them are kernels to generate.
        distinct: how many different ones.
        measured: how many of these have a measured price.
    """

    graph: PrimitiveGraph
    priced: tuple[Priced, ...]
    generated: int
    distinct: int
    measured: int = 0


def problem(path: Path, bindings: Bindings, limits: SearchLimits, *, spread: float) -> Problem:
    """Return the program of a model.

    Every price is a lower bound on LIMITS, with the arithmetic of products, which the bounds leave to the vendor; times
    1 to 1 + 2 `spread`, drawn once for each digest. At spread 0 the largest bodies are always the best ones; real
    kernels are not like that.
    """
    model = unroll(load(path, bindings)).flat
    graph = rewrite(fission(model))
    generated = enumerate_candidates(graph, limits).candidates
    vendor = (*single_operators(model, graph), *single_nodes(graph))
    prices = _Prices(graph, spread)
    priced = (*prices.of_all(vendor), *prices.of_all(generated))
    return Problem(graph, priced, len(generated), len({c.digest for c in generated}))


def measured(path: Path, bindings: Bindings, threads: int) -> Problem:
    """Return the program of a model with prices from this machine, as far as they are known.

    ONNX Runtime's kernels have the prices of its profile. Generated kernels have the times that an earlier `korch
    optimize` with the same shapes and threads left in the store; for the others, their bound stands, times the median
    of what the measured ones took over theirs.
    """
    with tempfile.TemporaryDirectory() as scratch:
        settings = Settings(path, Path(scratch) / "out.onnx", bindings, threads=threads)
        prepared = prepare(settings, Path(scratch))
        ways = find_ways(prepared.unrolled.flat, prepared.rewritten)
        target = make_target(settings, find_tools(settings), ProfileStore(default_folder()), Path(scratch), ways.model)
        limits = target.limits(Silent())
        vendor = target.vendor(ways, prepared.runnables, Silent())
        search = prepare_search(settings, ways, vendor, limits, target, 0.0, Silent())
        times = search.recall()
    ratio = statistics.median([t / search.bounds[d] for d, t in times.items() if math.isfinite(t)] or [_UNKNOWN_RATIO])
    generated = search.candidates.candidates
    prices = {d: times.get(d, bound * ratio) for d, bound in search.bounds.items()}
    priced = (*vendor, *(Priced(c, prices[c.digest]) for c in generated))
    return Problem(ways.graph, priced, len(generated), len(prices), len(times))


class _Prices:
    """Prices of candidates, computed once for each piece of work."""

    def __init__(self, graph: PrimitiveGraph, spread: float) -> None:
        self._graph = graph
        self._spread = spread
        self._known: dict[str, float] = {}

    def of_all(self, candidates: Iterable[Candidate]) -> Iterator[Priced]:
        """Price each candidate."""
        for candidate in candidates:
            generated = candidate.kind is CandidateKind.GENERATED
            digest = candidate.digest if generated else self._describe(candidate)
            if digest not in self._known:
                bound_us = self._generated(candidate) if generated else self._vendor(candidate)
                bound_us += sum(map(self._flops, candidate.body)) / _PRODUCT_FLOPS_PER_SECOND * 1e6
                share = int(hashlib.sha256(digest.encode()).hexdigest()[:8], 16) / _STEPS
                self._known[digest] = bound_us * (1 + 2 * self._spread * share)
            yield Priced(candidate, self._known[digest])

    def _describe(self, candidate: Candidate) -> str:
        """Text that is equal for equal operators, wherever they stand."""
        members = [self._graph.values[v] for v in candidate.body]
        ports = [self._graph.values[p.value].type for p in (*candidate.reads, *candidate.writes)]
        return repr(([(str(v.type), print_op(v.op)) for v in members], list(map(str, ports))))

    def _generated(self, candidate: Candidate) -> float:
        return lower_bound_us(cut(self._graph, candidate), LIMITS)

    def _vendor(self, candidate: Candidate) -> float:
        ports = {p.value for p in (*candidate.reads, *candidate.writes)}
        weights = {a for v in candidate.body for a in self._graph.values[v].args if self._graph.values[a].is_source}
        size_bytes = sum(self._graph.values[v].type.size_bytes for v in ports | weights)
        return LIMITS.dispatch_us + size_bytes / LIMITS.bytes_per_second(size_bytes) * 1e6

    def _flops(self, v: int) -> float:
        """Operations of a product: each element of the result takes as many as the second operand has for it."""
        value = self._graph.values[v]
        if not isinstance(value.op, Linear):
            return 0.0
        second = self._graph.values[value.args[1]].type
        if value.op.kind == "matmul":
            inner = second.shape[-2] if len(second.shape) > 1 else second.elements
        else:
            inner = second.elements // second.shape[0]
        return 2.0 * value.type.elements * inner
