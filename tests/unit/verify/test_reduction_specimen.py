"""Parts of models as models: whatever is cut out is valid, and computes what it computed inside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from korch_cli.core.model import Bindings
from korch_cli.core.types import Array
from korch_cli.emit import save_model
from korch_cli.load import read_whole
from korch_cli.verify.reduction.specimen import Cut, Specimen

_TEXT = """
<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
g (float[2, 3] x, float[2, 3] ignored, bool flag) => (float[2, 3] y, float[3, 2] z, float[2, 3] x2)
<float[3] w = {1, 2, 3}, float[5] spare = {0, 0, 0, 0, 0}> {
  two = Constant<value: tensor = float {2}>()
  a = Mul(x, two)
  b = local.twice(a)
  c = If(flag) <
    then_branch = yes () => (float[2, 3] t) { t = Add(b, w) },
    else_branch = no () => (float[2, 3] e) { e = Neg(a) }
  >
  parts = SplitToSequence<axis = 0>(c)
  d = ConcatFromSequence<axis = 0>(parts)
  shape = Shape(b)
  flat = Reshape(d, shape)
  y = Tanh(flat)
  z = Transpose(flat)
  x2 = Identity(x)
}
<domain: "local", opset_import: ["" : 17]> twice (v) => (r) { r = Add(v, v) }
"""
_FUNCTIONS = """
<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
g (float[2] x) => (float[2] y) { a = local.outer(x) y = local.other(a) }
<domain: "local", opset_import: ["" : 17, "local" : 1]> outer (v) => (r) { r = local.inner(v) }
<domain: "local", opset_import: ["" : 17]> inner (v) => (r) { r = Neg(v) }
<domain: "local", opset_import: ["" : 17]> other (v) => (r) { r = Abs(v) }
"""


def _specimen(path: Path, bindings: Bindings | None = None) -> Specimen:
    whole = read_whole(path, bindings or Bindings({}, {}))
    return Specimen(whole.proto, whole.types, whole.static, whole.constants, 0)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Specimen:
    """A subgraph, a function, a sequence, a computed shape, and an input and a weight that nothing reads."""
    path = tmp_path_factory.mktemp("odd") / "odd.onnx"
    onnx.save_model(onnx.parser.parse_model(_TEXT), path)
    return _specimen(path)


def _run(proto: onnx.ModelProto, feeds: dict[str, Array]) -> dict[str, Array]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    wanted = {i.name: feeds[i.name] for i in session.get_inputs()}
    return dict(zip(names, session.run(names, wanted), strict=True))


def _values(specimen: Specimen, feeds: dict[str, Array]) -> dict[str, Array]:
    """Every tensor of a model that can be an output."""
    proto = onnx.ModelProto()
    proto.CopyFrom(specimen.proto)
    shown = {output.name for output in proto.graph.output}
    made = [name for node in proto.graph.node for name in node.output if name not in shown]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    return feeds | _run(proto, feeds)


def test_the_whole_is_the_model_itself(odd: Specimen) -> None:
    built = odd.build(odd.whole())
    assert built is not None
    assert [i.name for i in built.graph.input] == ["x", "ignored", "flag"]
    assert [o.name for o in built.graph.output] == ["y", "z", "x2"]
    assert {t.name for t in built.graph.initializer} == {"w", "spare"}
    assert list(built.graph.node) == list(odd.proto.graph.node)
    assert built.functions == odd.proto.functions


def test_any_nodes_make_a_valid_model_that_computes_the_same(odd: Specimen) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3)).astype(np.float32)
    values = _values(odd, {"x": x, "ignored": x, "flag": np.array(True)})
    count = len(odd.nodes)
    for bits in range(1, 1 << count):
        nodes = odd.closed(i for i in range(count) if bits >> i & 1)
        built = odd.build(Cut(nodes))
        if built is None:
            # Only a sequence comes out of these nodes, or nothing.
            assert {odd.nodes[i].op_type for i in nodes} & {"SplitToSequence"}
            continue
        if bits % 7:
            continue
        onnx.checker.check_model(built, full_check=True)
        for name, found in _run(built, values).items():
            np.testing.assert_array_equal(found, values[name])


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_random_chains_survive_any_cut(data: st.DataObject) -> None:
    operators = {"Add": 2, "Relu": 1, "Sum": 3, "Mul": 2}
    names, nodes = ["x", "w"], []
    for i in range(data.draw(st.integers(1, 10))):
        op_type = data.draw(st.sampled_from(sorted(operators)))
        read = [data.draw(st.sampled_from(names)) for _ in range(operators[op_type])]
        nodes.append(helper.make_node(op_type, read, [f"t{i}"]))
        names.append(f"t{i}")
    shown = data.draw(st.lists(st.sampled_from(names[2:]), min_size=1, unique=True))
    info = helper.make_tensor_value_info
    ir_version = data.draw(st.sampled_from([3, 8]))
    inputs = [info("x", TensorProto.FLOAT, [3])] + ([info("w", TensorProto.FLOAT, [3])] if ir_version == 3 else [])
    graph = helper.make_graph(
        nodes,
        "g",
        inputs,
        [info(name, TensorProto.FLOAT, [3]) for name in shown],
        [numpy_helper.from_array(np.array([1, -2, 3], np.float32), "w")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=ir_version)
    types = {name: helper.make_tensor_type_proto(TensorProto.FLOAT, [3]) for name in names[2:]}
    specimen = Specimen(proto, types, {}, {}, 0)
    kept = data.draw(st.sets(st.integers(0, len(nodes) - 1), min_size=1))
    built = specimen.build(Cut(tuple(sorted(kept))))
    values = _values(specimen, {"x": np.array([0.5, -1, 2], np.float32)})
    if built is None:
        # Nothing outside reads what these nodes make, and none of it is an output.
        assert not {names[i + 2] for i in kept} & set(shown)
        return
    onnx.checker.check_model(built, full_check=True)
    assert len(built.graph.node) == len(kept)
    for name, found in _run(built, values).items():
        np.testing.assert_array_equal(found, values[name])


def test_only_functions_that_are_called_stay(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save_model(onnx.parser.parse_model(_FUNCTIONS), path)
    specimen = _specimen(path)
    first, second = specimen.build(Cut((0,))), specimen.build(Cut((1,)))
    assert first is not None
    assert second is not None
    assert [f.name for f in first.functions] == ["outer", "inner"]
    assert [f.name for f in second.functions] == ["other"]
    assert [i.name for i in second.graph.input] == ["a"]


def test_a_known_value_is_an_initializer_and_not_an_input(odd: Specimen) -> None:
    reshape = next(i for i, node in enumerate(odd.nodes) if node.op_type == "Reshape")
    built = odd.build(Cut((reshape,)))
    assert built is not None
    (shape,) = built.graph.initializer
    assert numpy_helper.to_array(shape).tolist() == [2, 3]
    assert [i.name for i in built.graph.input] == ["d"]


def test_what_a_subgraph_captures_becomes_an_input(odd: Specimen) -> None:
    branch = next(i for i, node in enumerate(odd.nodes) if node.op_type == "If")
    built = odd.build(Cut((branch,)))
    assert built is not None
    assert [i.name for i in built.graph.input] == ["flag", "b", "a"]
    assert [t.name for t in built.graph.initializer] == ["w"]


def test_nodes_that_make_a_sequence_stay_with_those_that_read_it(odd: Specimen) -> None:
    joined = next(i for i, node in enumerate(odd.nodes) if node.op_type == "ConcatFromSequence")
    assert [odd.nodes[i].op_type for i in odd.closed([joined])] == ["SplitToSequence", "ConcatFromSequence"]
    assert odd.build(Cut((joined,))) is None


def test_a_frozen_input_is_zero(odd: Specimen) -> None:
    branch = next(i for i, node in enumerate(odd.nodes) if node.op_type == "If")
    built = odd.build(Cut((branch,), frozen=frozenset({"a", "b"})))
    assert built is not None
    assert [i.name for i in built.graph.input] == ["flag"]
    values = {t.name: numpy_helper.to_array(t) for t in built.graph.initializer}
    assert not values["a"].any()
    assert values["a"].shape == (2, 3)


@pytest.mark.parametrize(
    "data_type", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE]
)
@pytest.mark.parametrize("filling", ["zeros", "ones", "random"])
def test_made_up_weights_keep_their_type(data_type: int, filling: str, tmp_path: Path) -> None:
    weight = helper.make_tensor("w", data_type, [4, 5], [7.0] * 20)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [info("x", data_type, [4, 5])],
        [info("y", data_type, [4, 5])],
        [weight],
    )
    path = tmp_path / "m.onnx"
    onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    specimen = _specimen(path)
    cut = Cut((0,), filled=frozenset({("w", filling)}))
    built, again = specimen.build(cut), specimen.build(cut)
    assert built is not None
    assert built == again
    onnx.checker.check_model(built, full_check=True)
    assert built.graph.initializer[0].data_type == data_type
    found = numpy_helper.to_array(built.graph.initializer[0]).astype(np.float64)
    expected = {"zeros": found == 0, "ones": found == 1, "random": np.abs(found) < 7}[filling]
    assert expected.all()
    assert (len(np.unique(found)) > 1) == (filling == "random")


def test_small_tensors_and_integers_are_no_weights(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[3, 3] x) => (float[3, 3] y)
      <float[1] few = {1}, float[3, 3] many = {1, 2, 3, 4, 5, 6, 7, 8, 9}, int64[2] shape = {3, 3}> {
        a = Add(x, few) b = Add(a, many) y = Reshape(b, shape) }"""
    onnx.save_model(onnx.parser.parse_model(text), path)
    specimen = _specimen(path)
    assert specimen.weights(specimen.whole()) == ("many",)


def test_external_data_goes_with_the_nodes_that_read_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal(4000).astype(np.float32) for name in ("v", "w")}
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Add", ["x", "v"], ["a"]), helper.make_node("Mul", ["a", "w"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, [4000])],
        [info("y", TensorProto.FLOAT, [4000])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    path = tmp_path / "m.onnx"
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(proto, path, save_as_external_data=True, location="m.data", size_threshold=0)
    part = _specimen(path).build(Cut((1,)))
    out = tmp_path / "out" / "part.onnx"
    out.parent.mkdir()
    save_model(part, tmp_path, out)
    onnx.checker.check_model(str(out))
    assert (out.parent / "part.onnx.data").stat().st_size == weights["w"].nbytes
    (kept,) = onnx.load_model(str(out)).graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(kept), weights["w"])
