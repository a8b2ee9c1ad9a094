"""What a repeated search takes from the store: contests of the same plans, and failures that it does not try again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from korch_cli.candidates import CandidateSet, SearchLimits, cut, enumerate_candidates
from korch_cli.codegen import generate
from korch_cli.core.artifact import KernelResult
from korch_cli.core.kernel import Candidate, CandidateKind, Kernel, Port, Timing, TimingSource
from korch_cli.core.plan import Plan, Priced
from korch_cli.core.progress import Silent
from korch_cli.core.record import Contest, Ratio, Samples
from korch_cli.core.text import parse_graph
from korch_cli.measure import ProfileStore
from korch_cli.pipeline import laboratory as laboratory_module
from korch_cli.pipeline.choice import _Book, _Held
from korch_cli.pipeline.laboratory import Bench, Laboratory
from korch_cli.pipeline.search import Search
from korch_cli.pipeline.settings import Settings
from korch_cli.toolchain import Compiler

GRAPH = parse_graph(
    "\n".join(
        [
            '%0 "x" f32[8] = input',
            '%1 "a" f32[8] = elementwise neg (%0) @0',
            '%2 "b" f32[8] = elementwise exp (%1) @1',
            '%3 "y" f32[8] = elementwise tanh (%2) @2',
            "outputs (%3)",
        ]
    )
)
VENDOR = tuple(
    Priced(Candidate(CandidateKind.VENDOR, (v,), (Port(v - 1),), (Port(v),), f"vendor:{v}", (v - 1,)), 5.0)
    for v in (1, 2, 3)
)
CANDIDATES = {c.body: c for c in enumerate_candidates(GRAPH, SearchLimits()).candidates}
CONTEST = Contest(
    tuple(Samples(name, (1.0, 2.0)) for name in ("input", "a", "b")), ((Ratio(1.0, 0.9, 1.1, 9),) * 3,) * 3
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    folder = tmp_path / "store"
    folder.mkdir()
    made = ProfileStore(folder)
    yield made
    made.close()


def searching(
    tmp_path: Path, store: ProfileStore, times: dict[tuple[int, ...], float], text: str = "the text"
) -> Search:
    """A search in which the candidates with these bodies were measured."""
    source = tmp_path / "in.onnx"
    source.write_bytes(b"a model")
    bench = Bench(Compiler(("g++",), (), "g++ 12"), store, "a machine, 1 threads", tmp_path, 1, 1, 0, 17, generate)
    known = tuple(CANDIDATES.values())
    laboratory = Laboratory(partial(cut, GRAPH), {c.digest: c for c in known}, bench, Silent())
    for body, time_us in times.items():
        digest = CANDIDATES[body].digest
        kernel = Kernel(f"k_{digest[:8]}", digest, "pointwise", text, 1, 1, 1)
        timing = Timing(time_us, time_us, time_us, 9, TimingSource.MEASURED)
        laboratory.results[digest] = [(kernel, KernelResult(kernel.name, timing, None, None))]
    settings = Settings(source, tmp_path / "out.onnx")
    return Search(settings, GRAPH, VENDOR, CandidateSet(known, Counter()), {}, laboratory, 0.0)


def plan(search: Search, *bodies: tuple[int, ...]) -> Plan:
    """The plan that runs kernels of ours with these bodies, and the vendor's for what is left."""
    ours = [p for p in search.prices() if p.candidate.kind is CandidateKind.GENERATED and p.candidate.body in bodies]
    theirs = [p for p in VENDOR if not any(set(p.candidate.body) <= set(body) for body in bodies)]
    kernels = tuple(sorted([*ours, *theirs], key=lambda p: p.candidate.body))
    return Plan(kernels, sum(p.cost_us for p in kernels), 0.0)


def test_a_contest_is_found_again_whatever_else_was_measured_since(tmp_path: Path, store: ProfileStore) -> None:
    first = searching(tmp_path, store, {(1, 2, 3): 4.0, (1, 2): 3.0})
    plans = (plan(first, (1, 2, 3)), plan(first, (1, 2)))
    book = _Book(first, plans[0])
    assert book.read() is None
    assert book.keep(_Held(plans, CONTEST), 0.0) == _Held(plans, CONTEST)

    later = searching(tmp_path, store, {(2, 3): 2.5, (1, 2, 3): 4.5, (1, 2): 3.5})
    held = _Book(later, plan(later, (1, 2, 3))).read()
    assert held is not None
    assert held.contest == CONTEST
    # The plans are those of then, at the prices of now.
    assert held.plans == (plan(later, (1, 2, 3)), plan(later, (1, 2)))


def test_another_best_plan_or_another_text_of_its_kernels_has_a_contest_of_its_own(
    tmp_path: Path, store: ProfileStore
) -> None:
    first = searching(tmp_path, store, {(1, 2, 3): 4.0, (1, 2): 3.0})
    best = plan(first, (1, 2, 3))
    _Book(first, best).keep(_Held((best,), CONTEST), 0.0)
    assert _Book(first, plan(first, (1, 2))).read() is None
    edited = searching(tmp_path, store, {(1, 2, 3): 4.0}, text="another text")
    assert _Book(edited, plan(edited, (1, 2, 3))).read() is None


def test_a_contest_with_a_plan_that_cannot_run_any_more_is_held_anew(tmp_path: Path, store: ProfileStore) -> None:
    first = searching(tmp_path, store, {(1, 2, 3): 4.0, (1, 2): 3.0})
    plans = (plan(first, (1, 2, 3)), plan(first, (1, 2)))
    _Book(first, plans[0]).keep(_Held(plans, CONTEST), 0.0)
    without = searching(tmp_path, store, {(1, 2, 3): 4.0})
    book = _Book(without, plan(without, (1, 2, 3)))
    assert book.read() is None
    alone = _Held((plan(without, (1, 2, 3)),), CONTEST)
    assert book.keep(alone, 0.0) == alone
    assert book.read() == alone


def test_kernels_that_failed_in_an_earlier_search_are_not_tried_again(
    tmp_path: Path, store: ProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something is compiled")

    monkeypatch.setattr(laboratory_module, "compile_units", refuse)
    laboratory = searching(tmp_path, store, {}).laboratory
    digest = CANDIDATES[1, 2].digest
    kernels = laboratory._generated(laboratory.cut(CANDIDATES[1, 2]))
    failed = {kernel.name: "It takes more than 20 s" for kernel in kernels}
    assert failed
    assert laboratory.measure([digest], failed) == {digest: float("inf")}
    assert laboratory.failures() == failed
    with pytest.raises(AssertionError, match="compiled"):
        laboratory.measure([digest])


def test_a_contest_beside_other_processes_is_held_again_an_hour_later(
    tmp_path: Path, store: ProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = searching(tmp_path, store, {(1, 2, 3): 4.0, (1, 2): 3.0})
    plans = (plan(search, (1, 2, 3)), plan(search, (1, 2)))
    held = _Held(plans, CONTEST)
    _Book(search, plans[0]).keep(held, 0.9)
    assert _Book(search, plans[0]).read() == held
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 4000.0)
    book = _Book(search, plans[0])
    assert book.read() is None
    # Without the time for another contest, the one that there is counts.
    assert book.keep(_Held(plans[:1], Contest((), ())), 0.0) == held
    again = _Held(plans[::-1], CONTEST)
    assert book.keep(again, 0.0) == again
    assert _Book(search, plans[0]).read() == again
