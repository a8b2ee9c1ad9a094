from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from korch_cli.core.types import Array, DType, TensorType
from korch_cli.verify import draw_inputs


def proto(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, tuple[DType, tuple[int, ...]]], **constants: object
) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(n, d.onnx, s) for n, (d, s) in inputs.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(list(nodes), "g", infos, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def node(op: str, *inputs: str, out: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, [out], **attributes)


def drawn(model: onnx.ModelProto, name: str, dtype: DType, *shape: int, runs: int = 4) -> Array:
    feeds = draw_inputs(model, [(name, TensorType(dtype, shape))], seed=3, runs=runs)
    assert all(feed[name].shape == shape and feed[name].dtype == dtype.numpy for feed in feeds)
    return np.stack([feed[name] for feed in feeds])


TABLE = np.zeros((7, 300), np.float32)
IDS = {"ids": (DType.I64, (50,))}


@pytest.mark.parametrize(
    ("nodes", "limit"),
    [
        ([node("Gather", "table", "ids")], 7),
        ([node("Gather", "table", "ids", axis=1)], 300),
        ([node("Gather", "table", "ids", axis=-1)], 300),
        ([node("Cast", "ids", to=TensorProto.INT32, out="c"), node("Gather", "table", "c")], 7),
        ([node("Unsqueeze", "ids", "zero", out="u"), node("GatherElements", "table", "u", axis=0)], 7),
        ([node("Identity", "ids", out="i"), node("OneHot", "i", "depth", "values")], 5),
        ([node("Transpose", "table", out="t"), node("Gather", "t", "ids")], 300),
        ([node("Add", "ids", "two", out="s"), node("Gather", "table", "s")], 3),
        ([node("Gather", "table", "ids", out="a"), node("Gather", "small", "ids"), node("Abs", "ids", out="b")], 4),
    ],
)  # fmt: skip
def test_indices_stay_inside_the_axis_and_reach_most_of_it(nodes: list[onnx.NodeProto], limit: int) -> None:
    model = proto(
        nodes,
        IDS,
        table=TABLE,
        small=np.zeros(4, np.float32),
        zero=np.zeros(1, np.int64),
        two=np.int64(2),
        depth=np.int64(5),
        values=np.array([0.0, 1.0], np.float32),
    )
    values = drawn(model, "ids", DType.I64, 50)
    assert 0 <= values.min() <= limit * 0.2
    assert limit * 0.8 - 1 <= values.max() < limit


def test_indices_inside_a_function_and_a_subgraph_are_found() -> None:
    function = helper.make_function(
        "korch.test", "lookup", ["t", "i"], ["o"], [node("Gather", "t", "i", out="o")], [helper.make_opsetid("", 17)]
    )
    model = proto([helper.make_node("lookup", ["table", "ids"], ["y"], domain="korch.test")], IDS, table=TABLE)
    model.opset_import.append(helper.make_opsetid("korch.test", 1))
    model.functions.append(function)
    assert drawn(model, "ids", DType.I64, 50).max() == 6

    out = [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)]
    branch = helper.make_graph([node("Gather", "table", "ids", out="z")], "b", [], out)
    model = proto([node("If", "yes", then_branch=branch, else_branch=branch)], IDS, table=TABLE, yes=np.bool_(True))
    assert drawn(model, "ids", DType.I64, 50).max() == 6


@pytest.mark.parametrize(
    ("name", "dtype", "nodes"),
    [
        ("attention_mask", DType.I64, [node("Mul", "attention_mask", "attention_mask")]),
        ("pixel_mask", DType.F32, [node("Identity", "pixel_mask")]),
        ("valid", DType.I64, [node("Unsqueeze", "valid", "zero", out="u"), node("Cast", "u", to=TensorProto.FLOAT)]),
        ("valid", DType.I32, [node("Equal", "valid", "valid"), node("Shape", "valid", out="s")]),
    ],
)
def test_masks_are_zeros_and_ones_with_a_one_in_each_row(name: str, dtype: DType, nodes: list[onnx.NodeProto]) -> None:
    values = drawn(proto(nodes, {name: (dtype, (8, 16))}, zero=np.zeros(1, np.int64)), name, dtype, 8, 16)
    assert set(np.unique(values)) == {0, 1}
    assert (values.max(axis=-1) == 1).all()


def test_a_scalar_mask_is_one() -> None:
    assert (drawn(proto([node("Identity", "mask")], {"mask": (DType.I64, ())}), "mask", DType.I64) == 1).all()


def test_other_types_have_ranges_of_their_own() -> None:
    def plain(dtype: DType) -> Array:
        return drawn(proto([node("Identity", "x")], {"x": (dtype, (1000,))}), "x", dtype, 1000, runs=3)

    assert (plain(DType.I32).min(), plain(DType.I32).max()) == (0, 9)
    assert (plain(DType.U8).min(), plain(DType.U8).max()) == (0, 255)
    assert plain(DType.I8).min() == -128
    assert set(np.unique(plain(DType.BOOL))) == {False, True}
    normal, uniform, signed = plain(DType.F32)
    assert abs(normal.mean()) < 0.2
    assert 0.9 < normal.std() < 1.1
    assert 0.0 <= uniform.min() < uniform.max() <= 1.0
    assert -1.0 <= signed.min() < -0.9 < 0.9 < signed.max() <= 1.0
    assert np.abs(plain(DType.F16).astype(np.float64)).max() < 10.0
    assert {type(text) for text in plain(DType.STRING).flat} == {str}


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(-5, 1 << 70), order=st.permutations(["a", "b", "ids"]))
def test_draws_depend_on_the_seed_and_not_on_the_order(seed: int, order: list[str]) -> None:
    model = proto([node("Gather", "table", "ids")], IDS, table=TABLE)
    types = {"a": TensorType(DType.F32, (9,)), "b": TensorType(DType.F32, (9,)), "ids": TensorType(DType.I64, (9,))}
    first = draw_inputs(model, list(types.items()), seed=seed, runs=2)
    second = draw_inputs(model, [(name, types[name]) for name in order], seed=seed, runs=2)
    other = draw_inputs(model, list(types.items()), seed=seed + 1, runs=2)
    for a, b in zip(first, second, strict=True):
        assert all(np.array_equal(a[name], b[name]) for name in types)
    assert not np.array_equal(first[0]["a"], first[0]["b"])
    assert not np.array_equal(first[0]["a"], first[1]["a"])
    assert not np.array_equal(first[0]["a"], other[0]["a"])


def test_the_model_may_be_a_file(tmp_path: Path) -> None:
    model = proto([node("Gather", "table", "ids")], IDS, table=TABLE)
    onnx.save(model, tmp_path / "m.onnx")
    types = [("ids", TensorType(DType.I64, (50,)))]
    (a,), (b,) = draw_inputs(tmp_path / "m.onnx", types, seed=0, runs=1), draw_inputs(model, types, seed=0, runs=1)
    assert np.array_equal(a["ids"], b["ids"])
