"""`korch cache`: what it does and says, and every way in which it can fail."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import Result

from korch_cli.cli.entry import korch
from korch_cli.measure import ProfileStore, store

Invoke = Callable[..., Result]
_NAMES = ("path", "stats", "prune", "clear", "export", "import")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with three entries and a compiled kernel."""
    made = tmp_path / "cache"
    made.mkdir()
    monkeypatch.setenv("KORCH_CACHE_DIR", str(made))
    monkeypatch.delenv("KORCH_CACHE_LIMIT", raising=False)
    opened = ProfileStore(made)
    for key in ("kernel/1", "kernel/2", "limits/3"):
        opened.replace(key, {"text": "x" * 100_000})
    opened.strict("UPDATE documents SET origin = 'a machine, a compiler' WHERE key < 'l'")
    opened.close()
    (made / "objects").mkdir()
    (made / "objects" / "a.o").write_bytes(b"x" * 2000)
    return made


def document(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    schema = json.loads(files("korch_cli.report").joinpath("schemas", "cache.json").read_text(encoding="utf-8"))
    jsonschema.validate(found, schema, cls=jsonschema.Draft202012Validator)
    return found


def test_every_action_is_explained(invoke: Invoke) -> None:
    listed = invoke("cache", "--help").stdout
    group: Any = korch.commands["cache"]
    assert set(group.commands) == set(_NAMES)
    for name in _NAMES:
        assert name in listed
        text = invoke("cache", name, "--help").stdout
        assert "--format" in text
        assert all(getattr(option, "help", "") for option in group.commands[name].params if option.name != "file")


def test_the_path_is_said_even_if_nothing_is_there(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "absent"))
    assert invoke("cache", "path").stdout == f"{tmp_path / 'absent'}\n"
    found = document(invoke("cache", "path", "--format", "json"))
    assert (found["action"], found["folder"], found["content"]) == ("path", str(tmp_path / "absent"), None)
    assert not (tmp_path / "absent").exists()


def test_the_content_is_listed(invoke: Invoke, folder: Path) -> None:
    text = invoke("cache", "stats").stdout
    for part in (str(folder), "measured kernels", "machine limits", "2 kernels from a machine, a compiler", "1.0 GiB"):
        assert part in text
    content = document(invoke("cache", "stats", "--format", "json"))["content"]
    assert content["entries"] == {"kernel": 2, "limits": 1}
    assert content["origins"] == {"a machine, a compiler": 2}
    assert (content["objects"], content["object_bytes"], content["set_aside"]) == (1, 2000, 0)
    assert content["size_bytes"] > 300_000


def test_it_is_pruned_to_the_size_that_is_asked_for(invoke: Invoke, folder: Path) -> None:
    nothing = document(invoke("cache", "prune", "--format", "json"))
    assert (nothing["entries"], nothing["files"], nothing["limit_bytes"]) == (0, 0, 1 << 30)
    found = document(invoke("cache", "prune", "--max-size", "200KiB", "--format", "json"))
    assert found["entries"] >= 1
    assert found["content"]["size_bytes"] <= 200 << 10
    assert found["limit_bytes"] == 200 << 10
    assert "REMOVED: 0 entries and 0 files" in invoke("cache", "prune").stdout


def test_the_limit_of_the_environment_is_kept(invoke: Invoke, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KORCH_CACHE_LIMIT", "200k")
    assert document(invoke("cache", "prune", "--format", "json"))["content"]["size_bytes"] <= 200 << 10


def test_it_is_cleared(invoke: Invoke, folder: Path) -> None:
    assert "REMOVED: 3 entries and 1 file" in invoke("cache", "clear").stdout
    content = document(invoke("cache", "stats", "--format", "json"))["content"]
    assert (content["entries"], content["objects"]) == ({}, 0)


def test_entries_are_carried_from_one_to_another(
    invoke: Invoke, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "entries.jsonl"
    found = document(invoke("cache", "export", file, "--format", "json"))
    assert (found["entries"], found["file"]) == (3, str(file))
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "other"))
    found = document(invoke("cache", "import", file, "--format", "json"))
    assert (found["entries"], found["known"]) == (3, 0)
    assert found["content"]["entries"] == {"kernel": 2, "limits": 1}
    assert "IMPORTED: 0 entries" in invoke("cache", "import", file).stdout
    assert "EXPORTED: 3 entries" in invoke("cache", "export", file).stdout


def test_an_import_that_has_no_room_says_so(
    invoke: Invoke, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "entries.jsonl"
    invoke("cache", "export", file)
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("KORCH_CACHE_LIMIT", "200k")
    found = document(invoke("cache", "import", file, "--format", "json"))
    assert "KORCH_CACHE_LIMIT" in found["notes"][0]
    assert found["content"]["size_bytes"] <= 200 << 10


def test_a_damaged_store_is_set_aside_and_said(invoke: Invoke, folder: Path) -> None:
    (folder / "profiles.sqlite").write_bytes(b"no database " * 1000)
    found = document(invoke("cache", "stats", "--format", "json"))
    assert "unreadable-" in found["notes"][0]
    assert found["content"]["set_aside"] == 1
    assert invoke("cache", "clear").exit_code == 0
    assert not list(folder.glob("*unreadable*"))


def _explained(result: Result, code: int, *words: str) -> None:
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "error: " in result.stderr or "Error: " in result.stderr
    assert "bug" not in result.stderr
    for word in words:
        assert word in result.stderr


@pytest.mark.parametrize("name", ["stats", "prune", "clear"])
def test_damage_that_is_found_late_is_explained(invoke: Invoke, folder: Path, name: str) -> None:
    path = folder / "profiles.sqlite"
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    arguments = ("--max-size", "1k") if name == "prune" else ()
    _explained(invoke("cache", name, *arguments), 4, "damaged", "unreadable-")
    assert invoke("cache", name).exit_code == 0


@pytest.mark.parametrize("name", ["stats", "prune", "clear"])
@pytest.mark.parametrize("place", ["/proc/korch", "file"])
def test_a_folder_that_cannot_be_had_is_explained(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, place: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / place))
    _explained(invoke("cache", name), 4, "cache folder", "KORCH_CACHE_DIR")


def test_a_folder_in_the_place_of_the_store_is_explained(invoke: Invoke, folder: Path) -> None:
    for file in folder.glob("profiles.sqlite*"):
        file.unlink()
    (folder / "profiles.sqlite").mkdir()
    _explained(invoke("cache", "stats"), 4, "profiles.sqlite", "KORCH_CACHE_DIR")


def test_a_locked_store_is_explained(invoke: Invoke, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_BUSY_S", 0.05)
    other = sqlite3.connect(folder / "profiles.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    _explained(invoke("cache", "clear"), 4, "locked", "try again")
    other.close()
    assert invoke("cache", "clear").exit_code == 0


def test_a_store_in_use_is_not_cleared(invoke: Invoke, folder: Path) -> None:
    other = ProfileStore(folder)
    _explained(invoke("cache", "clear"), 4, "another run", "wait")
    assert "nobody used for a day" in invoke("cache", "prune", "--max-size", "1k").stdout
    assert "nobody used for a day" not in invoke("cache", "prune").stdout
    assert (folder / "objects" / "a.o").exists()
    other.close()


def test_wrong_words_are_errors_of_usage(
    invoke: Invoke, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nonsense").write_text("nonsense")
    _explained(invoke("cache", "prune", "--max-size", "much"), 2, "300MiB")
    _explained(invoke("cache", "export", tmp_path), 2, "folder")
    _explained(invoke("cache", "export", tmp_path / "absent" / "file"), 4, "mkdir")
    _explained(invoke("cache", "import", tmp_path / "absent"), 2, "absent")
    _explained(invoke("cache", "import", tmp_path / "nonsense"), 2, "korch cache export")
    _explained(invoke("cache", "import", tmp_path), 2, "directory")
    (tmp_path / "deep").write_text("[" * 100_000)
    _explained(invoke("cache", "import", tmp_path / "deep"), 2, "korch cache export")
    for name in ("profiles.sqlite", "profiles.sqlite-wal"):
        _explained(invoke("cache", "export", folder / name), 2, "overwrite the store")
    document(invoke("cache", "stats", "--format", "json"))
    assert invoke("cache", "pray").exit_code == 2
    for limit in ("much", "9" * 400):
        monkeypatch.setenv("KORCH_CACHE_LIMIT", limit)
        for name in ("path", "stats", "prune", "clear"):
            _explained(invoke("cache", name), 2, "KORCH_CACHE_LIMIT", "300MiB")


def test_a_home_that_is_not_there_is_explained(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("KORCH_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    _explained(invoke("cache", "path"), 4, "home", "KORCH_CACHE_DIR")


def test_an_entry_that_is_no_json_is_explained_when_it_is_exported(
    invoke: Invoke, folder: Path, tmp_path: Path
) -> None:
    connection = sqlite3.connect(folder / "profiles.sqlite")
    connection.execute("UPDATE documents SET content = 'no json' WHERE key = 'kernel/1'")
    connection.commit()
    connection.close()
    result = invoke("cache", "export", tmp_path / "entries.jsonl", "--format", "json")
    assert document(result)["entries"] == 2
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "entries.jsonl"}
