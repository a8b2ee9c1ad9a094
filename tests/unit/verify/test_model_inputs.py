from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from korch_cli.core.errors import ModelError, UsageError
from korch_cli.core.model import Bindings
from korch_cli.core.types import DType, TensorType
from korch_cli.verify import bind_inputs, find_library, model_inputs


def saved(path: Path, *infos: onnx.ValueInfoProto, domain: str = "") -> Path:
    default = numpy_helper.from_array(np.ones((), np.float32), "default")
    everything = [*infos, helper.make_tensor_value_info("default", TensorProto.FLOAT, [])]
    nodes = [helper.make_node("Identity", [infos[0].name], ["y"], domain=domain)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", everything, outputs, [default])
    imports = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    onnx.save(helper.make_model(graph, opset_imports=imports), path)
    return path


def tensor(name: str, *dims: int | str | None, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


@pytest.fixture
def dynamic(tmp_path: Path) -> Path:
    return saved(tmp_path / "m.onnx", tensor("x", "n", 3, None), tensor("z", "n", "t", kind=TensorProto.INT64))


def test_defaults_are_no_inputs_and_dimensions_are_as_declared(dynamic: Path) -> None:
    assert model_inputs(dynamic) == (("x", ("n", 3, None), DType.F32), ("z", ("n", "t"), DType.I64))


def test_bindings_make_types(dynamic: Path) -> None:
    bound = bind_inputs(dynamic, Bindings({"t": 5}, {"x": (2, 3, 4)}))
    assert bound == (("x", TensorType(DType.F32, (2, 3, 4))), ("z", TensorType(DType.I64, (2, 5))))


def test_a_shape_may_be_empty_as_for_optimize(dynamic: Path) -> None:
    bound = bind_inputs(dynamic, Bindings({"t": 5}, {"x": (0, 3, 4)}))
    assert bound == (("x", TensorType(DType.F32, (0, 3, 4))), ("z", TensorType(DType.I64, (0, 5))))


def test_an_unknown_rank_needs_a_shape(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", helper.make_tensor_value_info("x", TensorProto.FLOAT, None))
    assert model_inputs(path) == (("x", None, DType.F32),)
    for shape in ((2, 2), ()):
        assert bind_inputs(path, Bindings({}, {"x": shape})) == (("x", TensorType(DType.F32, shape)),)
    with pytest.raises(UsageError, match="--shape x="):
        bind_inputs(path, Bindings({}, {}))


def test_unbound_dimensions_are_listed_with_the_flags_to_type(dynamic: Path) -> None:
    with pytest.raises(UsageError) as caught:
        bind_inputs(dynamic, Bindings({}, {}))
    text = str(caught.value)
    assert "[n, 3, ?]" in text
    assert "--shape x=1x3x1" in text
    assert "--dim n=1 --dim t=1" in text


@pytest.mark.parametrize(
    ("dims", "shapes", "said"),
    [
        ({"m": 1}, {}, "no dimension 'm'"),
        ({"n": 0}, {}, "not positive"),
        ({}, {"w": (1,)}, "no input 'w'"),
        ({}, {"x": (1, 3)}, "does not fit"),
        ({}, {"x": (1, 4, 1)}, "does not fit"),
        ({}, {"x": (1, 3, -1)}, "does not fit"),
        ({"n": 2}, {"x": (1, 3, 1)}, "does not fit"),
    ],
)
def test_bindings_that_make_no_sense_are_refused(
    dynamic: Path, dims: dict[str, int], shapes: dict[str, tuple[int, ...]], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        bind_inputs(dynamic, Bindings(dims, shapes))


def test_unreadable_models_are_told_from_missing_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        model_inputs(tmp_path / "missing.onnx")
    with pytest.raises(UsageError):
        model_inputs(tmp_path)
    for content in (b"", b"not a model", b"\x08\x07"):
        (tmp_path / "bad.onnx").write_bytes(content)
        with pytest.raises(ModelError):
            model_inputs(tmp_path / "bad.onnx")


def test_inputs_that_cannot_be_made_are_refused(tmp_path: Path) -> None:
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    with pytest.raises(ModelError, match="sequence"):
        model_inputs(saved(tmp_path / "m.onnx", sequence))
    with pytest.raises(ModelError, match="COMPLEX64"):
        model_inputs(saved(tmp_path / "m.onnx", tensor("c", 1, kind=TensorProto.COMPLEX64)))


def test_a_library_is_found_beside_a_model_that_has_a_use_for_it(tmp_path: Path) -> None:
    korch = saved(tmp_path / "a.onnx", tensor("x", 1), domain="korch.12345678")
    plain = saved(tmp_path / "b.onnx", tensor("x", 1))
    assert find_library(korch) is None
    for name in ("a", "b"):
        (tmp_path / f"{name}.korch.so").write_bytes(b"")
    assert find_library(korch) == tmp_path / "a.korch.so"
    assert find_library(plain) is None
    assert find_library(tmp_path / "missing.onnx") is None
