from __future__ import annotations

import math
from dataclasses import replace

import pytest

from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.plan import Plan, Priced
from korch_cli.core.text import parse_graph
from korch_cli.solve import check_plan

GRAPH = parse_graph(
    "\n".join(
        [
            '%0 "x" f32[8] = input',
            '%1 "w" f32[8] = const',
            '%2 "a" f32[8] = elementwise mul (%0, %1) @0',
            '%3 "b" f32[8] = opaque operator=1 output=0 (%2) @1',
            '%4 "c" f32[8] = elementwise add (%3, %2) @2',
            "outputs (%4, %0)",
        ]
    )
)


def generated(body: tuple[int, ...], reads: tuple[Port, ...], writes: tuple[Port, ...]) -> Candidate:
    return Candidate(CandidateKind.GENERATED, body, reads, writes, "")


def vendor(body: tuple[int, ...], reads: tuple[Port, ...], writes: tuple[Port, ...]) -> Candidate:
    return Candidate(CandidateKind.VENDOR, body, reads, writes, "", (0,))


def reorder(reads: tuple[Port, ...], writes: tuple[Port, ...], body: tuple[int, ...] = ()) -> Candidate:
    return Candidate(CandidateKind.REORDER, body, reads, writes, "")


def plan(*candidates: Candidate, cost_us: float = 1.0, bound_us: float = 0.0, sum_us: float | None = None) -> Plan:
    kernels = tuple(Priced(c, cost_us) for c in candidates)
    return Plan(kernels, cost_us * len(kernels) if sum_us is None else sum_us, bound_us)


P0, P2, P3, P4, B2 = Port(0), Port(2), Port(3), Port(4), Port(2, "blocked")
A = generated((2,), (P0,), (P2,))
B = vendor((3,), (P2,), (P3,))
C = generated((4,), (P2, P3), (P4,))


def test_a_right_plan_passes() -> None:
    check_plan(GRAPH, plan(A, B, C, bound_us=3.0))
    # A conversion, and a vendor kernel that takes what it makes.
    check_plan(GRAPH, plan(A, reorder((P2,), (B2,)), vendor((3,), (B2,), (P3,)), C))


def test_a_product_inside_of_an_operator_may_run_by_itself() -> None:
    lines = (
        '%0 "x" f32[2,4] = input',
        '%1 "w" f32[4,4] = input',
        '%2 "m" f32[2,4] = linear matmul attributes={} (%0, %1) @0',
    )
    graph = parse_graph("\n".join([*lines, "outputs (%2)"]))
    node = Candidate(CandidateKind.VENDOR, (2,), (P0, Port(1)), (P2,), "node:2")
    check_plan(graph, plan(node))
    with pytest.raises(ValueError, match="computes %2 from %1, which it neither computes nor reads"):
        check_plan(graph, plan(replace(node, reads=(P0,))))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (plan(B, A, C), r"kernel 0 \(vendor \[3\]\) reads value %2 \(plain\), which is not in memory yet"),
        (plan(A, vendor((3,), (B2,), (P3,)), C), r"reads value %2 \(blocked\), which is not in memory yet"),
        (plan(A, B), r"the output %4 \(c\) is never in memory"),
        (plan(A, B, vendor((4,), (P2, P3), (Port(4, "blocked"),))), "the output %4"),
        (plan(A, B, generated((4,), (P3,), (P4,))), "computes %4 from %2, which it neither computes nor reads"),
        (plan(A, generated((3, 4), (P2,), (P4,))), "has the opaque value %3 in its body"),
        (plan(generated((2,), (P0,), (P2, P3)), C), "writes %3, which it does not compute"),
        (plan(A, B, generated((4, 2), (P0, P3), (P4,))), "a body that is not ascending"),
        (plan(generated((0, 2), (), (P2,)), B, C), "has a source in its body"),
        (plan(vendor((2,), (P0,), (P2, P0)), B, C), "writes a source"),
        (plan(A, B, C, generated((2,), (P0,), ())), "writes nothing"),
        (plan(generated((2,), (P0,), (B2,)), B, C), "an arrangement that generated code does not know"),
        (plan(A, reorder((P2,), (Port(3, "blocked"),)), B, C), "converts one value into another"),
        (plan(A, reorder((P2,), (B2,), (2,)), B, C), "is not a conversion of one value"),
        (plan(A, reorder((P2, P0), (B2,)), B, C), "is not a conversion of one value"),
        (plan(A, Candidate(CandidateKind.VENDOR, (3,), (P2,), (P3,), ""), C), "names no operator"),
        (plan(A, B, C, cost_us=-1.0), "costs -1.0 µs"),
        (plan(A, B, C, cost_us=math.inf), "costs inf µs"),
        (plan(A, B, C, sum_us=4.0), "the kernels cost 3.0 µs together, not 4.0 µs"),
        (plan(A, B, C, bound_us=3.5), "the bound of 3.5 µs is above the cost"),
    ],
)
def test_what_is_wrong_is_said(wrong: Plan, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_plan(GRAPH, wrong)
