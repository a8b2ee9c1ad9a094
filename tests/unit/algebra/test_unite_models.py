"""A model and a rewritten one in one: which operators are the same, and which names mean something else."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import parser

from korch_cli.algebra import Union, unite_models
from korch_cli.core.model import Bindings, Model
from korch_cli.load import load

HEADER = '<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] y) '
WRITTEN = HEADER + "<float[3] w = {1, 2, 3}> { [one] a = Mul(x, w) [two] b = Neg(a) [three] y = Exp(b) }"


@pytest.fixture
def read(tmp_path: Path) -> object:
    def loaded(text: str) -> Model:
        path = tmp_path / f"{hash(text)}.onnx"
        onnx.save_model(parser.parse_model(text), path)
        return load(path, Bindings({}, {}))

    return loaded


def union(read: object, rewritten: str) -> Union:
    found = unite_models(read(WRITTEN), read(rewritten))  # type: ignore[operator]
    assert found is not None
    return found


def test_equal_operators_are_one_whatever_they_are_called(read: object) -> None:
    other = HEADER + "<float[3] v = {-1, -2, -3}> { [two] b = Mul(x, v) [last] y = Exp(b) }"
    found = union(read, other)
    assert found.operators == (3, 2)
    assert [o.name for o in found.model.operators] == ["one", "two", "three", "two/rewritten"]
    assert found.model.operators[3].outputs == ("b",)
    assert [o.index for o in found.model.operators] == [0, 1, 2, 3]
    assert found.model.constants.keys() == {"v", "w"}
    assert isinstance(found.model.proto, onnx.ModelProto)
    assert [n.name for n in found.model.proto.graph.node] == ["one", "two", "three", "two/rewritten"]
    assert {t.name for t in found.model.proto.graph.initializer} == {"v", "w"}


def test_another_tensor_under_the_same_name_gets_a_new_one(read: object) -> None:
    other = HEADER + "<float[3] v = {-1, -2, -3}, float[1] a = {1}> { c = Mul(x, v) b = Mul(c, a) y = Exp(b) }"
    found = union(read, other)
    (reader,) = [o for o in found.rewritten.operators if o.outputs == ("b",)]
    assert reader.inputs == ("c", "a/rewritten")
    assert "a/rewritten" in found.model.constants
    assert "a" not in found.model.constants
    assert isinstance(found.rewritten.proto, onnx.ModelProto)
    onnx.checker.check_model(found.rewritten.proto)


@pytest.mark.parametrize(
    "other",
    [
        HEADER.replace("x)", "z)") + "{ y = Exp(z) }",
        HEADER.replace('"": 17', '"": 18') + "{ y = Exp(x) }",
        HEADER.replace("float[2, 3] y", "float[2, 3] q") + "{ q = Exp(x) }",
    ],
)
def test_models_that_do_not_fit_together(read: object, other: str) -> None:
    assert unite_models(read(WRITTEN), read(other)) is None  # type: ignore[operator]
