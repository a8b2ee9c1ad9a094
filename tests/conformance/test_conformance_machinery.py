"""The conformance suite finds what it is there to find: wrong answers, broken promises, crashes, hangs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from korch_cli.core.model import Bindings
from korch_cli.pipeline import Fusion, plan_fusion
from korch_cli.toolchain import Compiler, find_compiler
from tests.conformance import examining
from tests.conformance.cases import Case, is_random
from tests.conformance.comparing import difference
from tests.conformance.examining import Request, examine
from tests.conformance.expectations import (
    Expectation,
    Expectations,
    complaints,
    installed,
    read,
    updated,
    vanished,
    worse_counts,
    write,
)
from tests.conformance.promises import broken_promise
from tests.conformance.supervising import Supervision
from tests.conformance.variants import VARIANTS, trials
from tests.conformance.verdict import Journal, Outcome, Verdict

TENSOR = np.arange(6, dtype=np.float32).reshape(2, 3)


def binary(op_type: str = "Add", name: str = "binary", ir_version: int = 8, declared: list[int] | None = None) -> Case:
    info = helper.make_tensor_value_info
    shape = [2, 3] if declared is None else declared
    inputs = [info("a", TensorProto.FLOAT, shape), info("b", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(
        [helper.make_node(op_type, ["a", "b"], ["y"])], "g", inputs, [info("y", TensorProto.FLOAT, [2, 3])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=ir_version)
    return Case(name, model.SerializeToString(), {"a": TENSOR, "b": TENSOR}, (TENSOR + TENSOR,), 1e-3, 1e-7)


def endless() -> Case:
    """ONNX Runtime does not come back from this model."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Identity", ["v"], ["w"])],
        "body",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("v", TensorProto.BOOL, [])],
        [info("on", TensorProto.BOOL, []), info("w", TensorProto.BOOL, [])],
    )
    nodes = [helper.make_node("Loop", ["n", "c", "c"], ["y"], body=body)]
    inputs = [info("n", TensorProto.INT64, []), info("c", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", TensorProto.BOOL, [])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = {"n": np.array(2**62), "c": np.array(True)}
    return Case("endless", model.SerializeToString(), feeds, (feeds["c"],), 1e-3, 1e-7)


class Poison:
    """Ends the process that reads it."""

    def __reduce__(self) -> tuple[Callable[[], object], tuple[()]]:
        return os.abort, ()


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return find_compiler(None)


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (TENSOR + 0.1, TENSOR),
        (TENSOR.astype(np.float64), TENSOR),
        (TENSOR.reshape(3, 2), TENSOR),
        (np.array([1], np.int32), np.array([2], np.int32)),
        (np.array([np.nan], np.float32), np.array([0], np.float32)),
        (np.array([0], np.float32), np.array([np.nan], np.float32)),
        (np.array([1e38], np.float32), np.array([np.inf], np.float32)),
        (np.array([-np.inf], np.float32), np.array([np.inf], np.float32)),
        (np.array([1.5], ml_dtypes.bfloat16), np.array([1], ml_dtypes.bfloat16)),
        (np.array(["a"], object), np.array(["b"], object)),
        ([TENSOR], [TENSOR, TENSOR]),
        ([TENSOR + 1], [TENSOR]),
        (TENSOR, [TENSOR]),
        ({1: TENSOR}, {2: TENSOR}),
        (None, TENSOR),
        (TENSOR, None),
    ],
    ids=repr,
)
def test_a_difference_is_seen(got: Any, want: Any) -> None:
    assert difference(got, want, 1e-3, 1e-7)
    assert difference(want, want, 1e-3, 1e-7) is None


def test_neighbours_in_a_narrow_type_are_equal() -> None:
    one, next_one = np.array([1], ml_dtypes.bfloat16), np.array([1 + 2**-7], ml_dtypes.bfloat16)
    assert one != next_one
    assert difference(next_one, one, 1e-3, 1e-7) is None


def _renamed(model: onnx.ModelProto) -> None:
    model.graph.input[0].name = "other"


def _dropped(model: onnx.ModelProto) -> None:
    del model.graph.input[1]


def _swapped(model: onnx.ModelProto) -> None:
    first, second = model.graph.input
    first.name, second.name = second.name, first.name


def _retyped(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE


def _reshaped(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 7


def _misstated(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 7


def _unranked(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.ClearField("shape")


def _upgraded(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 18


def _raised(model: onnx.ModelProto) -> None:
    model.ir_version += 1


def _annotated(model: onnx.ModelProto) -> None:
    model.metadata_props.add(key="a", value="b")


def _signed(model: onnx.ModelProto) -> None:
    model.producer_name = "somebody"


@pytest.mark.parametrize(
    "change",
    [
        _renamed, _dropped, _swapped, _retyped, _reshaped, _misstated, _unranked,
        _upgraded, _raised, _annotated, _signed,
    ],
    ids=lambda change: change.__name__.strip("_"),
)  # fmt: skip
def test_a_broken_promise_is_seen(change: Callable[[onnx.ModelProto], None]) -> None:
    before, after = (onnx.ModelProto.FromString(binary().model) for _ in range(2))
    shapes = {"a": (2, 3), "b": (2, 3)}
    assert broken_promise(before, after, shapes, [TENSOR]) is None
    change(after)
    assert broken_promise(before, after, shapes, [TENSOR])


def test_inputs_are_frozen_into_constants() -> None:
    for version in (3, 8):
        (trial,) = trials(binary(ir_version=version), ["frozen"])
        model = onnx.ModelProto.FromString(trial.model)
        assert [info.name for info in model.graph.input] == ["a"]
        assert [tensor.name for tensor in model.graph.initializer] == ["b"]
        assert model.ir_version == max(version, 4)
        assert list(trial.feeds) == ["a"]


def test_dimensions_are_taken_away_and_bound_again() -> None:
    (trial,) = trials(binary(), ["symbolic"])
    model = onnx.ModelProto.FromString(trial.model)
    assert not any(dim.HasField("dim_value") for info in model.graph.input for dim in info.type.tensor_type.shape.dim)
    assert trial.bindings == Bindings({"a_0": 2, "a_1": 3}, {"b": (2, 3)})


def test_declarations_follow_what_is_fed() -> None:
    (trial,) = trials(binary(declared=[1]), ["as-is"])
    model = onnx.ModelProto.FromString(trial.model)
    assert [[dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in model.graph.input] == [[2, 3]] * 2


def test_random_operators_are_seen_wherever_they_are() -> None:
    inner = helper.make_graph([helper.make_node("RandomNormal", [], ["r"], shape=[1])], "inner", [], [])
    graph = helper.make_graph([helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)], "g", [], [])
    model = helper.make_model(graph)
    assert is_random(replace(binary(), model=model.SerializeToString()))
    assert not is_random(binary())


def test_a_case_that_is_right_passes_in_every_variant(tmp_path: Path, compiler: Compiler) -> None:
    verdicts = Supervision(tuple(VARIANTS), tmp_path, compiler).judge_all([binary()], 1)
    assert verdicts == [Verdict(f"binary @ {variant}", Outcome.TOUCHED) for variant in sorted(VARIANTS)]


@pytest.mark.parametrize("stage", ["primitives", "output"])
def test_wrong_answers_are_seen(
    stage: str, tmp_path: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model that is optimised is another one than the one that it is compared with."""

    def planned_wrongly(source: Path, bindings: Bindings, **_: object) -> Fusion:
        source.write_bytes(binary("Sub").model)
        return plan_fusion(source, bindings)

    monkeypatch.setattr(examining, "plan_fusion", planned_wrongly)
    if stage == "output":
        monkeypatch.setattr(examining, "interpret", lambda *_: [TENSOR + TENSOR])
    journal = Journal(tmp_path / "journal")
    examine(Request(tuple(trials(binary(), ["as-is"])), tmp_path, tmp_path, compiler, 60.0), journal)
    (verdict,) = journal.verdicts()
    assert verdict.outcome is Outcome.FAILED
    assert verdict.reason.startswith(f"{stage}: output 0: 5 of 6 elements differ")


def test_what_cannot_be_built_fails_and_takes_no_other_with_it(
    tmp_path: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planned(source: Path, bindings: Bindings, **_: object) -> Fusion:
        fusion = plan_fusion(source, bindings)
        if source.stem != "1":
            return fusion
        broken = {digest: replace(kernel, source="no C++") for digest, kernel in fusion.chosen.items()}
        return replace(fusion, chosen=broken)

    monkeypatch.setattr(examining, "plan_fusion", planned)
    batch = [trial for name in ("Add", "Sub", "Mul") for trial in trials(binary(name, name), ["as-is"])]
    journal = Journal(tmp_path / "journal")
    examine(Request(tuple(batch), tmp_path, tmp_path, compiler, 60.0), journal)
    found = {verdict.key: verdict for verdict in journal.verdicts()}
    assert {key: verdict.outcome.value for key, verdict in found.items()} == {
        "Add @ as-is": "touched",
        "Sub @ as-is": "failed",
        "Mul @ as-is": "touched",
    }
    assert "does not compile" in found["Sub @ as-is"].reason


@pytest.mark.slow
def test_crashes_and_hangs_are_found_and_lose_nothing(tmp_path: Path) -> None:
    poisoned = replace(binary(name="poisoned"), feeds={"a": TENSOR, "b": Poison()})
    supervision = Supervision(("as-is",), tmp_path, None, seconds=10.0)
    verdicts = supervision.judge([binary(name="first"), endless(), poisoned, binary(name="last")])
    found = {verdict.key: (verdict.outcome.value, verdict.reason) for verdict in verdicts}
    assert found == {
        "first @ as-is": ("touched", ""),
        "endless @ as-is": ("failed", "planning: it takes too long"),
        "poisoned @ as-is": ("failed", found["poisoned @ as-is"][1]),
        "last @ as-is": ("touched", ""),
    }
    assert "crash with SIGABRT" in found["poisoned @ as-is"][1]


def expecting(**exceptions: str) -> Expectations:
    listed = {f"{name} @ as-is": Expectation(status, "why") for name, status in exceptions.items()}
    return Expectations(installed(), {"as-is": 1}, {"as-is": 0}, listed)


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("status", ["", "opaque", "xfail"])
def test_only_what_is_expected_passes(status: str, outcome: Outcome) -> None:
    expectations = expecting(**({"x": status} if status else {}))
    accepted = {
        "": {Outcome.TOUCHED, Outcome.EXCLUDED},
        "opaque": {Outcome.OPAQUE},
        "xfail": {Outcome.FAILED},
    }
    found = complaints(expectations, [Verdict("x @ as-is", outcome, ("words",))])
    assert bool(found) == (outcome not in accepted[status])


def test_with_other_packages_only_failures_count() -> None:
    other = replace(expecting(gone="opaque"), versions={"onnx": "0"})
    assert not complaints(other, [Verdict("gone @ as-is", Outcome.TOUCHED), Verdict("x @ as-is", Outcome.OPAQUE)])
    assert complaints(other, [Verdict("x @ as-is", Outcome.FAILED, ("words",))])
    assert not vanished(other, [])
    assert not worse_counts(other, [])


def test_exceptions_without_a_trial_and_worse_counts_are_seen() -> None:
    assert vanished(expecting(x="opaque", y="skip"), ["x @ as-is"]) == [
        "y @ as-is: it is listed, but there is no such trial"
    ]
    good = Verdict("x @ as-is", Outcome.TOUCHED)
    assert not worse_counts(expecting(), [good])
    assert len(worse_counts(expecting(), [])) == 1
    assert len(worse_counts(expecting(), [good, Verdict("y @ as-is", Outcome.EXCLUDED)])) == 1


def test_expectations_are_rewritten_but_failures_never_entered(tmp_path: Path) -> None:
    old = expecting(skipped="skip", known="xfail", mended="xfail", touched="opaque")
    verdicts = [
        Verdict("known @ as-is", Outcome.FAILED, ("words",)),
        Verdict("mended @ as-is", Outcome.TOUCHED),
        Verdict("new @ as-is", Outcome.FAILED, ("words",)),
        Verdict("opaque @ as-is", Outcome.OPAQUE, ('it says "no" to \\', "twice")),
        Verdict("touched @ as-is", Outcome.TOUCHED),
    ]
    new = updated(old, verdicts)
    assert {key: entry.status for key, entry in new.trials.items()} == {
        "skipped @ as-is": "skip",
        "known @ as-is": "xfail",
        "opaque @ as-is": "opaque",
    }
    assert new.touched == {"as-is": 2}
    write(new, tmp_path / "expectations.toml")
    assert read(tmp_path / "expectations.toml") == new
    assert complaints(new, verdicts) == ["new @ as-is: words"]


@pytest.mark.parametrize("entry", [Expectation("equal", "why"), Expectation("xfail", "")])
def test_exceptions_need_a_known_status_and_a_reason(entry: Expectation, tmp_path: Path) -> None:
    write(replace(expecting(), trials={"x @ as-is": entry}), tmp_path / "expectations.toml")
    with pytest.raises(ValueError, match="needs a reason and a status"):
        read(tmp_path / "expectations.toml")
