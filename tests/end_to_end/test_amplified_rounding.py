"""A network that amplifies rounding is held to what ONNX Runtime's own optimisations change, and to nothing looser."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from korch_cli.core.progress import Silent
from korch_cli.core.record import OutputError, Verdict
from korch_cli.pipeline import Settings, optimize
from korch_cli.verify import no_worse


def chaotic(path: Path) -> Path:
    """A convolution that ONNX Runtime changes, and a logistic map that doubles every error.

    Products with a permutation, which are exact, keep the steps out of each other's kernels.
    """
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((4, 3, 3, 3)) * 0.1,
        **{name: rng.uniform(0.5, 1.5, 4) for name in ("scale", "mean", "var")},
        "bias": np.zeros(4),
        "one": np.array(1.0),
        "rate": np.array(3.99),
        "order": np.eye(14)[rng.permutation(14)],
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["n"]),
        helper.make_node("Sigmoid", ["n"], ["s0"]),
    ]
    for i in range(30):
        nodes += [
            helper.make_node("Sub", ["one", f"s{i}"], [f"a{i}"]),
            helper.make_node("Mul", [f"s{i}", f"a{i}"], [f"b{i}"]),
            helper.make_node("Mul", [f"b{i}", "rate"], [f"t{i}"]),
            helper.make_node("MatMul", [f"t{i}", "order"], [f"s{i + 1}"]),
        ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "chaotic",
        [info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
        [info("s30", TensorProto.FLOAT, [1, 4, 14, 14])],
        [numpy_helper.from_array(a.astype(np.float32), name) for name, a in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def test_an_output_that_differs_as_much_as_the_optimised_input_is_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "cache"))
    source = chaotic(tmp_path / "in.onnx")
    record = optimize(Settings(source, tmp_path / "out.onnx", force_fusion=True), Silent())
    assert record.changed
    assert "amplifies rounding" in record.reason
    assert not record.guilty
    assert not record.verdicts[0].passed
    assert "own optimisations" in record.verdicts[-1].variant
    assert any(node.domain.startswith("korch.") for node in onnx.load(tmp_path / "out.onnx").graph.node)


def verdict(mismatches: int, max_abs: float, failure: str | None = None) -> Verdict:
    error = OutputError("y", max_abs, max_abs, (0,), mismatches, 100)
    return Verdict(mismatches == 0 and failure is None, "test", 1e-4, 1e-5, 1, (error,), failure)


@pytest.mark.parametrize(
    ("output", "own", "excused"),
    [
        (verdict(20, 0.4), verdict(5, 0.1), True),
        (verdict(21, 0.1), verdict(5, 0.1), False),
        (verdict(5, 0.41), verdict(5, 0.1), False),
        (verdict(5, 0.2), verdict(0, 1e-6), False),
        (verdict(0, 0.0), verdict(0, 0.0), True),
        (verdict(5, float("nan")), verdict(5, 0.1), False),
        (verdict(5, 0.1, "It crashed."), verdict(5, 0.1), False),
        (verdict(5, 0.1), verdict(5, 0.1, "It crashed."), False),
    ],
)
def test_only_a_difference_of_the_same_size_is_excused(output: Verdict, own: Verdict, excused: bool) -> None:
    assert no_worse(output, own) is excused
