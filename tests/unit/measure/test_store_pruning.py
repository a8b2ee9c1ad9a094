"""The store stays below its limit; what was used the longest ago goes first, and nothing that a run may need."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from korch_cli.core.errors import ExitCode, MissingError, UsageError
from korch_cli.measure import ProfileStore, cache_limit, clear, content_of, prune

DAY = 86400.0


def stored(store: ProfileStore, key: str, age_s: float, size: int = 1000) -> None:
    store.replace(key, {"text": "x" * size})
    store.strict("UPDATE documents SET used = ? WHERE key = ?", int(time.time() - age_s), key)


def compiled(store: ProfileStore, name: str, age_s: float, size: int = 1000) -> Path:
    store.objects.mkdir(exist_ok=True)
    path = store.objects / f"{name}.o"
    path.write_bytes(b"x" * size)
    os.utime(path, times=(time.time() - age_s,) * 2)
    return path


def keys(store: ProfileStore) -> set[str]:
    return {key for (key,) in store.strict("SELECT key FROM documents")}


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_the_oldest_entries_and_objects_go_first(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    for i in range(100):
        stored(store, f"kernel/{i}", age_s=10_000 - i, size=20_000)
        compiled(store, f"{i}", age_s=10_000 - i, size=20_000)
    limit = 1_500_000
    assert size_of(tmp_path) > 2 * limit
    removed = prune(store, limit)
    assert content_of(store).size_bytes <= limit
    store.close()
    # Close to the limit, but not beyond it.
    assert 0.8 * limit < size_of(tmp_path) <= limit
    store = ProfileStore(tmp_path)
    kept = sorted(int(key.removeprefix("kernel/")) for key in keys(store))
    objects = sorted(int(path.stem) for path in store.objects.iterdir())
    assert kept == list(range(kept[0], 100))
    assert objects == list(range(objects[0], 100))
    assert abs(kept[0] - objects[0]) <= 1
    assert (removed.entries, removed.files, removed.busy) == (kept[0], objects[0], False)
    assert prune(store, limit).entries == 0
    store.close()


def test_reading_counts_as_use(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    for i in range(100):
        stored(store, f"kernel/{i}", age_s=20_000 - i, size=20_000)
    assert store.read("kernel/0", dict) is not None
    prune(store, 1_000_000)
    assert "kernel/0" in keys(store)
    assert "kernel/1" not in keys(store)
    store.close()


def test_a_store_below_its_limit_loses_nothing(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    stored(store, "kernel/1", age_s=1000 * DAY)
    old = compiled(store, "1", age_s=1000 * DAY)
    removed = prune(store, 1 << 20)
    assert (removed.entries, removed.files) == (0, 0)
    assert keys(store) == {"kernel/1"}
    assert old.exists()
    store.close()


def test_while_another_run_uses_the_store_only_old_files_go(tmp_path: Path) -> None:
    store, other = ProfileStore(tmp_path), ProfileStore(tmp_path)
    stored(store, "kernel/1", age_s=100 * DAY)
    old, new = compiled(store, "old", age_s=2 * DAY), compiled(store, "new", age_s=0.5 * DAY)
    scratch = store.objects / "build-x"
    scratch.mkdir()
    removed = prune(store, 0)
    assert (removed.entries, removed.files, removed.busy) == (0, 1, True)
    assert keys(store) == {"kernel/1"}
    assert [old.exists(), new.exists(), scratch.exists()] == [False, True, True]
    with pytest.raises(MissingError, match="another run") as caught:
        clear(store)
    assert caught.value.exit_code is ExitCode.ENVIRONMENT
    other.close()
    assert prune(store, 0).entries == 1
    assert [new.exists(), scratch.exists()] == [False, False]
    store.close()


def test_what_killed_runs_and_damaged_stores_leave_is_counted_and_goes(tmp_path: Path) -> None:
    (tmp_path / "profiles.sqlite").write_text("this is no database" * 10_000)
    store = ProfileStore(tmp_path)
    scratch = store.objects / "build-x"
    scratch.mkdir(parents=True)
    (scratch / "half.o").write_bytes(b"x" * 50_000)
    before = content_of(store)
    assert before.set_aside == 2
    assert before.size_bytes > 240_000
    assert prune(store, 1 << 30).files == 1
    assert not scratch.exists()
    assert content_of(store).set_aside == 1
    assert prune(store, 150_000).files == 1
    assert content_of(store).set_aside == 0
    store.close()


def test_everything_goes(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    for i in range(50):
        stored(store, f"kernel/{i}", age_s=0, size=20_000)
    new = compiled(store, "new", age_s=0)
    foreign = tmp_path / "mine.txt"
    foreign.write_text("not korch's")
    removed = clear(store)
    assert (removed.entries, removed.files) == (50, 1)
    assert not new.exists()
    assert foreign.exists()
    store.replace("kernel/1", {})
    assert keys(store) == {"kernel/1"}
    store.close()
    assert size_of(tmp_path) < 60_000


def test_what_cannot_be_removed_is_no_reason_to_go_on_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(path)

    store = ProfileStore(tmp_path)
    compiled(store, "1", age_s=DAY)
    monkeypatch.setattr(Path, "unlink", refuse)
    assert prune(store, 0).files == 0
    store.close()


def test_the_content_is_counted_by_kind(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    for key in ("kernel/1", "kernel/2", "limits/2/a machine/a compiler"):
        stored(store, key, age_s=0)
    compiled(store, "1", age_s=0, size=77)
    content = content_of(store)
    index = (tmp_path / "profiles.sqlite-shm").stat().st_size
    assert content.entries == {"kernel": 2, "limits": 1}
    assert (content.objects, content.object_bytes) == (1, 77)
    assert content.size_bytes == size_of(tmp_path) - index
    store.close()


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("", 1 << 30),
        ("4096", 4096),
        ("300MiB", 300 << 20),
        ("1.5G", 3 << 29),
        ("2 kb", 2048),
        ("0", 0),
        ("1t", 1 << 40),
    ],
)
def test_the_limit_is_chosen_by_the_environment(monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> None:
    monkeypatch.setenv("KORCH_CACHE_LIMIT", text)
    assert cache_limit() == size


@pytest.mark.parametrize("text", ["much", "-1", "1e9", "MiB", "3 apples", "1.G"])
def test_a_limit_that_is_no_size_is_an_error_of_usage(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("KORCH_CACHE_LIMIT", text)
    with pytest.raises(UsageError, match="KORCH_CACHE_LIMIT"):
        cache_limit()
