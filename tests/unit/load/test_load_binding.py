"""Symbolic dimensions become numbers, or the user is told what to type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from korch_cli.core.errors import ExitCode, UsageError
from korch_cli.core.model import Model
from korch_cli.core.types import DType, TensorType

Build = Callable[..., onnx.ModelProto]
Loader = Callable[..., Model]


@pytest.fixture
def relu(build: Build) -> Callable[[Any], onnx.ModelProto]:
    """A Relu of `x` with the given dimensions, and an output with the same."""
    return lambda dims: build([helper.make_node("Relu", ["x"], ["y"])], {"x": dims}, {"y": dims})


@pytest.fixture
def two(build: Build) -> onnx.ModelProto:
    """Two inputs that share a named dimension."""
    nodes = [helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Relu", ["b"], ["z"])]
    return build(nodes, {"a": ["batch", 3], "b": ["batch", "width"]}, {"y": None, "z": None})


def refused(loader: Loader, *arguments: Any, **bindings: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        loader(*arguments, **bindings)
    assert caught.value.exit_code is ExitCode.USAGE
    return caught.value


def dims_of(info: onnx.ValueInfoProto) -> list[Any]:
    return [d.dim_value if d.HasField("dim_value") else d.dim_param for d in info.type.tensor_type.shape.dim]


def test_a_named_dimension_is_bound_in_every_input(two: onnx.ModelProto, loaded: Loader) -> None:
    model = loaded(two, dims={"batch": 2, "width": 5})
    proto: Any = model.proto
    assert [dims_of(info) for info in proto.graph.input] == [[2, 3], [2, 5]]
    assert model.types["y"] == TensorType(DType.F32, (2, 3))
    assert model.types["z"] == TensorType(DType.F32, (2, 5))
    assert "Input 'b' was bound to 2x5." in model.notes


def test_a_shape_binds_an_input_entirely(relu: Any, loaded: Loader) -> None:
    model = loaded(relu(["p2o.DynamicDimension.0", 3, "?", None]), shapes={"x": (1, 3, 48, 320)})
    assert model.types["x"] == model.types["y"] == TensorType(DType.F32, (1, 3, 48, 320))
    proto: Any = model.proto
    assert dims_of(proto.graph.output[0]) == [1, 3, 48, 320]


def test_a_shape_says_what_its_names_are_elsewhere(two: onnx.ModelProto, loaded: Loader) -> None:
    model = loaded(two, dims={"width": 5}, shapes={"a": (4, 3)})
    assert model.types["b"].shape == (4, 5)


def test_shapes_may_disagree_about_a_name(two: onnx.ModelProto, loaded: Loader) -> None:
    model = loaded(two, shapes={"a": (4, 3), "b": (1, 2)})
    assert (model.types["a"].shape, model.types["b"].shape) == ((4, 3), (1, 2))


def test_an_input_of_unknown_rank_takes_any_shape(relu: Any, loaded: Loader) -> None:
    model = loaded(relu(None), shapes={"x": (2, 5)})
    assert model.types["y"].shape == (2, 5)


def test_a_static_model_needs_no_bindings(relu: Any, loaded: Loader) -> None:
    model = loaded(relu([2, 3]))
    assert model.types["y"].shape == (2, 3)
    assert model.notes == ()


def test_a_scalar_input_is_static(relu: Any, loaded: Loader) -> None:
    assert loaded(relu([])).types["y"].shape == ()


def test_recorded_shapes_do_not_survive_a_binding(build: Build, loaded: Loader) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["t"]), helper.make_node("Neg", ["t"], ["y"])]
    proto = build(nodes, {"x": ["n", 3]}, {"y": [1, 3]})
    proto.graph.value_info.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, [1, 3]))
    model = loaded(proto, dims={"n": 4})
    assert model.types["t"].shape == model.types["y"].shape == (4, 3)


@pytest.mark.parametrize("nameless", ["?", "", "-1", None, 0, -1])
def test_a_dimension_without_name_needs_a_shape(relu: Any, loaded: Loader, nameless: object) -> None:
    proto = relu([2, 7])
    dim = proto.graph.input[0].type.tensor_type.shape.dim[1]
    dim.Clear()
    if isinstance(nameless, str):
        dim.dim_param = nameless
    elif nameless is not None:
        dim.dim_value = nameless
    error = refused(loaded, proto)
    assert "x: axis 1, which has no name" in error.message
    assert error.hint is not None
    assert error.hint.endswith("--shape x=2x1")
    assert loaded(proto, shapes={"x": (2, 9)}).types["y"].shape == (2, 9)


def test_every_open_dimension_is_listed_with_its_flag(two: onnx.ModelProto, loaded: Loader) -> None:
    error = refused(loaded, two)
    assert error.message.endswith("a: 'batch'; b: 'batch', 'width'")
    assert error.hint is not None
    assert error.hint.endswith("--dim batch=1 --dim width=1")


def test_only_what_is_still_open_is_listed(two: onnx.ModelProto, loaded: Loader) -> None:
    error = refused(loaded, two, dims={"batch": 2})
    assert error.message.endswith("no value: b: 'width'")
    assert error.hint is not None
    assert error.hint.endswith("example: --dim width=1")


@pytest.mark.parametrize(
    ("dims", "flag"),
    [(["n", 3, "?", "w"], "--shape x=1x3x224x224"), (["?", 8], "--shape x=1x8"), (None, "--shape x=1x3x224x224")],
)
def test_the_suggested_flags_work(relu: Any, loaded: Loader, dims: Any, flag: str) -> None:
    error = refused(loaded, relu(dims))
    assert error.hint is not None
    assert error.hint.endswith(flag)
    shape = tuple(map(int, flag.partition("=")[2].split("x")))
    assert loaded(relu(dims), shapes={"x": shape}).types["y"].shape == shape


def test_an_unknown_dimension(two: onnx.ModelProto, loaded: Loader) -> None:
    error = refused(loaded, two, dims={"bach": 1})
    assert "'bach'" in error.message
    assert error.hint == "its named dimensions are: 'batch', 'width'"


def test_an_unknown_dimension_where_none_has_a_name(relu: Any, loaded: Loader) -> None:
    error = refused(loaded, relu(["?"]), dims={"batch": 1})
    assert error.hint is not None
    assert "use --shape" in error.hint


def test_an_unknown_input(two: onnx.ModelProto, loaded: Loader) -> None:
    error = refused(loaded, two, shapes={"c": (1, 3)})
    assert "'c'" in error.message
    assert error.hint == "its inputs are: 'a', 'b'"


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 3, 1), "has 3 dimensions, but the input has 2"),
        ((1, 4), "says 4 for axis 1, but the model fixes it at 3"),
        ((-1, 3), "negative"),
    ],
)
def test_a_shape_that_does_not_fit(relu: Any, loaded: Loader, shape: tuple[int, ...], message: str) -> None:
    error = refused(loaded, relu(["n", 3]), shapes={"x": shape})
    assert message in error.message
    assert error.where == "x"


def test_a_negative_dimension(relu: Any, loaded: Loader) -> None:
    assert "'n' cannot be -1" in refused(loaded, relu(["n", 3]), dims={"n": -1}).message


def test_a_dimension_may_be_empty(relu: Any, loaded: Loader) -> None:
    model = loaded(relu(["past", 3]), dims={"past": 0})
    assert model.types["y"].shape == (0, 3)
    assert model.notes == ("Input 'x' was bound to 0x3.",)


def test_a_shape_that_contradicts_a_dimension(relu: Any, loaded: Loader) -> None:
    error = refused(loaded, relu(["n", 3]), dims={"n": 2}, shapes={"x": (5, 3)})
    assert "5 for 'n', but --dim 2" in error.message


# ---- initializers that are inputs


def with_default(build: Build, ir_version: int, dims: Any = (2,)) -> onnx.ModelProto:
    return build(
        [helper.make_node("Exp", ["w"], ["e"]), helper.make_node("Add", ["x", "e"], ["y"])],
        {"x": [2], "w": list(dims)},
        {"y": [2]},
        {"w": np.ones(2, np.float32)},
        opset=9,
        ir_version=ir_version,
    )


def test_an_initializer_that_may_be_overridden_is_no_constant(build: Build, loaded: Loader) -> None:
    model = loaded(with_default(build, ir_version=4))
    assert model.inputs == ("x",)
    assert "w" not in model.constants
    assert model.types["w"] == model.types["e"] == TensorType(DType.F32, (2,))
    assert [operator.op_type for operator in model.operators] == ["Exp", "Add"]
    proto: Any = model.proto
    assert [info.name for info in proto.graph.input] == ["x", "w"]
    assert [tensor.name for tensor in proto.graph.initializer] == ["w"]


def test_a_default_value_binds_the_input_that_it_is_for(build: Build, loaded: Loader) -> None:
    model = loaded(with_default(build, ir_version=8, dims=("n",)))
    assert model.types["w"].shape == (2,)
    proto: Any = model.proto
    assert dims_of(proto.graph.input[1]) == [2]


def test_a_value_that_may_be_overridden_decides_no_shape(build: Build, loaded: Loader) -> None:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["r"]), helper.make_node("Relu", ["r"], ["y"])]
    inputs = {"x": [6], "s": (TensorProto.INT64, [2])}
    model = loaded(build(nodes, inputs, {"y": None}, {"s": np.array([2, 3])}))
    assert "r" not in model.types
    assert "y" not in model.types


def test_before_ir_4_an_initializer_is_constant_though_it_is_an_input(build: Build, loaded: Loader, run: Any) -> None:
    source = with_default(build, ir_version=3)
    model = loaded(source)
    assert model.inputs == ("x",)
    assert [operator.op_type for operator in model.operators] == ["Add"]
    assert set(model.constants) == {"e"}
    proto: Any = model.proto
    # The checker of IR 3 wants every initializer among the inputs; no other input may be left without a value.
    onnx.checker.check_model(proto)
    assert [info.name for info in proto.graph.input] == ["x", "e"]
    feeds = {"x": np.array([1, 2], np.float32)}
    np.testing.assert_allclose(run(proto, feeds)[0], run(source, feeds)[0], rtol=1e-6)
