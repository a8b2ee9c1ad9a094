"""`korch optimize --dry-run`: what a run would have to do, and what it could gain at most."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from korch_cli.core.progress import Progress
from korch_cli.core.record import DryRunRecord
from korch_cli.measure import ProfileStore, chosen_folder, copy_store
from korch_cli.pipeline.clock import Clock
from korch_cli.pipeline.optimize import find_candidates
from korch_cli.pipeline.prepare import prepare
from korch_cli.pipeline.search import Search
from korch_cli.pipeline.settings import Settings
from korch_cli.pipeline.summary import describe_environment, opaque_operators
from korch_cli.pipeline.target import find_tools, make_target
from korch_cli.pipeline.ways import Way, find_ways
from korch_cli.solve import Outlook, outlook
from korch_cli.verify import require_onnxruntime

_LOOKED_UP = 200
"""Distinct candidates whose kernels are looked up in the store: text has to be generated for each."""
_USUAL_SHARE = 0.3
"""Of the kernels that are not in the store, what a search measures until its proof is done."""
_SECONDS_EACH = 0.6
"""For compiling and measuring a kernel, with one compiler at a time."""


def dry_run(settings: Settings, progress: Progress) -> DryRunRecord:
    """Load, split, enumerate and bound a model; write nothing, neither beside the model nor into the store.

    What the store lacks of the machine's limits and of ONNX Runtime's times is measured, and forgotten again.

    Raises:
        KorchError: as `optimize` does.
    """
    require_onnxruntime()
    clock = Clock()
    tools = find_tools(settings)
    with tempfile.TemporaryDirectory(prefix="korch-") as scratch:
        folder = Path(scratch)
        copy = folder / "store"
        note = copy_store(chosen_folder(), copy)
        store = ProfileStore(copy)
        try:
            progress.stage("Loading the model")
            with clock("load"):
                prepared = prepare(settings, folder)
            with clock("fission"):
                ways = find_ways(prepared.unrolled.flat, prepared.rewritten)
            target = make_target(settings, tools, store, folder, ways.model)
            search = find_candidates(settings, ways, prepared, target, clock, progress)
            progress.stage("Solving for the bound")
            with clock("search"):
                expected = outlook(ways.graph, search.vendor, search.candidates.candidates, search.bounds, settings.gap,
                                   solver_time_s=settings.solver_time_s)  # fmt: skip
            progress.stage("Looking kernels up")
            with clock("look up"):
                lookup = _looked_up(search)
            return _record(settings, ways.members[0], search, expected, lookup, clock.seconds, [note] if note else [])
        finally:
            store.close()


def _looked_up(search: Search) -> tuple[int, int, int]:
    """Return how many distinct candidates were looked up, how many kernels they have, and how many are in the store."""
    digests = _spread(sorted(search.bounds), _LOOKED_UP)
    found = [search.laboratory.stored(digest) for digest in digests]
    return len(digests), sum(kernels for kernels, _ in found), sum(stored for _, stored in found)


def _spread(ordered: Sequence[str], most: int) -> Sequence[str]:
    if len(ordered) <= most:
        return ordered
    return [ordered[i * len(ordered) // most] for i in range(most)]


def _record(
    settings: Settings,
    way: Way,
    search: Search,
    expected: Outlook,
    lookup: tuple[int, int, int],
    seconds: dict[str, float],
    note: Sequence[str],
) -> DryRunRecord:
    looked_up, generated, stored = lookup
    distinct = len(search.bounds)
    scale = distinct / looked_up if looked_up else 0.0
    # A search for the same that came to its end measured all that a repeat wants.
    ended = search.was_searched()
    to_measure = 0 if expected.hopeless or ended else round(_USUAL_SHARE * scale * (generated - stored))
    prepared_s = sum(seconds.values())
    return DryRunRecord(
        model=str(settings.source),
        operators=len(way.model.operators),
        primitives=sum(1 for _ in way.graph.primitives()),
        opaque=opaque_operators(way),
        candidates=len(search.candidates.candidates) + len(search.vendor),
        distinct=distinct,
        rejected=dict(Counter(search.candidates.counters)),
        looked_up=looked_up,
        kernels=generated,
        stored=stored,
        vendor_us=expected.vendor_us,
        bound_us=expected.bound_us,
        hopeless=expected.hopeless,
        searched=ended,
        to_measure=to_measure,
        search_seconds=min(settings.budget_s, prepared_s + to_measure * _SECONDS_EACH),
        budget_s=settings.budget_s,
        notes=(*search.laboratory.bench.store.notes, *search.laboratory.caveats(changed=False), *note),
        environment=describe_environment(search),
        seconds=dict(seconds),
    )
