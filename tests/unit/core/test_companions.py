"""Files beside a model: each model has its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from korch_cli.core.companions import library_beside, plan_beside


@pytest.mark.parametrize(
    ("model", "library", "plan"),
    [
        ("x.onnx", "x.korch.so", "x.plan.json"),
        ("a/x.ONNX", "a/x.korch.so", "a/x.plan.json"),
        ("x.v1.onnx", "x.v1.korch.so", "x.v1.plan.json"),
        ("x", "x.korch.so", "x.plan.json"),
        (".onnx", ".onnx.korch.so", ".onnx.plan.json"),
    ],
)
def test_the_ending_of_a_model_is_replaced(model: str, library: str, plan: str) -> None:
    assert library_beside(Path(model)) == Path(library)
    assert plan_beside(Path(model)) == Path(plan)


def test_models_whose_names_end_otherwise_share_nothing() -> None:
    models = [Path("m.v1"), Path("m.v2"), Path("m.3"), Path("m.model")]
    assert len({path for m in models for path in (library_beside(m), plan_beside(m))}) == 2 * len(models)
