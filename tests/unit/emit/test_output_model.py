"""Output models of hand-made plans: valid, and the input model's results in ONNX Runtime without a library."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from korch_cli.candidates import cut
from korch_cli.candidates.canonical import Canonicalizer
from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.kernel import Candidate, CandidateKind, Kernel, KernelBody, Port
from korch_cli.core.model import Bindings, Model
from korch_cli.core.plan import Plan, Priced
from korch_cli.core.primitive import Constant
from korch_cli.core.types import Array, DType, TensorType
from korch_cli.emit import build_model
from korch_cli.fission import fission
from korch_cli.load import load

DOMAIN = "korch.test"
X = np.random.default_rng(5).uniform(-2, 2, (2, 4)).astype(np.float32)
WEIGHT = np.arange(16, dtype=np.float32).reshape(4, 4) / 8
BIAS = np.array([1.123456789, -2.5, 3, 0.25], np.float32)
LATER = helper.make_node("Relu", ["a"], ["b"])


def loaded(folder: Path, nodes: list[onnx.NodeProto], outputs: list[str], **options: int) -> Model:
    """A model with the input x [2, 4], the weights w [4, 4], bias [4] and unused [3], and float outputs."""
    graph = helper.make_graph(
        nodes,
        "the graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 4))],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [
            numpy_helper.from_array(WEIGHT, "w"),
            numpy_helper.from_array(BIAS, "bias"),
            numpy_helper.from_array(np.ones(3, np.float32), "unused"),
        ],
        doc_string="what it is",
    )
    proto = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", options.get("opset", 17))],
        ir_version=options.get("ir_version", 7),
    )
    helper.set_model_props(proto, {"author": "someone"})
    path = folder / "in.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(proto), path)
    return load(path, Bindings({}, {}))


def vendor(graph: PrimitiveGraph, *operators: int) -> Candidate:
    body = tuple(v for o in operators for v in graph.by_operator.get(o, ()))
    return Candidate(CandidateKind.VENDOR, body, (), (), f"vendor {operators}", operators)


def generated(graph: PrimitiveGraph, *operators: int) -> Candidate:
    """The candidate of everything that these operators consist of."""
    return part(graph, *sorted(v for o in operators for v in graph.by_operator[o]))


def part(graph: PrimitiveGraph, *body: int) -> Candidate:
    """The candidate of these primitives."""
    canonicalizer = Canonicalizer(graph)
    canonical = canonicalizer.order(body)
    return Candidate(
        CandidateKind.GENERATED,
        body,
        tuple(Port(v) for v in canonical.reads),
        tuple(Port(v) for v in canonical.writes),
        canonicalizer.digest(canonical),
    )


def built(model: Model, graph: PrimitiveGraph, *candidates: Candidate) -> onnx.ModelProto:
    plan = Plan(tuple(Priced(c, 1.0) for c in candidates), float(len(candidates)), 1.0)
    bodies: dict[Candidate, KernelBody] = {c: cut(graph, c) for c in candidates if c.kind is CandidateKind.GENERATED}
    kernels = {c.digest: Kernel(f"k_{c.digest[:16]}", c.digest, "row", "", 1, 1, 1) for c in bodies}
    result = build_model(model, graph, plan, bodies, kernels, DOMAIN)
    assert isinstance(result, onnx.ModelProto)
    onnx.checker.check_model(result, full_check=True)
    names = [node.name for node in result.graph.node]
    assert len(set(names)) == len(names)
    again = build_model(model, graph, plan, bodies, kernels, DOMAIN)
    assert isinstance(again, onnx.ModelProto)
    assert result.SerializeToString(deterministic=True) == again.SerializeToString(deterministic=True)
    return result


def run(proto: onnx.ModelProto) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": X}))


def assert_same_results(model: Model, result: onnx.ModelProto) -> None:
    source = onnx.load(model.path)
    assert [o.name for o in result.graph.output] == [o.name for o in source.graph.output]
    for found, wanted in zip(run(result), run(source), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def operators_of(result: onnx.ModelProto) -> list[str]:
    return [node.op_type if node.domain == "" else node.domain for node in result.graph.node]


LAYERS = [
    helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
    helper.make_node("Softmax", ["a"], ["b"], name="second", axis=-1),
    helper.make_node("MatMul", ["b", "w"], ["c"], name="third"),
    helper.make_node("Softmax", ["c"], ["d"], name="fourth", axis=-1),
]


@pytest.mark.parametrize("opset", [11, 13, 17, 18, 21])
def test_layers_share_a_function(tmp_path: Path, opset: int) -> None:
    model = loaded(tmp_path, LAYERS, ["d"], opset=opset)
    graph = fission(model)
    parts = [vendor(graph, 0), generated(graph, 1), vendor(graph, 2), generated(graph, 3)]
    result = built(model, graph, *parts)
    assert_same_results(model, result)
    assert operators_of(result) == ["MatMul", DOMAIN, "MatMul", DOMAIN]
    assert len(result.functions) == 1
    assert [t.name for t in result.graph.initializer] == ["w"]
    assert {(o.domain, o.version) for o in result.opset_import} == {("", opset), (DOMAIN, 1)}
    assert (result.ir_version, result.graph.name, result.graph.doc_string) == (8, "the graph", "what it is")
    assert {p.key: p.value for p in result.metadata_props} == {"author": "someone"}
    assert {i.name for i in result.graph.value_info} == {"b"}
    assert onnx.load(model.path).graph.node[0].name == "first"


def test_a_plan_of_vendor_kernels_alone_keeps_the_format(tmp_path: Path) -> None:
    model = loaded(tmp_path, LAYERS, ["d"])
    graph = fission(model)
    result = built(model, graph, *(vendor(graph, i) for i in range(4)))
    assert_same_results(model, result)
    assert [n.name for n in result.graph.node] == ["first", "second", "third", "fourth"]
    assert result.ir_version == 7
    assert not result.functions
    assert [o.domain for o in result.opset_import] == [""]


def test_an_old_model_keeps_its_weights_constant(tmp_path: Path) -> None:
    graph = helper.make_graph(
        LAYERS,
        "old",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 4)),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, (4, 4)),
        ],
        [helper.make_tensor_value_info("d", TensorProto.FLOAT, (2, 4))],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    path = tmp_path / "in.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=3), path)
    model = load(path, Bindings({}, {}))
    split = fission(model)
    result = built(model, split, vendor(split, 0), generated(split, 1), vendor(split, 2), generated(split, 3))
    assert_same_results(model, result)
    assert result.ir_version == 8
    assert [i.name for i in result.graph.input] == ["x"]


BRANCHES = [
    helper.make_node("Exp", ["x"], ["a"]),
    helper.make_node("Neg", ["a"], ["b"]),
    helper.make_node("Abs", ["a"], ["c"]),
]


def test_what_is_computed_twice_is_written_once_under_its_name(tmp_path: Path) -> None:
    model = loaded(tmp_path, BRANCHES, ["a", "b", "c"])
    graph = fission(model)
    result = built(model, graph, generated(graph, 0, 1), generated(graph, 0, 2))
    assert_same_results(model, result)
    written = [name for node in result.graph.node for name in node.output]
    assert len(set(written)) == len(written) == 4
    assert {"a", "b", "c"} < set(written)


def test_a_vendor_kernel_may_compute_again_what_a_kernel_wrote(tmp_path: Path) -> None:
    split = helper.make_node("Split", ["x"], ["p", "q"], axis=1)
    model = loaded(tmp_path, [split, helper.make_node("Neg", ["p"], ["r"])], ["p", "q", "r"], opset=13)
    graph = fission(model)
    first = part(graph, graph.operator_outputs[0][0], *graph.by_operator[1])
    again = vendor(graph, 0)
    result = built(model, graph, first, again, again)
    assert_same_results(model, result)
    assert operators_of(result) == [DOMAIN, "Split"]
    assert result.graph.node[1].output[0] not in ("p", "q", "r")
    assert result.graph.node[1].output[1] == "q"


def test_parts_of_an_operator_become_nodes(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gemm", ["x", "w", "bias"], ["a"], name="c0"),
        helper.make_node("MatMul", ["a", "bias"], ["b"], name="vector"),
        helper.make_node("MatMul", ["x", "bias"], ["c"], name="other"),
    ]
    model = loaded(tmp_path, nodes, ["a", "b", "c"])
    graph = fission(model)
    product, added = graph.by_operator[0]
    single = tuple(
        Candidate(CandidateKind.VENDOR, (v,), (), (), f"node:{v}") for o in (1, 2) for v in graph.by_operator[o]
    )
    first = Candidate(CandidateKind.VENDOR, (product,), (), (), "node")
    result = built(model, graph, first, part(graph, added), *single)
    assert operators_of(result) == ["MatMul", DOMAIN, *["MatMul", "Constant", "Reshape"] * 2]
    assert_same_results(model, result)


def test_several_results(tmp_path: Path) -> None:
    model = loaded(tmp_path, BRANCHES, ["c", "b"])
    graph = fission(model)
    result = built(model, graph, generated(graph, 0, 1, 2))
    assert_same_results(model, result)
    assert operators_of(result) == [DOMAIN]


def test_outputs_that_are_inputs_weights_or_copies(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Identity", ["w"], ["weights"]),
        helper.make_node("Identity", ["a"], ["copy"]),
    ]
    model = loaded(tmp_path, nodes, ["same", "weights", "copy", "a", "x"])
    graph = fission(model)
    chosen = [generated(graph, o.index) if graph.by_operator.get(o.index) else None for o in model.operators]
    result = built(model, graph, *(c for c in chosen if c is not None))
    assert_same_results(model, result)


def test_an_output_that_is_another_name_of_a_value(tmp_path: Path) -> None:
    """Rewriting may find that two outputs are one value."""
    model = loaded(tmp_path, [*BRANCHES, helper.make_node("Identity", ["c"], ["d"])], ["b", "d", "c"])
    graph = fission(model)
    c = next(v.id for v in graph.values if v.name == "c")
    merged = PrimitiveGraph(graph.values, tuple(c if graph.values[v].name == "d" else v for v in graph.outputs))
    result = built(model, merged, generated(merged, 0, 1, 2))
    assert_same_results(model, result)
    assert operators_of(result) == [DOMAIN, "Identity"]


def test_constants_that_are_not_in_the_file_become_initializers(tmp_path: Path) -> None:
    model = loaded(tmp_path, [helper.make_node("Add", ["x", "bias"], ["a"]), LATER], ["b"])
    split = fission(model)
    prepared = Value(-1, "x/prepared", TensorType(DType.F32, (4,)), Constant(BIAS))
    graph = PrimitiveGraph(
        tuple(replace(prepared, id=v.id) if v.name == "bias" else v for v in split.values),
        split.outputs,
        split.operator_outputs,
    )
    result = built(model, graph, generated(graph, 0), vendor(graph, 1))
    assert_same_results(model, result)
    assert [t.name for t in result.graph.initializer] == ["x/prepared"]


def branch(op_type: str) -> onnx.GraphProto:
    made = helper.make_tensor_value_info(f"{op_type}_out", TensorProto.FLOAT, (2, 4))
    return helper.make_graph([helper.make_node(op_type, ["a", "w"], [made.name])], op_type, [], [made])


CHOICE = [
    helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
    helper.make_node("Cast", ["s"], ["flag"], to=TensorProto.BOOL),
    helper.make_node("If", ["flag"], ["b"], then_branch=branch("MatMul"), else_branch=branch("Gemm")),
]


def test_tensors_between_kernels_avoid_the_names_of_subgraphs(tmp_path: Path) -> None:
    """A primitive's own name may be one that a branch uses for something else."""
    nodes = [helper.make_node("Softmax", ["x"], ["a"], axis=-1), *CHOICE]
    model = loaded(tmp_path, nodes, ["b"])
    split = fission(model)
    inner = split.by_operator[0][-2]
    values = tuple(replace(v, name="MatMul_out") if v.id == inner else v for v in split.values)
    graph = PrimitiveGraph(values, split.outputs, split.operator_outputs)
    first, second = part(graph, *split.by_operator[0][:-1]), part(graph, split.by_operator[0][-1])
    result = built(model, graph, first, second, vendor(graph, 1, 2, 3))
    assert_same_results(model, result)
    assert "MatMul_out" not in {name for node in result.graph.node for name in node.output}


def test_weights_that_only_a_subgraph_reads_stay(tmp_path: Path) -> None:
    model = loaded(tmp_path, [helper.make_node("Neg", ["x"], ["a"]), *CHOICE], ["b"])
    graph = fission(model)
    result = built(model, graph, generated(graph, 0), vendor(graph, 1, 2), vendor(graph, 3))
    assert_same_results(model, result)
    assert [t.name for t in result.graph.initializer] == ["w"]
