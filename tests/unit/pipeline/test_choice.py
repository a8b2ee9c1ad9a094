"""Which of several plans wins a contest."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from korch_cli.candidates import CandidateSet
from korch_cli.core.kernel import Candidate, CandidateKind, Port
from korch_cli.core.model import Model
from korch_cli.core.plan import Priced
from korch_cli.core.record import Contest, Ratio, Samples
from korch_cli.core.text import parse_graph
from korch_cli.pipeline.choice import rewritten_first, winner
from korch_cli.pipeline.laboratory import Laboratory
from korch_cli.pipeline.search import Search
from korch_cli.pipeline.settings import Settings
from korch_cli.pipeline.stored import decode_contest, encode_contest
from korch_cli.pipeline.ways import REWRITTEN, WRITTEN, Way, Ways
from korch_cli.rewrite import unite


def contest(times: list[float], doubt: float) -> Contest:
    """Models with these times; ratios may be wrong by the share `doubt`."""
    ratios = tuple(tuple(Ratio(a / b, a / b * (1 - doubt), a / b * (1 + doubt), 9) for b in times) for a in times)
    return Contest(tuple(Samples(f"model {i}", (t,)) for i, t in enumerate(times)), ratios)


@pytest.mark.parametrize(
    ("times", "doubt", "expected"),
    [
        ([10.0, 9.0], 0.01, 1),
        ([10.0, 9.0, 8.0], 0.01, 2),
        ([10.0, 9.0, 8.9], 0.05, 1),
        ([10.0, 9.0, 9.2, 8.0], 0.01, 3),
        # Faster than the second one, which was no better than the first: the first one stays.
        ([10.0, 9.0, 9.3, 8.9], 0.02, 1),
        # The input does not take part: whether it is beaten is asked afterwards.
        ([5.0, 9.0, 8.0], 0.01, 2),
    ],
)
def test_the_simpler_plan_wins_unless_the_other_is_faster_beyond_doubt(
    times: list[float], doubt: float, expected: int
) -> None:
    assert winner(contest(times, doubt)) == expected


def test_a_contest_survives_the_store() -> None:
    found = contest([10.0, 9.0, 8.0], 0.01)
    assert decode_contest(encode_contest(found)) == found


def searched(written_us: tuple[float, float], rewritten_us: tuple[float, float]) -> tuple[Search, Ways]:
    """Two operators, each of which the rewritten model computes with another one, and what they cost."""
    lines = [
        '%0 "x" f32[2] = input',
        '%1 "a" f32[2] = elementwise {} (%0) @0',
        '%2 "y" f32[2] = elementwise {} (%1) @1',
    ]
    ends = ["outputs (%2)", "operator 0 = (%1)", "operator 1 = (%2)"]
    graphs = [parse_graph("\n".join([*lines, *ends]).format(*names)) for names in (("neg", "exp"), ("abs", "tanh"))]
    tensors = [frozenset(value.name for value in graph.values) for graph in graphs]
    indices = [(0, 1), (2, 3)]
    union = unite(graphs, tensors, indices)
    assert union is not None
    model = Model(None, (), (), (), {}, {}, {}, 8, None)  # type: ignore[arg-type]
    members = (
        Way(name, model, graph, values, index)
        for name, graph, values, index in zip((WRITTEN, REWRITTEN), graphs, union.values, indices, strict=True)
    )
    ways = Ways(model, union.graph, tuple(members))
    vendor = tuple(
        Priced(
            ways.common(at, Candidate(CandidateKind.VENDOR, (v,), (Port(v - 1),), (Port(v),), f"node:{v}", (v - 1,))),
            us,
        )
        for at, each in enumerate((written_us, rewritten_us))
        for v, us in enumerate(each, start=1)
    )
    laboratory = cast("Laboratory", SimpleNamespace(results={}))
    settings = Settings(Path("in.onnx"), Path("out.onnx"))
    return Search(settings, ways.graph, vendor, CandidateSet((), Counter()), {}, laboratory, 0.0), ways


@pytest.mark.parametrize(
    ("written_us", "rewritten_us", "expected_us"),
    [
        ((9.0, 2.0), (3.0, 2.1), 5.1),
        # Far from the best sum, which is 5.
        ((9.0, 2.0), (3.0, 4.0), None),
        # The best plan keeps to it anyway.
        ((9.0, 2.0), (3.0, 1.0), None),
        # Or it keeps to the model as written.
        ((2.9, 2.0), (3.0, 2.1), 5.1),
    ],
)
def test_the_rewritten_model_takes_part_where_the_best_plan_mixes_ways(
    written_us: tuple[float, float], rewritten_us: tuple[float, float], expected_us: float | None
) -> None:
    search, ways = searched(written_us, rewritten_us)
    best = search.without_kernels()
    found = rewritten_first(search, ways, [best])
    assert (None if found is None else found.cost_us) == expected_us
    if found is not None:
        assert ways.hold(1, found)
        assert rewritten_first(search, ways, [best, found]) is None
