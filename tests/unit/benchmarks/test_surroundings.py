"""What figures hold for: code that can change them, and nothing else."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import surroundings


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("src/korch_cli/solve.py", "models/catalogue.toml", "benchmarks/contest.py", "benchmarks/copy.cpp"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    return tmp_path


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("other", encoding="utf-8")


@pytest.mark.parametrize(
    "name",
    [
        "src/korch_cli/solve.py", "src/korch_cli/another.py", "models/catalogue.toml", "models/graphs/x.onnxtxt",
        "benchmarks/contest.py", "benchmarks/copy.cpp", "benchmarks/another.py",
    ],
)  # fmt: skip
def test_code_that_can_change_a_figure_is_part_of_the_digest(tree: Path, name: str) -> None:
    before = surroundings.code(tree)
    write(tree / name)
    after = surroundings.code(tree)
    assert [folder for folder in before if before[folder] != after[folder]] == [name.partition("/")[0]]


@pytest.mark.parametrize(
    "name",
    [
        "docs/cli.md", "README.md", "tests/test_x.py", "models/README.md", "benchmarks/README.md", "benchmarks/page.py",
        "benchmarks/results/full.journal.jsonl", "benchmarks/__pycache__/contest.pyc", "src/korch.egg-info/PKG-INFO",
    ],
)  # fmt: skip
def test_what_cannot_change_a_figure_is_not(tree: Path, name: str) -> None:
    before = surroundings.code(tree)
    write(tree / name)
    assert surroundings.code(tree) == before


def test_a_file_that_is_moved_is_another_digest(tree: Path) -> None:
    before = surroundings.code(tree)
    (tree / "benchmarks" / "contest.py").rename(tree / "benchmarks" / "game.py")
    assert surroundings.code(tree) != before


def test_what_is_said_to_have_no_effect_is_there() -> None:
    folder = Path(surroundings.__file__).parent
    assert [name for name in surroundings._WITHOUT_EFFECT if not (folder / name).is_file()] == []


@pytest.mark.parametrize(
    ("said", "model"),
    [
        ("cpu family\t: 25\nmodel\t\t: 17\nmodel name\t: E\nflags\t\t: avx2 avx512f\n", "family 25, model 17, AVX-512"),
        ("cpu family\t: 23\nmodel\t\t: 49\nmodel name\t: E\nflags\t\t: avx2\n", "family 23, model 49, AVX2"),
        ("processor\t: 0\nFeatures\t: asimd\n", platform.machine()),
    ],
)
def test_processors_of_the_same_name_are_told_apart(
    said: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(said, encoding="utf-8")
    monkeypatch.setattr(surroundings, "_CPUINFO", tmp_path / "cpuinfo")
    assert surroundings._processor_model() == model
