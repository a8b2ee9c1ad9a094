"""What ONNX Runtime's own kernels cost inside the model, measured once and then kept in the store."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from korch_cli.candidates import vendor_candidates
from korch_cli.core.errors import ModelError
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import CandidateKind
from korch_cli.core.machine import VendorProfile
from korch_cli.core.model import Model
from korch_cli.core.plan import Priced
from korch_cli.core.types import Array
from korch_cli.load import name_nodes, vendor_profile
from korch_cli.measure import kept, profile_model
from korch_cli.pipeline.digest import file_digest
from korch_cli.pipeline.laboratory import Bench
from korch_cli.pipeline.prepare import Runnable
from korch_cli.pipeline.stored import decode_profile, encode_profile
from korch_cli.pipeline.ways import Ways, cheapest

_LEAST_COMMON, _LEAST_SHARE = 8, 0.2
"""Kernels, and the share of the time, that two profiles must have in common to be compared."""


def priced_ways(ways: Ways, runnables: Mapping[str, Runnable], bench: Bench) -> tuple[Priced, ...]:
    """Return ONNX Runtime's kernels for all ways to write a model, each once, with their prices.

    Each way has prices of its own, in place. They come from different runs, between which a machine may have become
    slower or faster, so that what the ways have in common brings them to one scale.

    Args:
        ways: of writing the model.
        runnables: the model of each way as a file, by the way's name.
        bench: what measurements depend on.
    """
    found: list[Priced] = []
    for at, way in enumerate(ways.members):
        runnable = runnables[way.name]
        own = priced_vendor(way.model, way.graph, runnable.path, runnable.feeds[0], bench)
        priced = [Priced(ways.common(at, p.candidate), p.cost_us) for p in own]
        scale = _scale(found, priced)
        found += [Priced(p.candidate, p.cost_us * scale) for p in priced]
    return cheapest(found)


def _scale(known: Sequence[Priced], new: Sequence[Priced]) -> float:
    """Return what brings new prices to the scale of the known ones, 1 where they have too little in common."""
    before = {p.candidate: p.cost_us for p in known if p.candidate.kind is CandidateKind.VENDOR}
    pairs = [(before[p.candidate], p.cost_us) for p in new if p.candidate in before and p.cost_us > 0]
    if len(pairs) < _LEAST_COMMON or sum(b for b, _ in pairs) < _LEAST_SHARE * sum(before.values()):
        return 1.0
    return statistics.median(b / n for b, n in pairs)


_PROTOCOL = 2
"""Part of the key: what an earlier version measured otherwise is not read."""


def priced_vendor(
    model: Model, graph: PrimitiveGraph, prepared: Path, feeds: Mapping[str, Array], bench: Bench
) -> tuple[Priced, ...]:
    """Return ONNX Runtime's kernels with their prices.

    Args:
        model: the loaded model.
        graph: its primitives.
        prepared: `model` as a file.
        feeds: one set of inputs.
        bench: what measurements depend on.
    """
    optimised = _profile(prepared, feeds, bench, optimize=True)
    plain = _profile(prepared, feeds, bench, optimize=False)
    return vendor_candidates(model, graph, optimised, plain)


def _profile(prepared: Path, feeds: Mapping[str, Array], bench: Bench, *, optimize: bool) -> VendorProfile:
    digest = file_digest(prepared)
    key = f"profile/{_PROTOCOL}/{digest}/{bench.identity}/{'all' if optimize else 'none'}"

    def measure() -> VendorProfile:
        return measured_profile(prepared, feeds, threads=bench.threads, folder=bench.folder, optimize=optimize)

    return kept(bench.store, key, measure, encode_profile, decode_profile)


def measured_profile(
    prepared: Path, feeds: Mapping[str, Array], *, threads: int, folder: Path, optimize: bool
) -> VendorProfile:
    """Profile a model; where the profiler could not tell all nodes apart, profile what ONNX Runtime made of it."""
    times = profile_model(prepared, feeds, threads=threads, optimize=optimize, folder=folder)
    named = name_nodes(times.optimized)
    if named is None:
        return vendor_profile(times.optimized, times.times_us, times.total_us)
    try:
        again = profile_model(named, feeds, threads=threads, optimize=False, folder=folder)
    except ModelError:  # Not every graph of its own can be read again; then the nodes without names seem to be free.
        return vendor_profile(times.optimized, times.times_us, times.total_us)
    return vendor_profile(named, again.times_us, times.total_us)
