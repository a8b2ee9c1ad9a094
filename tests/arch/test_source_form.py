"""What a file of this project looks like: short, named after its subject, explained at its top."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_FOLDERS = ("src", "tests", "models", "scripts", "benchmarks")
_FILES = sorted(path for folder in _FOLDERS for path in (_ROOT / folder).rglob("*.py"))
_MOST_LINES = 400
_VAGUE = {"utils", "util", "helpers", "helper", "misc", "common", "tools"}


@pytest.fixture(params=_FILES, ids=lambda path: str(path.relative_to(_ROOT)))
def source(request: pytest.FixtureRequest) -> Path:
    assert isinstance(request.param, Path)
    return request.param


def test_files_are_short(source: Path) -> None:
    assert len(source.read_text(encoding="utf-8").splitlines()) <= _MOST_LINES


def test_names_say_what_is_inside(source: Path) -> None:
    names = {part.removesuffix(".py") for part in source.relative_to(_ROOT).parts}
    assert not names & _VAGUE


def test_modules_are_explained(source: Path) -> None:
    if source.is_relative_to(_ROOT / "tests"):
        return
    assert ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")))


def test_test_files_have_names_of_their_own() -> None:
    names = [path.name for path in (_ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
