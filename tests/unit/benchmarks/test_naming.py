"""Names on the command lines of the benchmarks."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import run
from naming import known_names, names_with_files, part_names

KNOWN = ("one", "two", "three")


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog="benchmark")


def refused(capsys: pytest.CaptureFixture[str], ended: pytest.ExceptionInfo[SystemExit]) -> str:
    captured = capsys.readouterr()
    assert ended.value.code == 2
    assert captured.out == ""
    return captured.err


@pytest.mark.parametrize(
    ("wanted", "found"),
    [(None, KNOWN), ((), KNOWN), (["two"], ("two",)), (["three", "one"], ("one", "three")), (["two"] * 2, ("two",))],
)
def test_names_are_found(
    parser: argparse.ArgumentParser, wanted: list[str] | None, found: tuple[str, ...], tmp_path: Path
) -> None:
    assert known_names(parser, wanted, KNOWN, "model") == found
    for name in KNOWN:
        (tmp_path / f"{name}.onnx").touch()
    assert names_with_files(parser, wanted, KNOWN, tmp_path) == found


def test_a_wrong_name_lists_the_right_ones(
    parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as ended:
        known_names(parser, ["two", "four"], KNOWN, "model")
    assert "no such model: four; there are: one; two; three" in refused(capsys, ended)
    with pytest.raises(SystemExit) as ended:
        names_with_files(parser, ["four"], KNOWN, tmp_path)
    assert "one; two; three" in refused(capsys, ended)


def test_a_part_of_a_name_finds_all_that_have_it(
    parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    assert part_names(parser, "", KNOWN, "case") == KNOWN
    assert part_names(parser, "t", KNOWN, "case") == ("two", "three")
    with pytest.raises(SystemExit) as ended:
        part_names(parser, "x", KNOWN, "case")
    assert "no case has 'x' in its name; there are: one; two; three" in refused(capsys, ended)


def test_a_model_that_was_asked_for_must_be_there(
    parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as ended:
        names_with_files(parser, None, KNOWN, tmp_path)
    assert "fetch.py --all" in refused(capsys, ended)
    (tmp_path / "two.onnx").touch()
    assert names_with_files(parser, None, KNOWN, tmp_path) == ("two",)
    assert "one, three" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        names_with_files(parser, ["two", "three"], KNOWN, tmp_path)
    assert f"not in {tmp_path}: three; python models/fetch.py three -o {tmp_path}" in refused(capsys, ended)


@pytest.mark.parametrize(
    ("script", "arguments", "listed"),
    [
        ("orchestration", ["ablation", "--only", "segformer_b0"], "segformer_b0-script"),
        ("orchestration", ["scale", "--only", "segformer_b0-script"], "segformer_b0"),
        ("orchestration", ["scale", "--only", "segformer_b0"], "not in"),
        ("orchestration", ["solve", "--only", "encoder"], "encoder, 12 layers"),
        ("orchestration", ["solve"], "one case"),
        ("orchestration", ["ablation", "--only", "ppocr_rec"], "models/fetch.py ppocr_rec"),
        ("cases", ["--only", "no such case"], "segformer_decode, batch 16"),
        ("gpu_estimates", ["--only", "yolov5"], "yolov4-script"),
        ("run", ["--only", "yolov5"], "yolov4-script"),
        ("run", ["--runtimes", "openvino,tensorrt"], "tvm"),
        ("run", ["--python", "tensorflow=python3"], "openvino; torch; tvm"),
        ("run", ["--python", "openvino"], "is not NAME=PATH"),
    ],
)
def test_every_benchmark_refuses_names_that_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    script: str,
    arguments: list[str],
    listed: str,
) -> None:
    folder = [] if script == "cases" else ["--models", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", [f"{script}.py", *arguments, *folder])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(script).main()
    assert listed in refused(capsys, ended)


def test_a_run_without_models_needs_no_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    flags = ["--no-models", "--no-orchestration", "--python", "torch=/usr/bin/python3=x", "--models", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["run.py", *flags])
    chosen = run._arguments({name: {} for name in KNOWN})
    assert (chosen.names, chosen.runtimes, chosen.python) == (
        KNOWN,
        ["openvino", "torch"],
        {"torch": "/usr/bin/python3=x"},
    )
