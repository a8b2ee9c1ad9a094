"""What ONNX Runtime makes of a model, mapped back to the model's operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper

from korch_cli.candidates import vendor_candidates
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.machine import VendorNode, VendorProfile
from korch_cli.core.model import Bindings, Model
from korch_cli.core.plan import Priced
from korch_cli.emit import save_model
from korch_cli.fission import fission
from korch_cli.load import load, vendor_profile
from korch_cli.measure import profile_model
from korch_cli.pipeline.prices import measured_profile
from korch_cli.solve import check_plan, solve

NCHWC = "com.microsoft.nchwc"


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """x → conv → bn → relu → conv → add(relu) → relu → pool, and a softmax of something else."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> TensorProto:
        return helper.make_tensor(name, TensorProto.FLOAT, shape, rng.standard_normal(shape).astype(np.float32).ravel())

    ones = [helper.make_tensor(f"bn{i}", TensorProto.FLOAT, [16], np.full(16, 0.5 + i)) for i in range(4)]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], name="conv0", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c0", "bn0", "bn1", "bn2", "bn3"], ["b0"], name="norm0"),
        helper.make_node("Relu", ["b0"], ["r0"], name="relu0"),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c1", "r0"], ["s1"], name="add1"),
        helper.make_node("Relu", ["s1"], ["r1"], name="relu1"),
        helper.make_node("GlobalAveragePool", ["r1"], ["p"], name="pool"),
        helper.make_node("Softmax", ["p"], ["y"], name="softmax", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 16, 1, 1])],
        [weight("w0", 16, 3, 3, 3), weight("w1", 16, 16, 3, 3), *ones],
    )
    path = tmp_path / "model.onnx"
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path, path)
    return load(path, Bindings({}, {}))


def profiles(model: Model, folder: Path) -> tuple[VendorProfile, VendorProfile]:
    prepared = folder / "prepared.onnx"
    save_model(model.proto, folder, prepared)
    feeds = {"x": np.ones((1, 3, 32, 32), np.float32)}
    found = []
    for optimize in (True, False):
        times = profile_model(prepared, feeds, threads=1, optimize=optimize, folder=folder, seconds=0.05)
        found.append(vendor_profile(times.optimized, times.times_us, times.total_us))
    return found[0], found[1]


def names(model: Model, candidate: Candidate) -> list[str]:
    return [model.operators[o].name for o in candidate.operators]


def ports(graph: PrimitiveGraph, found: tuple[Port, ...]) -> list[str]:
    return [f"{graph.values[p.value].name}:{p.arrangement}" for p in found]


def test_a_real_profile_is_mapped_completely(model: Model, tmp_path: Path) -> None:
    graph = fission(model)
    optimised, plain = profiles(model, tmp_path)
    priced = vendor_candidates(model, graph, optimised, plain)
    plan = solve(graph, priced, time_limit_s=10)
    check_plan(graph, plan)
    # The plan is what ONNX Runtime runs, so it costs what ONNX Runtime takes, or less where a single operator is cheap.
    assert plan.cost_us <= optimised.total_us * 1.001
    covered = sorted(o for p in plan.kernels for o in p.candidate.operators)
    assert covered == list(range(len(model.operators)))
    groups = [names(model, p.candidate) for p in priced if len(p.candidate.operators) > 1]
    assert ["conv0", "norm0", "relu0"] in groups
    assert ["conv1", "add1", "relu1"] in groups


def node(name: str, op: str, inputs: list[str], outputs: list[str], time: float, domain: str = "") -> VendorNode:
    return VendorNode(name, op, domain, tuple(inputs), tuple(outputs), time)


BLOCKED = VendorProfile(
    (
        node("r0_nchwc", "Conv", ["x", "t0"], ["u0"], 50.0, NCHWC),
        node("c1_nchwc", "Conv", ["u0", "t1", "t2", "u0"], ["u1"], 80.0, NCHWC),
        node("p_nchwc", "GlobalAveragePool", ["u1"], ["u2"], 5.0, NCHWC),
        node("ReorderOutput_token_3", "ReorderOutput", ["u2"], ["p"], 3.0, NCHWC),
        node("softmax", "Softmax", ["p"], ["y"], 2.0),
    ),
    140.0,
)
PLAIN = VendorProfile(
    (
        node("conv0", "Conv", ["x", "w0"], ["c0"], 200.0),
        node("norm0", "BatchNormalization", ["c0"], ["b0"], 20.0),
        node("relu0", "Relu", ["b0"], ["r0"], 10.0),
        node("conv1", "Conv", ["r0", "w1"], ["c1"], 300.0),
        node("add1", "Add", ["c1", "r0"], ["s1"], 12.0),
        node("relu1", "Relu", ["s1"], ["r1"], 10.0),
        node("pool", "GlobalAveragePool", ["r1"], ["p"], 6.0),
        node("softmax", "Softmax", ["p"], ["y"], 2.5),
    ),
    560.0,
)


def by_operators(model: Model, priced: tuple[Priced, ...]) -> dict[tuple[str, ...], Priced]:
    return {tuple(names(model, p.candidate)): p for p in priced if p.candidate.kind is CandidateKind.VENDOR}


def test_names_and_tensors_tell_what_a_blocked_convolution_covers(model: Model) -> None:
    graph = fission(model)
    found = by_operators(model, vendor_candidates(model, graph, BLOCKED, PLAIN))
    first = found["conv0", "norm0", "relu0"]
    assert first.cost_us == 50.0
    assert ports(graph, first.candidate.reads) == ["x:plain"]
    assert ports(graph, first.candidate.writes) == ["r0:blocked"]
    second = found["conv1", "add1", "relu1"]
    assert second.cost_us == 80.0
    assert ports(graph, second.candidate.reads) == ["r0:blocked"]
    assert ports(graph, second.candidate.writes) == ["r1:blocked"]
    pool = found["pool",]
    assert pool.cost_us == 5.0
    assert ports(graph, pool.candidate.reads) == ["r1:blocked"]


def test_single_operators_have_prices_of_their_own_and_products_those_of_their_group(model: Model) -> None:
    graph = fission(model)
    found = by_operators(model, vendor_candidates(model, graph, BLOCKED, PLAIN))
    assert found["relu0",].cost_us == 10.0
    assert ports(graph, found["relu0",].candidate.writes) == ["r0:plain"]
    assert found["conv1",].cost_us == 80.0
    assert ports(graph, found["conv1",].candidate.reads) == ["r0:blocked"]
    assert ports(graph, found["conv1",].candidate.writes) == ["c1:blocked"]
    assert found["softmax",].cost_us == 2.0


def conversions(model: Model, profile: VendorProfile) -> dict[tuple[str, str], float]:
    graph = fission(model)
    return {
        (ports(graph, p.candidate.reads)[0], ports(graph, p.candidate.writes)[0]): p.cost_us
        for p in vendor_candidates(model, graph, profile, PLAIN)
        if p.candidate.kind is CandidateKind.REORDER
    }


def test_conversions_have_the_price_that_was_seen_or_one_by_size(model: Model) -> None:
    found = conversions(model, BLOCKED)
    assert found["p:blocked", "p:plain"] == 3.0
    # The one that was seen is of 64 bytes, and says nothing of this one: a thousandth of a millisecond for 22 KB.
    size_bytes = 16 * 32 * 32 * 4
    assert found["r0:plain", "r0:blocked"] == pytest.approx(2.0 + 45e-6 * size_bytes)
    assert ("x:plain", "x:blocked") not in found


def test_a_large_conversion_tells_what_others_take(model: Model) -> None:
    reorder = node("ReorderOutput_token_4", "ReorderOutput", ["u1"], ["r1"], 34.0)
    profile = VendorProfile((*BLOCKED.nodes[:2], reorder, *BLOCKED.nodes[2:]), 174.0)
    found = conversions(model, profile)
    assert found["r1:blocked", "r1:plain"] == 34.0
    assert found["r0:blocked", "r0:plain"] == pytest.approx(34.0)
    assert found["c1:blocked", "c1:plain"] == pytest.approx(34.0)
    assert found["p:plain", "p:blocked"] == pytest.approx(2.0 + 32.0 / 1024)
    # What is converted is known by name, so that the node before it covers all that leads there.
    groups = by_operators(model, vendor_candidates(model, fission(model), profile, PLAIN))
    assert groups["conv1", "add1", "relu1"].cost_us == 80.0


def test_what_cannot_be_mapped_is_left_out_and_the_rest_is_not(model: Model) -> None:
    graph = fission(model)
    strange = VendorProfile((node("odd", "Mystery", ["elsewhere"], ["r1"], 9.0), *BLOCKED.nodes[4:]), 11.0)
    found = by_operators(model, vendor_candidates(model, graph, strange, PLAIN))
    assert found["softmax",].cost_us == 2.0
    assert all(len(operators) == 1 for operators in found)
    assert len(found) == len(model.operators)


def test_nodes_joined_by_a_tensor_of_their_own_are_one_group(model: Model) -> None:
    graph = fission(model)
    joined = VendorProfile(
        (
            node("a", "Reshape", ["p"], ["inner"], 1.0),
            node("b", "Softmax", ["inner"], ["y"], 2.0),
        ),
        3.0,
    )
    found = by_operators(model, vendor_candidates(model, graph, joined, PLAIN))
    assert found["softmax",].cost_us == 3.0


@pytest.mark.parametrize("optimize", [False, True])
def test_an_operator_that_onnxruntime_replaces_by_others_costs_what_they_do(tmp_path: Path, optimize: bool) -> None:
    """Mish has no kernel: ONNX Runtime runs Softplus, Tanh and Mul, which have no names."""
    text = "(float[1, 16, 64, 64] x) => (float[1, 16, 64, 64] y) { a = Abs(x) b = Mish(a) y = Neg(b) }"
    path = tmp_path / "mish.onnx"
    save_model(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> g {text}'), tmp_path, path)
    model = load(path, Bindings({}, {}))
    prepared = tmp_path / "prepared.onnx"
    save_model(model.proto, tmp_path, prepared)
    feeds = {"x": np.ones((1, 16, 64, 64), np.float32)}
    profile = measured_profile(prepared, feeds, threads=1, folder=tmp_path, optimize=optimize)
    priced = vendor_candidates(model, fission(model), profile, profile)
    price = {model.operators[p.candidate.operators[0]].op_type: p.cost_us for p in priced}
    assert price["Mish"] > 2 * price["Neg"] > 0
