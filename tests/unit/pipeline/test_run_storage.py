"""Where a run keeps its figures, and on what they depend."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from korch_cli.candidates import CandidateSet, cut
from korch_cli.codegen import generate
from korch_cli.core.errors import UsageError
from korch_cli.core.kernel import Kernel
from korch_cli.core.progress import Silent
from korch_cli.core.text import parse_graph
from korch_cli.measure import ProfileStore, default_folder
from korch_cli.pipeline.laboratory import Bench, Laboratory
from korch_cli.pipeline.search import Search
from korch_cli.pipeline.settings import Settings
from korch_cli.pipeline.storage import opened_store
from korch_cli.toolchain import Compiler

GRAPH = parse_graph('%0 "x" f32[8] = input\n%1 "y" f32[8] = elementwise neg (%0) @0\noutputs (%1)')
KERNEL = Kernel("k_1", "digest", "pointwise", "the text", 1, 1, 1)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    made = tmp_path / "scratch"
    made.mkdir()
    return made


def test_figures_are_kept_from_one_run_to_the_next(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "cache"))
    with opened_store(scratch) as store:
        store.replace("limits/1", {"a": 1})
    with opened_store(scratch) as store:
        assert store.read("limits/1", dict) == {"a": 1}
        assert store.notes == []


@pytest.mark.parametrize("obstacle", ["read-only", "file", "folder in its place", "another process"])
def test_a_run_goes_on_without_a_store_and_says_so(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    cache = tmp_path / "cache"
    if obstacle == "read-only":
        cache = Path("/proc/korch")
    elif obstacle == "file":
        cache.touch()
    else:
        cache.mkdir()
    monkeypatch.setenv("KORCH_CACHE_DIR", str(cache))
    held = None
    if obstacle == "folder in its place":
        (cache / "profiles.sqlite").mkdir()
    elif obstacle == "another process":
        monkeypatch.setattr("korch_cli.measure.store._BUSY_S", 0.05)
        held = ProfileStore(cache)
        with held.presence.only(), opened_store(scratch) as store:
            assert "another process" in store.notes[0]
        held.close()
        return
    with opened_store(scratch) as store:
        (note,) = store.notes
        assert note.startswith("Nothing that was measured is kept: ")
        assert str(cache) in note
        assert store.objects.is_relative_to(scratch)
        store.replace("limits/1", {"a": 1})
        assert store.read("limits/1", dict) == {"a": 1}


def test_the_store_is_kept_below_its_limit_before_and_after(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("KORCH_CACHE_LIMIT", "100k")
    path = tmp_path / "cache" / "profiles.sqlite"
    filled = ProfileStore(default_folder())
    for i in range(50):
        filled.replace(f"kernel/{i}", {"text": "x" * 10_000})
    filled.close()
    assert path.stat().st_size > 400_000
    with opened_store(scratch) as store:
        assert path.stat().st_size <= 100 << 10
        for i in range(50):
            store.replace(f"profile/{i}", {"text": "x" * 10_000})
    assert path.stat().st_size <= 100 << 10


def test_a_limit_that_is_no_size_ends_the_run(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KORCH_CACHE_LIMIT", "much")
    with pytest.raises(UsageError), opened_store(scratch):
        pass


def _keys(bench: Bench) -> tuple[str, str]:
    laboratory = Laboratory(partial(cut, GRAPH), {}, bench, Silent())
    settings = Settings(Path("in.onnx"), Path("out.onnx"))
    search = Search(settings, GRAPH, (), CandidateSet((), Counter()), {}, laboratory, 0.0)
    return laboratory._key(KERNEL), search._key()


def test_no_figure_of_another_machine_or_compiler_has_the_same_key(tmp_path: Path) -> None:
    store: Any = None
    here = Bench(Compiler(("g++",), (), "g++ 12"), store, "a machine, 2 threads", tmp_path, 2, 2, 0, 17, generate)
    assert _keys(here) == _keys(replace(here, jobs=1, folder=tmp_path / "other"))
    others = [
        replace(here, identity="a machine, 1 threads"),
        replace(here, compiler=Compiler(("g++",), (), "g++ 13")),
    ]
    for keys in zip(*map(_keys, (here, *others)), strict=True):
        assert len(set(keys)) == 3
