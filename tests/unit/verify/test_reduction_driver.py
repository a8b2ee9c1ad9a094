"""The smallest failing part of models with planted faults; the check is a predicate over the model."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from korch_cli.core.errors import BudgetError, UsageError
from korch_cli.core.model import Bindings
from korch_cli.core.progress import Silent
from korch_cli.emit import save_model
from korch_cli.load import read_whole
from korch_cli.verify.reduction import Clock, Ending, Failure, OutOfTimeError, Reducer, Specimen, observe
from korch_cli.verify.reduction.trial import TIMED_OUT, run_check

Predicate = Callable[[onnx.ModelProto], bool]
_LENGTH = 60


def network(**weights: float) -> onnx.ModelProto:
    """A long chain with side branches: every tenth node adds a branch of two nodes; `weights` changes some elements."""
    nodes, tensors = [], []
    last = "x"
    for i in range(_LENGTH):
        if i % 10 == 5:
            nodes.append(helper.make_node("Sigmoid", [last], [f"s{i}"]))
            nodes.append(helper.make_node("Mul", [last, f"s{i}"], [f"t{i}"]))
        elif i % 3 == 0:
            values = np.full(16, weights.get(f"w{i}", 0.5), np.float32)
            tensors.append(numpy_helper.from_array(values, f"w{i}"))
            nodes.append(helper.make_node("Add", [last, f"w{i}"], [f"t{i}"]))
        else:
            nodes.append(helper.make_node({1: "Relu", 2: "Tanh"}[i % 3], [last], [f"t{i}"]))
        last = f"t{i}"
    info = helper.make_tensor_value_info
    inputs = [info("x", TensorProto.FLOAT, ["n", 16]), info("unread", TensorProto.FLOAT, [1])]
    graph = helper.make_graph(nodes, "g", inputs, [info(last, TensorProto.FLOAT, ["n", 16])], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def reduced(proto: onnx.ModelProto, folder: Path, fails: Predicate, *, strict: bool = True) -> Reducer:
    """Reduce a model."""
    reducer = prepared(proto, folder, fails, strict=strict)
    reducer.run()
    assert not list((folder / "scratch").iterdir())
    return reducer


def prepared(proto: onnx.ModelProto, folder: Path, fails: Predicate, *, strict: bool = True) -> Reducer:
    """Return a reducer that has done nothing yet."""
    path = folder / "whole.onnx"
    onnx.save_model(proto, path)
    whole = read_whole(path, Bindings({}, {}))
    (folder / "scratch").mkdir()

    def check(model: Path) -> Ending:
        return Ending(3, "it fails") if fails(onnx.load_model(str(model))) else Ending(0, "")

    return Reducer(
        specimen=Specimen(whole.proto, whole.types, whole.static, whole.constants, 0),
        check=check,
        failure=Failure(3),
        folder=folder / "scratch",
        name="part.onnx",
        save=lambda part, target: save_model(part, folder, target),
        strict=strict,
        progress=Silent(),
    )


def part(reducer: Reducer) -> onnx.ModelProto:
    assert reducer.best is not None
    built = reducer.specimen.build(reducer.best)
    assert built is not None
    onnx.checker.check_model(built, full_check=True)
    return built


def types(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node]


@pytest.mark.parametrize("place", [0, 1, 5, 31, 58, 59])
def test_a_fault_in_one_operator_leaves_that_operator(place: int, tmp_path: Path) -> None:
    name = f"t{place}"
    reducer = reduced(network(), tmp_path, lambda m: any(name in node.output for node in m.graph.node))
    found = part(reducer)
    assert [list(node.output) for node in found.graph.node] == [[name]]
    assert [o.name for o in found.graph.output] == [name]
    assert "unread" not in [i.name for i in found.graph.input]
    assert reducer.trials < 40


def test_a_pair_of_operators_far_apart_is_what_is_left(tmp_path: Path) -> None:
    def fails(model: onnx.ModelProto) -> bool:
        return {"t3", "t50"} <= {name for node in model.graph.node for name in node.output}

    found = part(reduced(network(), tmp_path, fails))
    assert [list(node.output) for node in found.graph.node] == [["t3"], ["t50"]]


def test_a_fault_that_follows_from_an_edge_keeps_the_edge(tmp_path: Path) -> None:
    """A Mul of something and its Sigmoid: three nodes in a row would match, two do."""

    def fails(model: onnx.ModelProto) -> bool:
        sigmoids = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "Sigmoid"}
        return any(n.op_type == "Mul" and sigmoids.get(n.input[1]) == n.input[0] for n in model.graph.node)

    found = part(reduced(network(), tmp_path, fails))
    assert types(found) == ["Sigmoid", "Mul"]
    assert len(found.graph.input) == 1
    # The Sigmoid's result is read outside the part nowhere, and the Mul's is: one output is enough.
    assert len(found.graph.output) == 1


def test_a_fault_in_a_weight_keeps_that_weight_and_makes_up_the_others(tmp_path: Path) -> None:
    """Fails for two operators, each with a weight, of which one has to be huge."""

    def fails(model: onnx.ModelProto) -> bool:
        values = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        return "w42" in values and "w9" in values and bool((values["w42"] > 1e6).all())

    found = part(reduced(network(w42=1e9), tmp_path, fails))
    values = {t.name: numpy_helper.to_array(t) for t in found.graph.initializer}
    assert values.keys() == {"w9", "w42"}
    assert (values["w42"] == np.float32(1e9)).all()
    assert not values["w9"].any()
    assert types(found) == ["Add", "Add"]


def test_weights_are_as_simple_as_the_fault_allows(tmp_path: Path) -> None:
    def fails(model: onnx.ModelProto) -> bool:
        values = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        varied = "w0" in values and len(np.unique(values["w0"])) > 1
        return varied and "w3" in values and bool(values["w3"].all()) and values.get("w6") is not None

    proto = network()
    first = next(t for t in proto.graph.initializer if t.name == "w0")
    first.CopyFrom(numpy_helper.from_array(np.arange(16, dtype=np.float32), "w0"))
    values = {t.name: numpy_helper.to_array(t) for t in part(reduced(proto, tmp_path, fails)).graph.initializer}
    assert values.keys() == {"w0", "w3", "w6"}
    assert (values["w3"] == 1).all()
    assert not values["w6"].any()
    assert not np.array_equal(values["w0"], np.arange(16))


def test_a_fault_in_the_values_keeps_the_nodes_that_make_them(tmp_path: Path) -> None:
    """A NaN that is made halfway: the check runs the model, and inputs hold no NaN."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) {
        a = Relu(x) b = Neg(a) one = Constant<value: tensor = float {1}>() c = Sub(b, one)
        d = Sqrt(c) e = Tanh(d) f = Relu(e) y = Exp(f) }"""

    def fails(model: onnx.ModelProto) -> bool:
        feeds = {i.name: np.full(4, 0.25, np.float32) for i in model.graph.input}
        with np.errstate(invalid="ignore"):
            return any(np.isnan(found).any() for found in ReferenceEvaluator(model).run(None, feeds))

    found = part(reduced(onnx.parser.parse_model(text), tmp_path, fails))
    assert types(found) == ["Sub", "Sqrt"]


def test_indices_that_would_be_out_of_range_become_zeros(tmp_path: Path) -> None:
    """The check feeds integers that are too large for the table, and calls that another failure."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] x, float[3, 2] table) => (float[n, 2] y) {
        best = ArgMax<axis = 1, keepdims = 0>(x) limit = Constant<value: tensor = int64 {2}>()
        i = Min(best, limit) rows = Gather(table, i) y = Relu(rows) }"""

    def fails(model: onnx.ModelProto) -> bool:
        types_ = {i.name: i.type.tensor_type.elem_type for i in model.graph.input}
        if "rows" not in {name for node in model.graph.node for name in node.output}:
            return False
        return TensorProto.INT64 not in types_.values()

    proto = onnx.parser.parse_model(text.replace("n, ", "5, "))
    found = part(reduced(proto, tmp_path, fails))
    assert types(found) == ["Gather"]
    (indices,) = found.graph.initializer
    assert numpy_helper.to_array(indices).tolist() == [0] * 5


def test_an_input_that_nothing_reads_stays_if_it_is_the_fault(tmp_path: Path) -> None:
    found = part(reduced(network(), tmp_path, lambda m: "unread" in [i.name for i in m.graph.input]))
    assert "unread" in [i.name for i in found.graph.input]
    assert len(found.graph.node) == 1


def test_two_outputs_stay_if_both_matter(tmp_path: Path) -> None:
    def fails(model: onnx.ModelProto) -> bool:
        return {"t7", "t20"} <= {output.name for output in model.graph.output}

    proto = network()
    proto.graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 16]) for name in ("t30", "t7", "t20")
    )
    found = part(reduced(proto, tmp_path, fails))
    assert {o.name for o in found.graph.output} == {"t7", "t20"}
    assert len(found.graph.node) == 2


def test_a_subgraph_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x, bool flag) => (float[4] y) {
        a = Relu(x) b = Neg(a)
        c = If(flag) < then_branch = yes () => (float[4] t) { t = Add(b, a) },
                       else_branch = no () => (float[4] e) { e = Exp(b) } >
        y = Tanh(c) }"""

    def fails(model: onnx.ModelProto) -> bool:
        return "If" in types(model)

    found = part(reduced(onnx.parser.parse_model(text), tmp_path, fails))
    assert types(found) == ["If"]
    assert {i.name for i in found.graph.input} == {"flag", "a", "b"}
    (then, other) = (attribute.g for attribute in found.graph.node[0].attribute)
    assert [n.op_type for n in (*then.node, *other.node)] == ["Add", "Exp"]


def test_what_does_not_fail_when_it_is_written_again_is_not_reduced(tmp_path: Path) -> None:
    reducer = reduced(network(), tmp_path, lambda m: False)
    assert reducer.best is None
    assert reducer.trials == 1


def test_no_invalid_part_reaches_the_check(tmp_path: Path) -> None:
    def fails(model: onnx.ModelProto) -> bool:
        onnx.checker.check_model(model)
        return "Tanh" in types(model)

    assert types(part(reduced(network(), tmp_path, fails))) == ["Tanh"]


def test_a_model_that_onnx_refuses_is_reduced_without_it(tmp_path: Path) -> None:
    """An attribute that the operator does not have: onnx refuses the model, and the fault may be just that."""
    proto = network()
    broken = next(node for node in proto.graph.node if node.op_type == "Tanh")
    broken.attribute.append(helper.make_attribute("alpha", 1.0))

    def fails(model: onnx.ModelProto) -> bool:
        return any(node.attribute for node in model.graph.node)

    assert reduced(proto, tmp_path, fails, strict=True).best is None
    (tmp_path / "scratch").rmdir()
    reducer = reduced(proto, tmp_path, fails, strict=False)
    assert reducer.best is not None
    assert len(reducer.best.nodes) == 1


def test_the_best_so_far_is_there_when_the_time_is_up(tmp_path: Path) -> None:
    trials = 0

    def fails(model: onnx.ModelProto) -> bool:
        nonlocal trials
        trials += 1
        if trials > 5:
            raise OutOfTimeError
        return True

    reducer = prepared(network(), tmp_path, fails)
    with pytest.raises(OutOfTimeError):
        reducer.run()
    assert 0 < len(part(reducer).graph.node) < _LENGTH / 4


def test_commands_get_the_model_and_are_cut_short(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    assert run_check(("echo", "model={}", "again={}"), model, 10).output == f"model={model} again={model}\n"
    assert run_check(("echo", "checking"), model, 10).message == f"checking {model}"
    assert run_check(("sh", "-c", "exit 9", "{}"), model, 10).status == 9
    assert run_check(("sh", "-c", "kill -SEGV $$", "{}"), model, 10).status == 128 + 11
    begin = time.monotonic()
    ending = run_check(("sh", "-c", "echo started; sleep 60 & wait", "{}"), model, 3)
    assert (ending.status, ending.output) == (TIMED_OUT, "started\n")
    assert time.monotonic() - begin < 20
    with pytest.raises(UsageError, match="cannot be run"):
        run_check((str(tmp_path / "nothing"),), model, 1)


def test_what_a_check_says_is_its_last_line_that_explains_no_other() -> None:
    assert Ending(70, "[1 s] Loading\nerror: a bug: KeyError\n  details: x\n\n").message == "error: a bug: KeyError"
    assert Ending(1, "Traceback:\n  File x\nValueError: no\n").message == "ValueError: no"
    assert Ending(1, "  \n").message == Ending(1, "").message == ""


def test_what_a_check_leaves_behind_is_removed(tmp_path: Path) -> None:
    ending = run_check(("sh", "-c", "touch $TMPDIR/left; echo $TMPDIR"), tmp_path / "m.onnx", 10)
    assert ending.message
    assert not Path(ending.message).exists()


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_whatever_nodes_a_failure_needs_are_what_is_left(data: st.DataObject) -> None:
    """Random graphs with several consumers and outputs; the failure needs certain nodes, and no others."""
    names, nodes = ["x", "w"], []
    for i in range(data.draw(st.integers(1, 14))):
        op_type, arity = data.draw(st.sampled_from([("Add", 2), ("Relu", 1), ("Sum", 3)]))
        read = [data.draw(st.sampled_from(names)) for _ in range(arity)]
        nodes.append(helper.make_node(op_type, read, [f"t{i}"]))
        names.append(f"t{i}")
    info = helper.make_tensor_value_info
    shown = data.draw(st.lists(st.sampled_from(names[2:]), min_size=1, unique=True))
    outputs = [info(name, TensorProto.FLOAT, ["n"]) for name in shown]
    weight = numpy_helper.from_array(np.ones(1, np.float32), "w")
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, ["n"])], outputs, [weight])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    needed = set(data.draw(st.lists(st.sampled_from(names[2:]), min_size=1, max_size=3, unique=True)))

    def fails(model: onnx.ModelProto) -> bool:
        return needed <= {name for node in model.graph.node for name in node.output}

    with tempfile.TemporaryDirectory() as folder:
        found = part(reduced(proto, Path(folder), fails))
    left = {name for node in found.graph.node for name in node.output}
    # A node that nothing reads can be in a model only together with one that makes an output.
    made_for_output = [name for name in left - needed if name in {o.name for o in found.graph.output}]
    assert needed <= left
    assert left - needed == set(made_for_output)
    assert len(made_for_output) <= 1


def test_the_budget_covers_the_check_of_the_whole_model(tmp_path: Path) -> None:
    clock = Clock(time.monotonic() + 0.3, timeout_s=60)
    with pytest.raises(BudgetError):
        observe(("sh", "-c", "sleep 30"), tmp_path / "m.onnx", clock)
    with pytest.raises(BudgetError):
        observe(("true",), tmp_path / "m.onnx", Clock(time.monotonic() - 1, timeout_s=60))


def test_a_text_in_the_output_tells_failures_of_one_status_apart() -> None:
    failure = Failure(70, "ZeroDivisionError")
    assert failure.matches(Ending(70, "a bug: ZeroDivisionError: x\n"))
    assert not failure.matches(Ending(70, "a bug: KeyError: x\n"))
    assert not failure.matches(Ending(1, "ZeroDivisionError"))
