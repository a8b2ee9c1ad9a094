"""Every row in every variant, through forced fusion and ONNX Runtime; rows that end with an error, through `korch`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import CliRunner
from survival_agreement import (
    assert_same_frame,
    assert_same_outputs,
    assert_same_signature,
    assert_sound,
    operators,
    run,
)
from survival_batch import Fused, fused, fused_once, variants_of, write
from survival_row import ROWS, SECTIONS, Equal, Error, Opaque

from korch_cli.cli.entry import korch

_FOLDER = Path(__file__).parent
for _module in sorted(_FOLDER.glob("rows_*.py")):
    importlib.import_module(_module.stem)

_LEAST_ROWS = 90
_OPEN: dict[str, str] = {}
"""Rows that fail, and why; one that passes after all fails the suite."""


def _marks(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.xfail(reason=_OPEN[name])] if name in _OPEN else []


def _cases() -> Iterator[Any]:
    for section, names in SECTIONS.items():
        for name in names:
            for variant in variants_of(ROWS[name]()):
                case = f"{section[5:]}-{name}-{variant.replace(' ', '_')}"
                yield pytest.param(section, name, variant, id=case, marks=_marks(name))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what all workers of a test run share: the kernels of a section are built once."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "survival"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.mark.parametrize(("section", "name", "variant"), list(_cases()))
def test_nothing_breaks(shared: Path, section: str, name: str, variant: str) -> None:
    result, library = fused(fused_once(section, shared), name, variant)
    assert not result.failure, result.failure
    row = result.row
    before = onnx.load(str(result.source), load_external_data=False)
    after = onnx.load(str(result.output), load_external_data=False)
    names = [info.name for info in before.graph.output]
    expected = _expected(result, names)
    for kernels in (None,) if row.new_ops else (library, None):
        found = run(result.output, result.feeds, kernels, row.new_ops)
        if row.judge is None:
            assert_same_outputs(row, names, expected, found, kernels=kernels is not None)
        else:
            row.judge(found)
        assert_same_signature(before, after, found)
    assert_same_frame(before, after, result.kernels)
    assert_sound(after, before)
    _assert_expected(result, variant, operators(after))


def _expected(result: Fused, names: Sequence[str]) -> list[Any]:
    """What ONNX Runtime makes of the source; it may refuse a source of which the row says everything."""
    row = result.row
    try:
        return run(result.source, result.feeds, None, row.new_ops)
    except Exception:
        if any(name not in row.instead for name in names):
            raise
        return [row.instead[name] for name in names]


def _assert_expected(result: Fused, variant: str, left: list[str]) -> None:
    match result.row.expectation:
        case Equal():
            assert result.kernels or variant not in result.row.fused_in, f"nothing was fused; left: {left}"
        case Opaque(operators=expected, around=around):
            # A frozen condition has only one branch, which needs no If.
            for name in set(expected) - ({"If"} if variant == "frozen" else set()):
                assert left.count(name) == expected.count(name), f"left: {left}"
            assert result.kernels or not around or variant not in result.row.fused_in, f"left: {left}"
        case kind:
            pytest.fail(f"unknown kind of expectation: {kind}")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=_marks(n)) for n in ROWS if isinstance(ROWS[n]().expectation, Error)]
)
def test_what_cannot_be_is_explained(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = ROWS[name]()
    assert isinstance(row.expectation, Error)
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "cache"))
    source, _, _ = write(row, "as is", tmp_path / "models" / "in")
    target = tmp_path / "target"
    target.mkdir()
    output = target / "out.onnx"
    output.write_bytes(b"of an earlier run")
    before = _contents(tmp_path / "models")
    result = CliRunner().invoke(korch, ["optimize", str(source), "-o", str(output), "-q", "--budget", "1s", *row.flags])
    assert result.exit_code == row.expectation.code, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.output
    for word in row.expectation.words:
        assert word in result.stderr
    assert _contents(target) == {"out.onnx": b"of an earlier run"}
    assert _contents(tmp_path / "models") == before


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_there_are_many_rows() -> None:
    assert len(ROWS) >= _LEAST_ROWS
