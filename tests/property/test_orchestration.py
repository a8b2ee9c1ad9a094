"""Enumeration, canonical form and solver against brute force on small random graphs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from korch_cli.candidates import SearchLimits, cut, enumerate_candidates
from korch_cli.core.check import check
from korch_cli.core.errors import KorchError
from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.plan import Plan, Priced
from korch_cli.core.primitive import Constant, Elementwise, Input, Linear, Op, Opaque, Reduce, Reshape, Transpose
from korch_cli.core.text import parse_graph, print_graph
from korch_cli.core.types import Array, DType, TensorType
from korch_cli.solve import check_plan, greedy, solve

WIDE = (2, 3)
UNLIMITED = SearchLimits(max_primitives=99, max_reduces=99, max_outputs=99, per_seed=10**6, sibling_reach=99)


def constant(draw: st.DrawFn) -> Constant:
    if draw(st.booleans()):
        return Constant(np.array(draw(st.sampled_from([0.5, 2.0, -1.0])), np.float32))
    return Constant(np.linspace(0.1, 1.3, 3, dtype=np.float32))


@st.composite
def graphs(draw: st.DrawFn, most: int = 8, *, opaque: bool = True) -> PrimitiveGraph:
    """Graphs of small float32 values, most of shape [2,3]."""
    values: list[Value] = []

    def add(op: Op, args: tuple[int, ...], shape: tuple[int, ...]) -> int:
        source = isinstance(op, Input | Constant)
        operator = -1 if source else len(values)
        op = Opaque(operator, 0) if isinstance(op, Opaque) else op
        values.append(Value(len(values), f"t{len(values)}", TensorType(DType.F32, shape), op, args, operator))
        return len(values) - 1

    for _ in range(draw(st.integers(1, 2))):
        add(Input(), (), WIDE)
    for _ in range(draw(st.integers(2, most))):
        computed = [v.id for v in values if not isinstance(v.op, Constant)]
        arg = draw(st.sampled_from(computed[-4:]))
        shape = values[arg].type.shape
        kind = draw(st.sampled_from(["unary", "binary", "binary", "constant", "reduce", "layout", "opaque"]))
        if kind == "binary":
            other = draw(st.sampled_from([v for v in computed if values[v].type.shape == shape]))
            add(Elementwise(draw(st.sampled_from(["add", "sub"]))), (arg, other), shape)
        elif kind == "constant" and shape == WIDE:
            made = constant(draw)
            add(made, (), made.shape)
            add(Elementwise("mul"), (arg, len(values) - 1), shape)
        elif kind == "reduce" and shape == WIDE:
            mean = add(Reduce("mean", (1,)), (arg,), (2, 1))
            add(Elementwise("sub"), (arg, mean), shape)
        elif kind == "layout" and len(shape) == 2:
            add(
                *draw(
                    st.sampled_from(
                        [(Reshape(), (arg,), (shape[0] * shape[1],)), (Transpose((1, 0)), (arg,), shape[::-1])]
                    )
                )
            )
        elif kind == "opaque" and opaque:
            add(Opaque(0, 0), (arg,), shape)
        else:
            add(Elementwise(draw(st.sampled_from(["neg", "tanh"]))), (arg,), shape)
    used = {a for v in values for a in v.args}
    last = [v.id for v in values if v.id not in used and not isinstance(v.op, Constant)]
    extra = draw(st.lists(st.sampled_from([v.id for v in values]), max_size=1))
    graph = PrimitiveGraph(tuple(values), tuple(last + extra))
    check(graph)
    return graph


# --- enumeration


def reaches(graph: PrimitiveGraph, start: int, goals: set[int], avoid: set[int]) -> bool:
    """Whether a path leads from `start`, through values outside `avoid`, to one of `goals`."""
    return any(u in goals or (u not in avoid and reaches(graph, u, goals, avoid)) for u in graph.users[start])


def is_convex(graph: PrimitiveGraph, body: set[int]) -> bool:
    outside = {u for v in body for u in graph.users[v]} - body
    return not any(reaches(graph, u, body, set()) for u in outside)


def domain(graph: PrimitiveGraph, value: Value) -> tuple[int, ...]:
    return graph.values[value.args[0]].type.shape if isinstance(value.op, Reduce) else value.type.shape


def are_joined(graph: PrimitiveGraph, u: int, v: int) -> bool:
    one, two = graph.values[u], graph.values[v]
    if u in two.args or v in one.args:
        return True
    shared = {a for a in {*one.args} & {*two.args} if not isinstance(graph.values[a].op, Constant)}
    return bool(shared) and domain(graph, one) == domain(graph, two)


def is_connected(graph: PrimitiveGraph, body: set[int]) -> bool:
    part = {min(body)}
    while grown := {v for v in body - part if any(are_joined(graph, u, v) for u in part)}:
        part |= grown
    return part == body


@settings(max_examples=120, deadline=None)
@given(graphs(7))
def test_enumeration_finds_every_connected_convex_set_and_no_other(graph: PrimitiveGraph) -> None:
    fusible = [v.id for v in graph.primitives() if not isinstance(v.op, Opaque | Linear)]
    expected = {
        body
        for size in range(1, len(fusible) + 1)
        for body in combinations(fusible, size)
        if is_convex(graph, set(body))
        and is_connected(graph, set(body))
        and not all(isinstance(graph.values[v].op, Reshape) for v in body)
    }
    found = [c.body for c in enumerate_candidates(graph, UNLIMITED).candidates]
    assert len(found) == len(set(found))
    assert set(found) == expected


@settings(max_examples=60, deadline=None)
@given(graphs(8), st.integers(1, 6), st.integers(1, 30), st.integers(1, 60))
def test_a_limited_search_finds_a_part_of_the_whole(graph: PrimitiveGraph, size: int, each: int, total: int) -> None:
    limits = SearchLimits(max_primitives=size, per_seed=each, max_candidates=total)
    found = enumerate_candidates(graph, limits).candidates
    everything = set(enumerate_candidates(graph, UNLIMITED).candidates)
    assert everything.issuperset(found)
    assert len(found) <= total
    assert max(Counter(c.body[0] for c in found).values(), default=0) <= each
    assert max((len(c.body) for c in found), default=0) <= size


# --- canonical form


def relabelled(graph: PrimitiveGraph, order: Sequence[int]) -> tuple[PrimitiveGraph, dict[int, int]]:
    """The same graph with other names, and with its values in the topological order that is nearest to `order`."""
    rank = {v: i for i, v in enumerate(order)}
    placed: dict[int, int] = {}
    values: list[Value] = []
    while len(placed) < len(graph.values):
        ready = [v for v in graph.values if v.id not in placed and all(a in placed for a in v.args)]
        value = min(ready, key=lambda v: rank[v.id])
        args = tuple(placed[a] for a in value.args)
        placed[value.id] = len(values)
        values.append(Value(len(values), f"other_{len(values)}", value.type, value.op, args, value.operator))
    return PrimitiveGraph(tuple(values), tuple(placed[v] for v in graph.outputs)), placed


@settings(max_examples=100, deadline=None)
@given(graphs(7), st.data())
def test_digests_do_not_depend_on_ids_and_names(graph: PrimitiveGraph, data: st.DataObject) -> None:
    other, placed = relabelled(graph, data.draw(st.permutations(range(len(graph.values)))))
    expected = {
        tuple(sorted(placed[v] for v in c.body)): c.digest for c in enumerate_candidates(graph, UNLIMITED).candidates
    }
    assert {c.body: c.digest for c in enumerate_candidates(other, UNLIMITED).candidates} == expected


NUMPY: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "tanh": np.tanh,
}


def evaluate(graph: PrimitiveGraph, given_values: dict[int, Array]) -> dict[int, Array]:
    """Every value of a graph, in plain numpy."""
    found = dict(given_values)
    for value in graph.values:
        args = [found[a] for a in value.args]
        match value.op:
            case Constant():
                found[value.id] = value.op.array()
            case Elementwise(function):
                found[value.id] = NUMPY[function](*args)
            case Reduce("mean", axes):
                found[value.id] = args[0].mean(axis=axes, keepdims=True)
            case Reshape():
                found[value.id] = args[0].reshape(value.type.shape)
            case Transpose(perm):
                found[value.id] = args[0].transpose(perm)
            case Opaque():
                found[value.id] = np.cos(args[0])
    return found


@settings(max_examples=60, deadline=None)
@given(graphs(7), st.integers(0, 2**32 - 1))
def test_a_cut_body_computes_what_it_computes_in_the_whole_graph(graph: PrimitiveGraph, seed: int) -> None:
    random = np.random.default_rng(seed)
    whole = evaluate(graph, {v.id: random.normal(size=v.type.shape).astype(np.float32) for v in graph.inputs()})
    by_digest: dict[str, str] = {}
    for candidate in enumerate_candidates(graph, UNLIMITED).candidates:
        body = cut(graph, candidate)
        check(body.graph)
        text = print_graph(body.graph)
        assert body.digest == candidate.digest == hashlib.sha256(text.encode()).hexdigest()
        assert by_digest.setdefault(body.digest, text) == text
        assert print_graph(parse_graph(text)) == text
        operands = [v.id for v in body.graph.inputs()]
        assert operands == list(range(len(body.arguments)))
        assert body.arguments[: len(candidate.reads)] == tuple(p.value for p in candidate.reads)
        assert all(isinstance(graph.values[v].op, Constant) for v in body.arguments[len(candidate.reads) :])
        assert body.results == tuple(p.value for p in candidate.writes)
        inner = evaluate(body.graph, {i: whole[v] for i, v in zip(operands, body.arguments, strict=True)})
        for result, v in zip(body.graph.outputs, body.results, strict=True):
            np.testing.assert_array_equal(inner[result], whole[v])


# --- the program


def blocked(v: int) -> Port:
    return Port(v, "blocked")


def reads_of(graph: PrimitiveGraph, body: Sequence[int]) -> tuple[Port, ...]:
    outside = {a for v in body for a in graph.values[v].args} - set(body)
    return tuple(Port(a) for a in sorted(outside) if not isinstance(graph.values[a].op, Constant))


def vendor(graph: PrimitiveGraph, v: int) -> Candidate:
    return Candidate(CandidateKind.VENDOR, (v,), reads_of(graph, (v,)), (Port(v),), f"vendor:{v}", (v,))


@st.composite
def problems(draw: st.DrawFn) -> tuple[PrimitiveGraph, list[Priced]]:
    """A graph and a few candidates: often enough for a plan, with loops, recomputation and blocked values."""
    graph = draw(graphs(5))
    primitives = [v.id for v in graph.primitives()]
    fusible = [v for v in primitives if not isinstance(graph.values[v].op, Opaque)]
    made = [vendor(graph, v) for v in primitives if draw(st.integers(0, 9))]
    for _ in range(draw(st.integers(0, 4))):
        if fusible:
            body = tuple(sorted(draw(st.sets(st.sampled_from(fusible), min_size=1, max_size=4))))
            writes = draw(st.sets(st.sampled_from(body), min_size=1))
            ports = tuple(Port(v) for v in sorted(writes))
            made.append(Candidate(CandidateKind.GENERATED, body, reads_of(graph, body), ports, f"g{body}"))
    for _ in range(draw(st.integers(0, 3))):
        v = draw(st.sampled_from(primitives))
        # A vendor kernel that works on blocked values, one that reads more than its primitive, or a conversion.
        match draw(st.sampled_from(["blocked", "extra", "to", "from"])):
            case "blocked":
                reads = tuple(blocked(p.value) for p in reads_of(graph, (v,)))
                made.append(Candidate(CandidateKind.VENDOR, (v,), reads, (blocked(v),), f"blocked:{v}", (v,)))
            case "extra":
                extra = Port(draw(st.sampled_from(primitives)))
                reads = tuple(dict.fromkeys((*reads_of(graph, (v,)), extra)))
                made.append(Candidate(CandidateKind.VENDOR, (v,), reads, (Port(v),), f"extra:{v}", (v,)))
            case "to":
                made.append(Candidate(CandidateKind.REORDER, (), (Port(v),), (blocked(v),), f"to:{v}"))
            case "from":
                made.append(Candidate(CandidateKind.REORDER, (), (blocked(v),), (Port(v),), f"from:{v}"))
    costs = st.integers(0, 40)
    return graph, [Priced(c, draw(costs) / 8) for c in made[:11]]


def brute_force(
    graph: PrimitiveGraph, priced: Sequence[Priced], admits: Callable[[Sequence[Priced]], bool] = lambda _: True
) -> float | None:
    """The cost of the cheapest subset that can run and fills the outputs, over all subsets that are admitted."""
    sources = {Port(v.id) for v in graph.values if v.is_source}
    best: float | None = None
    for mask in range(1 << len(priced)):
        chosen = [p for i, p in enumerate(priced) if mask >> i & 1]
        cost = sum(p.cost_us for p in chosen)
        if (best is not None and cost >= best) or not admits(chosen):
            continue
        memory = set(sources)
        waiting = [p.candidate for p in chosen]
        while ready := [c for c in waiting if memory.issuperset(c.reads)]:
            waiting = [c for c in waiting if c not in ready]
            for candidate in ready:
                memory.update(candidate.writes)
        if not waiting and all(Port(v) in memory for v in graph.outputs):
            best = cost
    return best


@settings(max_examples=150, deadline=None)
@given(problems())
def test_the_program_finds_the_optimum(problem: tuple[PrimitiveGraph, list[Priced]]) -> None:
    graph, priced = problem
    expected = brute_force(graph, priced)
    if expected is None:
        with pytest.raises(KorchError, match="no kernel can compute"):
            solve(graph, priced, time_limit_s=30)
        return
    plan = solve(graph, priced, time_limit_s=30)
    check_plan(graph, plan)
    assert plan.cost_us == expected
    assert plan.bound_us == expected
    assert plan.status == "optimal"
    baseline = greedy(graph, priced)
    check_plan(graph, baseline)
    assert baseline.cost_us >= expected
    again = solve(graph, priced, time_limit_s=30, hint=Plan(plan.kernels, 0.0, 0.0))
    assert again == plan


@settings(max_examples=100, deadline=None)
@given(problems(), st.sampled_from([0.02, 0.2, 0.5, 1.0]))
def test_a_tolerance_is_kept_to(problem: tuple[PrimitiveGraph, list[Priced]], tolerance: float) -> None:
    graph, priced = problem
    expected = brute_force(graph, priced)
    if expected is not None:
        plan = solve(graph, priced, time_limit_s=30, tolerance=tolerance)
        check_plan(graph, plan)
        assert plan.bound_us <= expected <= plan.cost_us
        assert plan.cost_us - plan.bound_us <= tolerance * plan.cost_us + 0.001


def kernel_time(chosen: Sequence[Priced], plan: Plan) -> int:
    """The time of those kernels of `plan` that are among `chosen`, in nanoseconds, one at least for each."""
    kernels = {p.candidate for p in plan.kernels if p.candidate.kind is CandidateKind.GENERATED}
    return sum(max(1, round(p.cost_us * 1000)) for p in chosen if p.candidate in kernels)


@settings(max_examples=100, deadline=None)
@given(problems(), st.integers(1, 2))
def test_a_plan_apart_is_the_best_that_leaves_enough_out(
    problem: tuple[PrimitiveGraph, list[Priced]], others: int
) -> None:
    graph, priced = problem
    if brute_force(graph, priced) is None:
        return
    found = [solve(graph, priced, time_limit_s=30)]
    for _ in range(others):
        limits = [(plan, kernel_time(priced, plan)) for plan in found]

        def admits(chosen: Sequence[Priced], limits: list[tuple[Plan, int]] = limits) -> bool:
            return all(not most or kernel_time(chosen, plan) <= min(0.9 * most, most - 1) for plan, most in limits)

        expected = brute_force(graph, priced, admits)
        used = {p.candidate for plan in found for p in plan.kernels if p.candidate.kind is CandidateKind.GENERATED}
        if brute_force(graph, [p for p in priced if p.candidate not in used]) is None:
            with pytest.raises(KorchError, match="can compute"):
                solve(graph, priced, time_limit_s=30, apart=found)
            return
        plan = solve(graph, priced, time_limit_s=30, apart=found)
        check_plan(graph, plan)
        assert admits(plan.kernels)
        assert plan.cost_us == plan.bound_us == expected
        found.append(plan)


@settings(max_examples=25, deadline=None)
@given(graphs(8, opaque=False), st.data())
def test_the_program_is_never_beaten_by_merging(graph: PrimitiveGraph, data: st.DataObject) -> None:
    candidates = enumerate_candidates(graph, UNLIMITED).candidates
    views = [v.id for v in graph.primitives() if isinstance(v.op, Reshape)]
    everything = [*candidates, *(vendor(graph, v) for v in views)]
    priced = [Priced(c, data.draw(st.integers(8, 40)) / 8) for c in everything]
    baseline = greedy(graph, priced)
    check_plan(graph, baseline)
    plan = solve(graph, priced, time_limit_s=30)
    check_plan(graph, plan)
    assert plan.status == "optimal"
    assert plan.cost_us <= baseline.cost_us
