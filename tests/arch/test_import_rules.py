"""Who may import whom: the rules that keep the stages apart and the command line fast."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

_PACKAGE = Path(__file__).parents[2] / "src" / "korch_cli"
_FILES = sorted(_PACKAGE.rglob("*.py"))
_STAGES = {
    "load",
    "algebra",
    "fission",
    "rewrite",
    "candidates",
    "codegen",
    "toolchain",
    "measure",
    "solve",
    "emit",
    "verify",
    "report",
}
_JOINTS = {"pipeline", "cli"}
_ROOTS = {"version", "session", "__init__", "__main__"}
_ALWAYS_LAZY = {"onnxruntime", "ortools", "onnx_graphsurgeon", "cupy", "rich"}
_ONNX_READERS = {"load", "algebra", "emit", "verify"}
_FOR_EVERYONE = {"core", "version"}


def _room(path: Path) -> str:
    """Return the stage, joint or root module that a file belongs to."""
    return path.relative_to(_PACKAGE).parts[0].removesuffix(".py")


def _imports(tree: ast.AST) -> Iterator[str]:
    """Yield the full names of all modules that a file imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _eager(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the modules that a file imports when it is imported itself; types alone do not count."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imports(node)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from _eager(node.orelse)
        elif isinstance(node, ast.If | ast.With | ast.Try | ast.ClassDef):
            yield from _eager([s for field in ("body", "orelse", "finalbody") for s in getattr(node, field, [])])
            yield from _eager([s for handler in getattr(node, "handlers", []) for s in handler.body])


def _rooms_imported(tree: ast.AST) -> set[str]:
    parts = [name.split(".") for name in _imports(tree)]
    return {part[1] for part in parts if part[0] == "korch_cli" and len(part) > 1}


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.fixture(params=_FILES, ids=lambda path: str(path.relative_to(_PACKAGE)))
def source(request: pytest.FixtureRequest) -> Path:
    assert isinstance(request.param, Path)
    return request.param


def test_every_room_is_known() -> None:
    assert {_room(path) for path in _FILES} == _STAGES | _JOINTS | _ROOTS | {"core"}


def test_stages_never_import_each_other(source: Path) -> None:
    room = _room(source)
    if room in _JOINTS | _ROOTS:
        return
    allowed = {"core"} if room == "core" else {room, *_FOR_EVERYONE}
    assert _rooms_imported(_tree(source)) <= allowed


def test_nothing_imports_the_command_line_but_itself(source: Path) -> None:
    if _room(source) not in {"cli", "__main__"}:
        assert "cli" not in _rooms_imported(_tree(source))


def test_heavy_packages_are_imported_where_they_are_used(source: Path) -> None:
    eager = {name.split(".")[0] for name in _eager(_tree(source).body)}
    assert not eager & _ALWAYS_LAZY
    if _room(source) not in _ONNX_READERS:
        assert "onnx" not in eager


def test_the_command_line_imports_no_stage_eagerly(source: Path) -> None:
    if _room(source) != "cli" or source.name in ("checkup.py", "cuda_checkup.py"):
        return
    eager = {name.split(".")[1] for name in _eager(_tree(source).body) if name.startswith("korch_cli.")}
    assert not eager & (_STAGES | {"pipeline"})


@pytest.mark.parametrize(
    ("text", "eager"),
    [
        ("import onnx", {"onnx"}),
        ("def f():\n    import onnx", set()),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import onnx", {"typing"}),
        ("try:\n    import onnx\nexcept ImportError:\n    import rich", {"onnx", "rich"}),
        ("class C:\n    import onnx", {"onnx"}),
    ],
)
def test_eager_imports_are_seen(text: str, eager: set[str]) -> None:
    assert {name.split(".")[0] for name in _eager(ast.parse(text).body)} == eager


def test_imports_of_stages_are_seen_in_each_form() -> None:
    for text in ("import korch_cli.load", "from korch_cli import load", "from korch_cli.load.bind import bind"):
        assert _rooms_imported(ast.parse(text)) == {"load"}
