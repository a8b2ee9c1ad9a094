from __future__ import annotations

import fcntl
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from korch_cli.core.artifact import KernelResult
from korch_cli.core.errors import ExitCode, MissingError, UsageError
from korch_cli.core.kernel import Timing, TimingSource
from korch_cli.measure import ProfileStore, default_folder, machine_identity, store

SOUND = KernelResult("k_1", Timing(1.5, 1.25, 2.0, 100, TimingSource.MEASURED), None, None)
COMPARED = KernelResult("k_2", SOUND.timing, Timing(3.0, 2.0, 4.0, 7, TimingSource.MEASURED), None)
ABOUT = {"origin": "this machine"}
FAILED = KernelResult("k_3", None, None, 'It computes something else: 1 instead of "nan" – at [0]')


@pytest.mark.parametrize("result", [SOUND, COMPARED, FAILED])
def test_a_result_comes_back_in_another_process_of_the_store(tmp_path: Path, result: KernelResult) -> None:
    first = ProfileStore(tmp_path)
    assert first.kernel("key") is None
    first.keep_kernel("key", result, **ABOUT)
    first.close()
    again = ProfileStore(tmp_path)
    assert again.kernel("key") == result
    assert again.kernel("other") is None
    assert again.notes == []
    again.close()


def test_documents_replace_each_other_and_are_not_kernels(tmp_path: Path) -> None:
    kept = ProfileStore(tmp_path)
    kept.replace("key", {"a": [1, 2.5, None]})
    kept.replace("key", {"a": "ü"})
    assert kept.read("key", dict) == {"a": "ü"}
    assert kept.kernel("key") is None
    kept.close()


def test_the_first_figure_counts_for_every_process(tmp_path: Path) -> None:
    first, second = ProfileStore(tmp_path), ProfileStore(tmp_path)
    assert first.keep_kernel("key", SOUND, **ABOUT) == SOUND
    assert second.keep_kernel("key", COMPARED, **ABOUT) == SOUND
    assert second.kernel("key") == SOUND
    assert first.keep("limits/1", [1.5], tuple) == (1.5,)
    assert second.keep("limits/1", [2.5], tuple) == (1.5,)
    for opened in (first, second):
        opened.close()


TIME = {"median_us": 1.5, "low_us": 1.25, "high_us": 2.0, "samples": 100, "source": "measured"}
NONSENSE = [
    "no json",
    "[]",
    "3",
    "{}",
    json.dumps({"name": "k", "timing": None, "alternative": None, "failure": None}),
    json.dumps({"name": "k", "timing": TIME, "alternative": None, "failure": "It fails."}),
    json.dumps({"name": "k", "timing": [1.5], "alternative": None, "failure": None}),
    json.dumps({"name": "k", "timing": TIME | {"low_us": "fast"}, "alternative": None, "failure": None}),
    json.dumps({"name": "k", "timing": TIME | {"low_us": float("nan")}, "alternative": None, "failure": None}),
    json.dumps({"name": "k", "timing": TIME | {"low_us": -1}, "alternative": None, "failure": None}),
    json.dumps({"name": "k", "timing": TIME | {"source": "rumour"}, "alternative": None, "failure": None}),
]


@pytest.mark.parametrize("content", NONSENSE)
def test_an_entry_that_makes_no_sense_is_measured_again(tmp_path: Path, content: str) -> None:
    kept = ProfileStore(tmp_path)
    kept.keep_kernel("key", SOUND, **ABOUT)
    assert kept.strict("UPDATE documents SET content = ?", content) == []
    assert kept.kernel("key") is None
    assert "make no sense" in kept.notes[0]
    assert kept.keep_kernel("key", COMPARED, **ABOUT) == COMPARED
    assert kept.kernel("key") == COMPARED
    kept.close()


def test_a_transaction_is_whole_or_not_at_all(tmp_path: Path) -> None:
    def rows() -> Iterator[tuple[Any, ...]]:
        yield "a/1", "{}", 0, None
        raise UsageError("the second line is wrong")

    kept = ProfileStore(tmp_path)
    with pytest.raises(UsageError):
        kept.transact("INSERT INTO documents VALUES (?, ?, ?, ?)", rows())
    assert kept.strict("SELECT key FROM documents") == []
    with pytest.raises(MissingError, match="no such table") as caught:
        kept.strict("SELECT * FROM absent")
    assert caught.value.exit_code is ExitCode.ENVIRONMENT
    kept.close()


def _set_aside(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if ".unreadable-" in p.name and not p.name.endswith(("-wal", "-shm")))


def _write_foreign(path: Path, version: int) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE things (x)")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("content", ["text", "version 0", "version 99"])
def test_a_foreign_file_is_set_aside(tmp_path: Path, content: str) -> None:
    path = tmp_path / "profiles.sqlite"
    if content == "text":
        path.write_text("this is no database, but it is long enough to look like one" * 100)
    else:
        _write_foreign(path, int(content.split()[1]))
    before = path.read_bytes()
    kept = ProfileStore(tmp_path)
    kept.keep_kernel("key", SOUND, **ABOUT)
    assert kept.kernel("key") == SOUND
    kept.close()
    (moved,) = _set_aside(tmp_path)
    assert moved.read_bytes() == before
    assert len(kept.notes) == 1
    assert moved.name in kept.notes[0]


def test_damage_that_is_found_late_costs_figures_only(tmp_path: Path) -> None:
    kept = ProfileStore(tmp_path)
    for i in range(300):
        kept.replace(f"key{i}", {"text": "x" * 400})
    kept.close()
    path = tmp_path / "profiles.sqlite"
    content = path.read_bytes()
    # The first page, which holds the schema, stays as it is.
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    kept = ProfileStore(tmp_path)
    assert kept.read("key7", dict) is None
    kept.replace("key7", {"a": 1})
    assert kept.read("key7", dict) == {"a": 1}
    kept.close()
    assert len(_set_aside(tmp_path)) == 1
    assert len(kept.notes) == 1


def test_a_busy_store_is_waited_for_but_never_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_BUSY_S", 0.05)
    kept = ProfileStore(tmp_path)
    kept.keep_kernel("key", SOUND, **ABOUT)
    other = sqlite3.connect(tmp_path / "profiles.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    second = ProfileStore(tmp_path)
    assert second.kernel("key") == SOUND
    second.keep_kernel("another", FAILED, **ABOUT)
    assert second.kernel("another") is None
    assert len(second.notes) == 1
    assert "locked" in second.notes[0]
    other.execute("ROLLBACK")
    second.keep_kernel("another", FAILED, **ABOUT)
    assert kept.kernel("another") == FAILED
    assert _set_aside(tmp_path) == []
    for opened in (kept, second, other):
        opened.close()


def test_a_store_that_somebody_holds_for_good_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_BUSY_S", 1.0)
    kept = ProfileStore(tmp_path)
    other = sqlite3.connect(tmp_path / "profiles.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    start = time.monotonic()
    for i in range(20):
        assert kept.keep_kernel(f"{i}", SOUND, **ABOUT) == SOUND
    assert time.monotonic() - start < 10.0
    other.close()
    kept.close()


def test_a_store_that_cannot_be_opened_is_explained(tmp_path: Path) -> None:
    (tmp_path / "profiles.sqlite").mkdir()
    with pytest.raises(MissingError, match=r"profiles\.sqlite") as caught:
        ProfileStore(tmp_path)
    assert caught.value.exit_code is ExitCode.ENVIRONMENT


@pytest.mark.parametrize("lock", ["profiles.lock", "runs.lock"])
def test_a_process_that_stands_still_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    monkeypatch.setattr(store, "_BUSY_S", 0.05)
    with (tmp_path / lock).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(MissingError, match="another process") as caught:
            ProfileStore(tmp_path)
    assert caught.value.hint is not None
    ProfileStore(tmp_path).close()


def test_a_process_that_stands_still_while_a_store_is_pruned_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_BUSY_S", 0.05)
    kept = ProfileStore(tmp_path)
    with (tmp_path / "runs.lock").open("w") as other:

        def standing_still() -> None:
            with kept.presence.only() as only:
                assert only
                # As if the system had given the lock away on the way back.
                fcntl.flock(kept.presence._held, fcntl.LOCK_UN)
                fcntl.flock(other, fcntl.LOCK_EX)

        with pytest.raises(MissingError, match="another process"):
            standing_still()
    kept.close()


def test_a_damaged_store_that_must_answer_is_set_aside_and_explained(tmp_path: Path) -> None:
    kept = ProfileStore(tmp_path)
    for i in range(300):
        kept.replace(f"key/{i}", {"text": "x" * 400})
    kept.close()
    path = tmp_path / "profiles.sqlite"
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    kept = ProfileStore(tmp_path)
    with pytest.raises(MissingError, match="unreadable"):
        kept.strict("SELECT sum(length(content)) FROM documents")
    assert kept.strict("SELECT count(*) FROM documents") == [(0,)]
    assert len(_set_aside(tmp_path)) == 1
    kept.close()


_WRITER = """
import sys
from pathlib import Path
from korch_cli.measure import ProfileStore
sys.stdin.readline()
store = ProfileStore(Path(sys.argv[1]))
for i in range(40):
    store.replace(f"{sys.argv[2]}/{i}", {"i": i})
    store.replace("shared", {"by": sys.argv[2]})
assert store.notes == [] or "unreadable" in store.notes[0], store.notes
print(len(store.notes))
"""


def test_processes_share_a_store_from_its_first_moment(tmp_path: Path) -> None:
    (tmp_path / "profiles.sqlite").write_text("this is no database" * 1000)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path), str(n)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(3)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    said = [writer.communicate(timeout=60)[0] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 3
    # Whoever came first has set the damaged file aside, nobody else did.
    assert sorted(said) == ["0\n", "0\n", "1\n"]
    assert len(_set_aside(tmp_path)) == 1
    kept = ProfileStore(tmp_path)
    assert all(kept.read(f"{n}/{i}", dict) == {"i": i} for n in range(3) for i in range(40))
    kept.close()


def test_the_folder_is_chosen_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KORCH_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert default_folder() == tmp_path / "home" / ".cache" / "korch"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_folder() == tmp_path / "xdg" / "korch"
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "own" / "deep"))
    assert default_folder() == tmp_path / "own" / "deep"
    assert default_folder().is_dir()
    assert list(default_folder().iterdir()) == []


def test_a_folder_that_cannot_be_written_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "file" / "folder"))
    with pytest.raises(MissingError, match="cache folder") as caught:
        default_folder()
    assert caught.value.exit_code is ExitCode.ENVIRONMENT
    assert caught.value.hint is not None


def test_the_identity_tells_thread_counts_apart() -> None:
    assert machine_identity(1) == machine_identity(1)
    assert machine_identity(1) != machine_identity(2)
    assert "ONNX Runtime" in machine_identity(1)


def test_a_task_is_done_by_one_at_a_time_but_not_waited_for_for_ever(tmp_path: Path) -> None:
    first, second = ProfileStore(tmp_path), ProfileStore(tmp_path)
    with first.turn("limits", 10.0), first.turn("other", 10.0):
        start = time.monotonic()
        with second.turn("limits", 0.2):
            assert time.monotonic() - start >= 0.2
    start = time.monotonic()
    with second.turn("limits", 10.0):
        assert time.monotonic() - start < 5.0
    for opened in (first, second):
        opened.close()
