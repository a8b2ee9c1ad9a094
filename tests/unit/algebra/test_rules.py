"""Every rule, on random graphs that it applies to: the same as without it, in float32 and against float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator
from rule_sketches import SKETCHES, Draw, Sketch, long_linear_attention
from window_sketches import heads as heads  # enters the sketches of its file

from korch_cli.algebra import default_rules, simplify
from korch_cli.algebra.families import entered
from korch_cli.algebra.rule import Kind, Rule
from korch_cli.core.model import Bindings
from korch_cli.core.types import Array
from korch_cli.load import load

RULES = {rule.apply.__name__: rule for rule in entered()}
SEEDS = range(8)
CASES = [
    pytest.param(n, draw, seed, id=f"{draw.__name__}-{seed}")
    for n, ds in SKETCHES.items()
    for draw in ds
    for seed in SEEDS
]


def run(proto: object, feeds: dict[str, Array], *, optimize: bool = False) -> list[Array]:
    assert isinstance(proto, onnx.ModelProto)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, feeds)]


def drawn(draw: Draw, seed: int) -> tuple[Sketch, str]:
    s = Sketch(np.random.default_rng(seed))
    result = draw(s)
    s.outputs = [result]
    return s, result


def written(proto: onnx.ModelProto, folder: Path) -> Any:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return load(path, Bindings({}, {}))


def feeds_of(s: Sketch) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    return {name: rng.standard_normal(shape).astype(s.dtype) for name, shape in s.inputs.items()}


@pytest.mark.parametrize(("name", "draw", "seed"), CASES)
def test_a_rule_changes_nothing_but_the_form(tmp_path: Path, name: str, draw: Draw, seed: int) -> None:
    s, result = drawn(draw, seed)
    model = written(s.proto(), tmp_path)
    found = simplify(model, chosen=[RULES[name]])
    assert found is not None
    assert isinstance(found.proto, onnx.ModelProto)
    onnx.checker.check_model(found.proto, full_check=True)
    assert [output.name for output in found.proto.graph.output] == [result]
    feeds = feeds_of(s)
    before = run(model.proto, feeds)[0]
    evaluator = ReferenceEvaluator(s.proto(wide=True))
    outputs = cast("list[Array]", evaluator.run(None, {n: a.astype(np.float64) for n, a in feeds.items()}))
    exact = np.asarray(outputs[0])
    scale = max(1.0, float(np.abs(exact).max()))
    for optimize in (False, True):
        after = run(found.proto, feeds, optimize=optimize)[0]
        assert (after.dtype, after.shape) == (before.dtype, before.shape)
        np.testing.assert_allclose(after, before, rtol=2e-5, atol=1e-5 * scale)
        np.testing.assert_allclose(after, exact, rtol=1e-4, atol=2e-5 * scale)


def error(outputs: list[Array], exact: Array) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean((outputs[0] - exact) ** 2)))


@pytest.mark.parametrize("seed", SEEDS)
def test_sums_over_many_terms_stay_as_exact(tmp_path: Path, seed: int) -> None:
    s, _ = drawn(long_linear_attention, seed)
    model = written(s.proto(), tmp_path)
    found = simplify(model, chosen=[RULES["transpose_regions"]])
    assert found is not None
    feeds = feeds_of(s)
    wide = ReferenceEvaluator(s.proto(wide=True)).run(None, {n: a.astype(np.float64) for n, a in feeds.items()})
    exact = np.asarray(cast("list[Array]", wide)[0])
    before = error(run(model.proto, feeds), exact)
    for optimize in (False, True):
        after = error(run(found.proto, feeds, optimize=optimize), exact)
        assert after < 1.3 * before


@pytest.mark.parametrize("name", SKETCHES)
def test_what_the_outside_reads_inside_stays_as_it_was(tmp_path: Path, name: str) -> None:
    """Every tensor of the input that is still there by its name has the value that it had."""
    s, result = drawn(SKETCHES[name][0], 1)
    made = [output for node in s.nodes for output in node.output if output != result]
    for inner in made:
        s.outputs = [result, inner]
        model = written(s.proto(), tmp_path)
        found = simplify(model)
        if found is None:
            continue
        feeds = feeds_of(s)
        for after, before in zip(run(found.proto, feeds), run(model.proto, feeds), strict=True):
            np.testing.assert_allclose(after, before, rtol=2e-5, atol=2e-5 * max(1.0, float(np.abs(before).max())))


@pytest.mark.parametrize("name", SKETCHES)
def test_a_portable_result_keeps_to_the_standard_domain(tmp_path: Path, name: str) -> None:
    for seed in range(3):
        for draw in SKETCHES[name]:
            s, _ = drawn(draw, seed)
            found = simplify(written(s.proto(), tmp_path), portable=True)
            if found is not None:
                assert isinstance(found.proto, onnx.ModelProto)
                assert {node.domain for node in found.proto.graph.node} == {""}
                assert [entry.domain for entry in found.proto.opset_import] == [""]


def test_every_rule_has_a_sketch_and_a_name() -> None:
    assert set(SKETCHES) == set(RULES)
    assert len({rule.name for rule in RULES.values()}) == len(RULES)


def test_what_approximates_is_not_among_the_rules_by_default() -> None:
    assert all(rule.kind is not Kind.APPROXIMATES for rule in default_rules())


def test_rounds_end(tmp_path: Path) -> None:
    s, _ = drawn(SKETCHES["rewrite_mish"][0], 0)
    calls = []

    def again(_: object) -> int:
        calls.append(1)
        return 1

    simplify(written(s.proto(), tmp_path), chosen=[Rule("x = x", Kind.EXACT, "", False, again)])
    assert 1 < len(calls) < 20
