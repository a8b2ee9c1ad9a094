"""Entries go from one store to another whole, and a file that holds something else changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from korch_cli.core.artifact import KernelResult
from korch_cli.core.errors import MissingError, UsageError
from korch_cli.core.kernel import Timing, TimingSource
from korch_cli.measure import ProfileStore, export_store, import_store

SOUND = KernelResult("k_1", Timing(1.5, 1.25, 2.0, 100, TimingSource.MEASURED), None, None)
FAILED = KernelResult("k_2", None, None, 'It computes something else: "nan" – at\u2028[0]')
SELECT = "SELECT key, content, origin FROM documents ORDER BY key"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    opened = ProfileStore(_made(tmp_path / "here"))
    opened.keep_kernel("1", SOUND, origin="here")
    opened.keep_kernel("2", FAILED, origin="here")
    opened.replace("limits/1", {"rate": 0.1 + 0.2})
    yield opened
    opened.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[ProfileStore]:
    opened = ProfileStore(_made(tmp_path / "there"))
    yield opened
    opened.close()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_what_is_exported_comes_back(store: ProfileStore, other: ProfileStore, tmp_path: Path) -> None:
    file = tmp_path / "entries.jsonl"
    assert export_store(store, file, "1.2.3") == 3
    assert json.loads(file.read_text(encoding="utf-8").split("\n")[0]) == {
        "schema": "korch.profiles/1",
        "korch": "1.2.3",
    }
    assert import_store(other, file) == (3, 0)
    assert other.strict(SELECT) == store.strict(SELECT)
    assert other.kernel("1") == SOUND
    assert other.kernel("2") == FAILED
    assert import_store(other, file) == (0, 3)
    again = tmp_path / "again.jsonl"
    export_store(other, again, "1.2.3")
    assert again.read_bytes() == file.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.jsonl", "entries.jsonl", "here", "there"]


def test_what_was_measured_here_stays(store: ProfileStore, other: ProfileStore, tmp_path: Path) -> None:
    file = tmp_path / "entries.jsonl"
    export_store(store, file, "1.2.3")
    other.keep_kernel("2", SOUND, origin="here")
    assert import_store(other, file) == (2, 1)
    assert other.kernel("2") == SOUND


NO_CONTENT: tuple[Any, ...] = (None, "{}", [])
HEADER = json.dumps({"schema": "korch.profiles/1", "korch": "1"})
GOOD = {"key": "kernel/9", "content": {}, "origin": "o"}


def _lines(*entries: Any) -> str:
    return "\n".join([HEADER, *(json.dumps(entry) for entry in (GOOD, *entries))])


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "begin"),
        (b"\xff\xfe\x00", "text"),
        (b"no json", "begin"),
        (b"[1]", "begin"),
        (b'{"schema": "korch.plan/1"}', "begin"),
        (b'{"schema": "korch.profiles/2"}', "begin"),
        ((_lines() + '\n{"key": "kern').encode(), "line 3"),
        (_lines([]).encode(), "line 3"),
        (_lines({}).encode(), "line 3"),
        *((_lines(GOOD | {"key": key}).encode(), "line 3") for key in (None, 3, "", "word")),
        *((_lines(GOOD | {"content": value}).encode(), "line 3") for value in NO_CONTENT),
        (_lines(GOOD | {"origin": 3}).encode(), "line 3"),
        *((_lines(GOOD | {name: "half/\ud800"}).encode(), "line 3") for name in ("key", "origin")),
        ((_lines() + "\n" + "[" * 100_000).encode(), "line 3"),
    ],
)
def test_a_file_of_something_else_changes_nothing(
    other: ProfileStore, tmp_path: Path, content: bytes, word: str
) -> None:
    file = tmp_path / "entries.jsonl"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=word) as caught:
        import_store(other, file)
    assert caught.value.where == str(file)
    assert other.strict(SELECT) == []


def test_a_file_that_is_not_there(other: ProfileStore, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        import_store(other, tmp_path / "nothing")


def test_a_file_that_cannot_be_written(store: ProfileStore, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(MissingError, match="cannot be written"):
        export_store(store, tmp_path / "folder", "1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "here"]
