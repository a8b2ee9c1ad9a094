"""The page says of the five models together what it says of each."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import page

FIVE = ("candy", "yolox_nano", "yolov4", "segformer_b0", "efficientvit_b1_224")


def entry(name: str, korch: float | None, other: float) -> dict[str, Any]:
    ours: dict[str, Any] = {"runtime": "korch", "status": "wrong", "sentence": "It differs."}
    if korch is not None:
        ours = {
            "runtime": "korch",
            "status": "ok",
            "median_us": 1e3,
            "opened_once": False,
            "ratio": {"value": korch, "low": 1, "high": 4},
        }
    return {
        "model": f"{name}-dynamo",
        "ideal": {"speed_up": 5.0},
        "made": {
            "call": "2026-01-01T00:00:00Z",
            "at": "2026-01-01T00:01:00Z",
            "commit": "c0ffee",
            "processor": "model 17",
            "minutes": 1.0,
        },
        "rows": [
            {"runtime": "ORT", "status": "ok", "median_us": 2e3},
            ours,
            {
                "runtime": "OpenVINO",
                "status": "ok",
                "median_us": 1e3,
                "opened_once": False,
                "ratio": {"value": other, "low": 1, "high": 4},
            },
        ],
    }


def whole(models: list[dict[str, Any]], folder: Path, **more: Any) -> str:
    around = {
        "processor": "P", "processor_model": "model 17", "processors": 2, "threads": 2, "system": "S",
        "python": "3", "versions": {}, "commit": "c", "compiler": "g++", "date": "d",
    }  # fmt: skip
    document = {"surroundings": around, "sittings": 1, "rounds": 1, "block_s": 1.0, "command": "run", "models": models}
    empty: dict[str, Any] = {"kernels": [], "scale": [], "absent": [], "left_out": []}
    return page.write(document | empty | more, folder).read_text(encoding="utf-8")


def test_means_are_geometric_and_compare_with_the_best_of_the_others(tmp_path: Path) -> None:
    """2 and 4.5 give 3 in the mean; where the other runtime is slower than ONNX Runtime, that is the best."""
    models = [entry(name, 2.0, 0.5) for name in FIVE[:4]] + [entry(FIVE[4], 2.0, 4.0)]
    text = whole(models, tmp_path)
    assert "| dynamo, 224 | 2.00 | 0.76 | 1.52 |" in text
    assert "script, 224" not in text


def test_a_model_without_a_ratio_leaves_no_mean(tmp_path: Path) -> None:
    models = [entry(name, 2.0, 0.5) for name in FIVE[:4]] + [entry(FIVE[4], None, 4.0)]
    text = whole(models, tmp_path)
    assert "| dynamo, 224 | – | 0.76 | – |" in text
    assert "wrong" in text


@pytest.mark.parametrize("absent", FIVE)
def test_no_mean_of_four(absent: str, tmp_path: Path) -> None:
    text = whole([entry(name, 2.0, 0.5) for name in FIVE if name != absent], tmp_path)
    assert "Geometric" not in text


def test_the_search_is_told_with_its_prediction(tmp_path: Path) -> None:
    first = {
        "seconds": 61.2, "changed": True,
        "prediction": {"predicted_us": 9.0, "measured_us": 10.0, "input_us": 20.0, "ratio": 0.9},
        "primitives": 1234, "candidates": 56, "distinct": 45, "measured": 7, "from_store": 3, "rounds": 2, "gap": 0.012,
        "solve_seconds": 0.5,
    }  # fmt: skip
    size = dict.fromkeys(("input_bytes", "output_bytes", "library_bytes"), 0)
    size |= dict.fromkeys(("ort_open_s", "korch_open_s", "ort_peak_mb", "korch_peak_mb"), 1)
    model = entry("candy", 2.0, 0.5) | {"size": size}
    text = whole(
        [model | {"search": {"first": first, "second": first | {"seconds": 9.6, "measured": 0, "gap": 0.004}}}],
        tmp_path,
    )
    assert "| candy-dynamo | 1,234 | 56 (45) | 7, 0 | 1.2%, 0.4% | 0.5 | 61 | 10 | 0.90 |" in text
    unknown = first | {"prediction": None}
    text = whole([model | {"search": {"first": unknown, "second": None}}], tmp_path)
    assert "| 61 | – | – |" in text


def test_one_block_has_no_interval_and_one_process_a_mark(tmp_path: Path) -> None:
    model = entry("candy", 2.0, 0.5)
    model["rows"][1]["opened_once"] = True
    model["rows"][2]["ratio"] = {"value": 0.04, "pairs": 1}
    text = whole([model], tmp_path)
    assert "| candy-dynamo | 2.00 | 1.00 (2.00, 1.00 to 4.00\\*) | 1.00 (0.04, one block) | 5.00 |" in text
    assert "An asterisk marks" in text


def test_a_run_in_parts_says_so(tmp_path: Path) -> None:
    first, second, third = (entry(name, 2.0, 0.5) for name in FIVE[:3])
    assert "parts" not in whole([first, second], tmp_path)
    third["made"] = third["made"] | {"call": "2026-01-02T00:00:00Z", "commit": "decaf", "processor": "model 49"}
    text = whole([first, second, third], tmp_path)
    assert "Measured in 2 parts" in text
    assert (
        "2026-01-01T00:00:00Z (2, commit c0ffee, model 17); 2026-01-02T00:00:00Z (1, commit decaf, model 49)." in text
    )


def test_what_is_not_in_the_run_is_named(tmp_path: Path) -> None:
    text = whole([entry("candy", 2.0, 0.5)], tmp_path, absent=["gpt"], left_out=["bert", "norm"])
    assert "1 without a file: gpt." in text
    assert "2 not measured yet: bert, norm." in text


def test_failures_of_every_part_are_shown(tmp_path: Path) -> None:
    model = entry("candy", 2.0, 0.5)
    failed = {"failure": "It fell.", "made": model["made"]}
    text = whole(
        [model | {"ablation": failed | {"model": "ablated"}}, failed | {"model": "net"}],
        tmp_path,
        kernels=[failed | {"pattern": "norm"}],
        scale=[failed | {"model": "encoder"}],
    )
    for name in ("ablated", "net", "norm", "encoder"):
        assert f"| {name} | It fell. |" in text
