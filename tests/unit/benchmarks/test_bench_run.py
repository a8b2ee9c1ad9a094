"""A run can be cut short and finished elsewhere, and only a whole one is published."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import run
from parts import Plan, _worth_keeping

ENTRY = {"title": "t", "rows": [{"runtime": "ORT", "status": "ok", "median_us": 2e3}], "ideal": {"speed_up": 5.0}}
AROUND = {
    "processor": "P", "processor_model": "model 17", "processors": 2, "threads": 2, "system": "S", "python": "3",
    "compiler": "g++", "commit": "c0ffee", "date": "d", "versions": {"onnx": "1"},
}  # fmt: skip
Bench = Callable[..., int]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    for name in ("minilm", "candy-dynamo", "nudenet"):
        (tmp_path / "models" / f"{name}.onnx").touch()
    return tmp_path


@pytest.fixture
def loads() -> dict[str, float]:
    """How much others used while each model was measured."""
    return {}


@pytest.fixture
def bench(folder: Path, loads: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Run the program with measurements that are made up; return its exit code."""
    monkeypatch.syspath_prepend(str(run.ROOT / "models"))
    monkeypatch.setattr(run, "ROOT", folder)
    monkeypatch.setattr(run, "describe", lambda *_: AROUND)
    monkeypatch.setattr(run, "code", lambda: {"src": "1"})

    def models(plan: Plan) -> Iterator[dict[str, Any]]:
        for name in plan.names:
            made = ENTRY | {"model": name, "load": loads.get(name, 0.0)}
            entry = plan.journal.once("models", name, partial(dict, made), _worth_keeping)
            if entry is not None:
                yield entry

    monkeypatch.setattr(run, "models", models)
    monkeypatch.setattr(run, "kernels", lambda _: iter(()))
    monkeypatch.setattr(run, "scale", lambda *_: iter(()))

    def call(*flags: str) -> int:
        fixed = [
            "--models",
            str(folder / "models"),
            "--work",
            str(folder / "work"),
            "--journal",
            str(folder / "j.jsonl"),
        ]
        monkeypatch.setattr(sys, "argv", ["run.py", *fixed, *flags])
        with pytest.raises(SystemExit) as ended:
            run.main()
        assert isinstance(ended.value.code, int)
        return ended.value.code

    return call


def published(folder: Path) -> dict[str, Any]:
    assert (folder / "docs" / "benchmarks.md").is_file()
    found: dict[str, Any] = json.loads((folder / "benchmarks" / "results" / "full.json").read_text(encoding="utf-8"))
    return found


def nothing_is_published(folder: Path) -> bool:
    return not (folder / "docs").exists() and not (folder / "benchmarks").exists()


def test_a_whole_run_is_published_in_order_and_forgotten(bench: Bench, folder: Path) -> None:
    assert bench() == 0
    document = published(folder)
    assert [entry["model"] for entry in document["models"]] == ["candy-dynamo", "minilm", "nudenet"]
    assert {"bert_base-dynamo", "resnet50"} < set(document["absent"])
    assert "squeeze_excite" not in document["absent"]
    assert not (folder / "j.jsonl").exists()


def test_a_run_whose_time_is_up_is_a_draft_and_goes_on(bench: Bench, folder: Path) -> None:
    assert bench("--only", "minilm") == 0
    assert bench("--minutes", "0") == run.INCOMPLETE
    assert nothing_is_published(folder)
    draft = (folder / "build" / "bench" / "benchmarks.md").read_text(encoding="utf-8")
    assert "| minilm | 2.00 |" in draft
    assert "2 not measured yet: candy-dynamo, nudenet." in draft
    assert bench() == 0
    assert len({entry["made"]["call"] for entry in published(folder)["models"]}) <= 2


def test_models_that_were_measured_elsewhere_need_no_file(bench: Bench, folder: Path) -> None:
    assert bench("--only", "minilm") == 0
    (folder / "models" / "minilm.onnx").unlink()
    assert bench() == 0
    assert "minilm" in [entry["model"] for entry in published(folder)["models"]]


def test_a_loaded_machine_costs_the_entries_that_it_spoils(bench: Bench, folder: Path, loads: dict[str, float]) -> None:
    loads["minilm"] = 0.5
    assert bench() == 1
    assert nothing_is_published(folder)
    kept = (folder / "j.jsonl").read_text(encoding="utf-8")
    assert "candy-dynamo" in kept
    assert "minilm" not in kept
    loads.clear()
    assert bench() == 0
    assert published(folder)["load"] == 0.0


def test_figures_of_other_conditions_are_neither_mixed_nor_lost(
    bench: Bench, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench("--only", "minilm") == 0
    before = (folder / "j.jsonl").read_bytes()
    assert bench("--budget", "60s") == 2
    assert "budget (5m, now 60s)" in capsys.readouterr().err
    monkeypatch.setattr(run, "code", lambda: {"src": "2"})
    assert bench() == 2
    assert "code src (1, now 2)" in capsys.readouterr().err
    assert (folder / "j.jsonl").read_bytes() == before
    assert nothing_is_published(folder)


def test_paths_and_the_choice_of_models_are_no_conditions(bench: Bench, folder: Path) -> None:
    assert bench("--only", "minilm", "--runtimes", "torch,openvino") == 0
    (folder / "models").rename(folder / "moved")
    flags = ["--models", str(folder / "moved"), "--work", str(folder / "other"), "--python", "torch=/usr/bin/python3"]
    assert bench("--only", "nudenet", "--only", "minilm", *flags) == 0
    assert (folder / "j.jsonl").read_text(encoding="utf-8").count('"part"') == 2
