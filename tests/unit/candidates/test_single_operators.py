from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from korch_cli.candidates import single_nodes, single_operators
from korch_cli.core.errors import KorchError
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.model import Model, Operator
from korch_cli.core.primitive import Constant
from korch_cli.core.text import parse_graph


def operator(index: int, inputs: tuple[str, ...], outputs: tuple[str, ...], captures: tuple[str, ...] = ()) -> Operator:
    return Operator(index, f"node{index}", "Any", "", 17, inputs, outputs, captures, {})


def model(*operators: Operator) -> Model:
    constants = {"w": Constant(np.ones(8, np.float32)), "folded": Constant(np.ones(8, np.float32))}
    return Model(Path("m.onnx"), ("x",), ("y",), operators, {}, constants, {"": 17}, 9, None)


def graph(*lines: str) -> PrimitiveGraph:
    return parse_graph("\n".join(lines))


def test_an_operator_reads_what_is_not_constant_and_writes_what_is_computed() -> None:
    operators = (
        operator(0, ("x", "w", ""), ("a",)),
        operator(1, ("a", "a", "x"), ("b", "", "unread"), captures=("x",)),
    )
    of = graph(
        '%0 "x" f32[8] = input',
        '%1 "w" f32[8] = const',
        '%2 "a" f32[8] = elementwise mul (%0, %1) @0',
        '%3 "t" f32[8] = elementwise neg (%2) @1',
        '%4 "b" f32[8] = elementwise add (%3, %0) @1',
        "outputs (%4)",
        "operator 0 = (%2)",
        "operator 1 = (%4, -, -)",
    )
    vendor = CandidateKind.VENDOR
    assert single_operators(model(*operators), of) == (
        Candidate(vendor, (2,), (Port(0),), (Port(2),), "vendor:0", (0,)),
        Candidate(vendor, (3, 4), (Port(2), Port(0)), (Port(4),), "vendor:1", (1,)),
    )


def test_an_operator_with_nothing_to_compute_is_left_out() -> None:
    operators = (
        operator(0, ("w",), ("folded",)),
        operator(1, ("x",), ("same",)),
        operator(2, ("x",), ("unread",)),
        operator(3, ("same", "folded", "constant"), ("y",)),
    )
    of = graph(
        '%0 "x" f32[8] = input',
        '%1 "constant" f32[8] = const',
        '%2 "y" f32[8] = elementwise add (%0, %1) @3',
        "outputs (%2)",
        "operator 0 = (-)",
        "operator 1 = (%0)",
        "operator 2 = (-)",
        "operator 3 = (%2)",
    )
    (only,) = single_operators(model(*operators), of)
    assert only == Candidate(CandidateKind.VENDOR, (2,), (Port(0),), (Port(2),), "vendor:3", (3,))


def test_an_operator_may_write_a_value_that_another_one_computed() -> None:
    operators = (operator(0, ("x",), ("a",)), operator(1, ("x",), ("b",)))
    of = graph(
        '%0 "x" f32[8] = input',
        '%1 "a" f32[8] = elementwise neg (%0) @0',
        "outputs (%1, %1)",
        "operator 0 = (%1)",
        "operator 1 = (%1)",
    )
    first, second = single_operators(model(*operators), of)
    assert (first.body, second.body) == ((1,), ())
    assert first.writes == second.writes == (Port(1),)


def test_an_unknown_tensor_is_a_bug_that_is_named() -> None:
    of = graph('%0 "x" f32[8] = input', '%1 "y" f32[8] = elementwise neg (%0) @0', "outputs (%1)", "operator 0 = (%1)")
    with pytest.raises(KorchError, match="operator node0 reads ghost") as raised:
        single_operators(model(operator(0, ("ghost",), ("y",))), of)
    assert raised.value.where == "ghost"


def test_products_and_reshapes_inside_of_an_operator_are_nodes() -> None:
    of = graph(
        '%0 "x" f32[2,4] = input',
        '%1 "w" f32[4,4] = const',
        '%2 "m" f32[2,4] = linear matmul attributes={} (%0, %1) @0',
        '%3 "y" f32[8] = reshape (%2) @0',
        '%4 "alone" f32[2,4] = linear matmul attributes={} (%2, %1) @1',
        '%5 "wide" bf16[2,4] = elementwise cast (%4) @2',
        '%6 "v" bf16[4,4] = const',
        '%7 "z" bf16[2,4] = linear matmul attributes={} (%5, %6) @2',
        "outputs (%3, %7)",
        "operator 0 = (%3)",
        "operator 1 = (%4)",
        "operator 2 = (%7)",
    )
    assert single_nodes(of) == (
        Candidate(CandidateKind.VENDOR, (2,), (Port(0),), (Port(2),), "node:2"),
        Candidate(CandidateKind.VENDOR, (3,), (Port(2),), (Port(3),), "node:3"),
    )
