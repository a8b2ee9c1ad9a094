from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

from korch_cli.cli.entry import korch
from korch_cli.cli.feeding import draw_shared_inputs
from korch_cli.core.errors import UsageError
from korch_cli.core.model import Bindings


def model(path: Path, batch: int | str) -> Path:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "test",
        [info("x", TensorProto.FLOAT, [batch, 4])],
        [info("y", TensorProto.FLOAT, [batch, 4])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A model with a symbolic batch, and the same with the batch that it was optimised for."""
    return model(tmp_path / "in.onnx", "batch"), model(tmp_path / "out.onnx", 2)


@pytest.mark.parametrize("static_first", [True, False])
@pytest.mark.parametrize("dims", [{"batch": 2}, {}])
def test_the_model_that_the_flags_fit_says_what_is_fed(
    pair: tuple[Path, Path], static_first: bool, dims: dict[str, int]
) -> None:
    paths = pair[::-1] if static_first else pair
    (feeds,) = draw_shared_inputs(paths, Bindings(dims, {}), seed=0, runs=1)
    assert feeds["x"].shape == (2, 4)


def test_flags_that_fit_no_model_are_an_error_about_the_first(pair: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match="nonsense"):
        draw_shared_inputs(pair, Bindings({"nonsense": 1}, {}), seed=0, runs=1)


def test_verify_takes_the_dimension_that_the_original_was_bound_with(pair: tuple[Path, Path]) -> None:
    done = CliRunner().invoke(korch, ["verify", str(pair[1]), str(pair[0]), "--dim", "batch=2", "-q"])
    assert done.exit_code == 0, done.output
