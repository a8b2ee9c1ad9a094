from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from korch_cli.core.plan import Plan
from korch_cli.core.record import Comparison, KernelTime, NodeTime, OptimizeRecord, Ratio, Samples, Verdict
from korch_cli.report import (
    Check,
    Level,
    Profile,
    percentile,
    render_checks,
    render_comparison,
    render_nodes,
    render_optimize,
    render_profile,
    render_verdicts,
    speed_ups,
)
from korch_cli.report.table import align, count, format_seconds, format_us


def test_optimize_tells_what_was_found_and_written(record: OptimizeRecord) -> None:
    text = render_optimize(record)
    for part in (
        "korch 0.1.0 · model.onnx · cpu, 2 threads",
        "415 operators → 612 primitives · opaque 3 (LRN ×2, NonMaxSuppression ×1)",
        "4,812 candidates (731 distinct) · 43 kernels timed, 688 from the store",
        "solver: feasible (gap 1.1%) in 4.2 s, 5 rounds · plan 8.90 ms, bound 8.80 ms",
        "the output is 2.00× as fast as the input (95 % interval 1.60 to 2.50, 40 alternating blocks)",
        "warning: The machine is loaded.",
        "verify: PASS with the library · 5 input sets · worst error 3.1e-06 at 'prob'[0, 417]",
        "left out: k_bad: It differs.",
        "note: Input 'x' was bound to 1x3x48x320.",
        "wrote out.onnx · out.korch.so · out.plan.json",
        "OPTIMIZED in 2 min 14 s: 2.00 times as fast as the input model.",
    ):
        assert part in text


def test_optimize_lists_every_kernel_only_when_asked(record: OptimizeRecord) -> None:
    short, long = render_optimize(record), render_optimize(record, verbose=True)
    assert "k_07" in short
    assert "k_08" not in short
    assert "and 2 kernels more" in short
    assert "k_09" in long
    assert "kernels more" not in long
    assert "opaque: LRN ×2: no function for it" in long
    assert "rejected: 12× no schedule" in long
    assert "  machine: cpu, 2 threads" in long


@pytest.mark.parametrize(
    ("bound_us", "said"),
    [(90.0, "optimal (gap 0.0%)"), (89.99, "feasible (gap below 0.1%)"), (60.0, "feasible (gap 33.3%)")],
)
def test_a_gap_is_not_rounded_away(record: OptimizeRecord, bound_us: float, said: str) -> None:
    plan = Plan((), 90.0, bound_us)
    search = replace(record.search, solver_status=plan.status, gap=plan.gap)
    assert f"solver: {said} in" in render_optimize(replace(record, search=search))


def test_optimize_says_unchanged(record: OptimizeRecord) -> None:
    same = replace(record, changed=False, reason="Nothing is faster.", kernels=(), verdicts=(), comparison=None)
    text = render_optimize(same)
    assert text.splitlines()[-1] == "UNCHANGED in 2 min 14 s: Nothing is faster."
    assert "median" not in text
    assert "verify" not in text


def test_a_kernel_without_an_alternative_shows_a_question_mark(record: OptimizeRecord) -> None:
    lines = [line.split() for line in render_optimize(record).splitlines()]
    first, second = (next(line for line in lines if line[:1] == [name]) for name in ("k_00", "k_01"))
    assert first[-6:] == ["90.0", "µs", "4.0", "KiB", "1,500", "50%"]
    assert second[-5:] == ["?", "4.0", "KiB", "1,500", "50%"]


def test_no_share_of_the_limit_is_made_up_where_none_is_known(record: OptimizeRecord) -> None:
    kernels = tuple(replace(kernel, share_of_limit=None) for kernel in record.kernels)
    text = render_optimize(replace(record, kernels=kernels))
    (first,) = [line.split() for line in text.splitlines() if "k_00" in line]
    assert first[-4:] == ["4.0", "KiB", "1,500", "?"]


def test_comparison_is_told_from_the_first_model(comparison: Comparison) -> None:
    text = render_comparison(comparison)
    assert "input is 0.50× as fast as output (95 % interval 0.40 to 0.62, 40 alternating blocks)" in text
    assert "ONNX Runtime, 2 threads" in text
    assert "11.00 ms" in text
    assert "5.50 ms" in text
    assert "warning: The machine is loaded." in text


def test_a_single_model_has_no_ratio() -> None:
    text = render_comparison(Comparison((Samples("only", (1.0, 2.0)),), (), 1))
    assert "as fast as" not in text
    assert "1 thread" in text


def test_speed_ups_turn_ratios_and_intervals_around() -> None:
    found = speed_ups(Comparison((Samples("a", (4.0,)), Samples("b", (2.0,))), (Ratio(2.0, 1.0, 4.0, 9),), 1))
    assert [(s.model, s.against, s.ratio) for s in found] == [("a", "b", Ratio(0.5, 0.25, 1.0, 9))]


def test_verdicts_list_each_output(verdicts: tuple[Verdict, ...]) -> None:
    text = render_verdicts(verdicts)
    assert "PASS with the library · 5 input sets" in text
    assert "FAIL without it · 1 input set · worst error inf at 'logits'[3] · rtol 0.0001, atol 1e-05" in text
    assert "7 of 10" in text
    assert "[0, 417]" in text
    assert "FAIL as it is · 1 input set · The model 'b' did not run: it crashed." in text
    assert text.endswith("FAILED")
    assert render_verdicts(verdicts[:1]).endswith("PASSED")


def test_nodes_are_listed_from_the_costliest(nodes: tuple[NodeTime, ...], comparison: Comparison) -> None:
    lines = render_nodes(nodes).splitlines()
    assert [line.split()[0] for line in lines] == ["operator", "korch.12::k_abc", "Softmax"]
    assert lines[1].endswith("75.0%")
    assert render_profile(Profile(comparison, nodes)).endswith(render_nodes(nodes))
    assert render_profile(Profile(comparison)) == render_comparison(comparison)


def test_kernels_are_listed_with_their_limits(comparison: Comparison, kernel_times: tuple[KernelTime, ...]) -> None:
    text = render_profile(Profile(comparison, (), kernel_times))
    heading, line = text.splitlines()[-2:]
    assert heading.split()[-3:] == ["limit", "of", "limit"]
    assert "a + b + c + 1 more" in line
    assert "arithmetic 2 8.0 KiB 150,000" in " ".join(line.split())
    assert line.split()[-5:] == ["40.0", "µs", "10.0", "µs", "25%"]


def test_checks_are_summed_up_and_advised() -> None:
    checks = [
        Check(Level.OK, "python", "3.11"),
        Check(Level.PROBLEM, "compiler", "none", "apt install g++"),
        Check(Level.WARNING, "load", "9.0", "wait"),
    ]
    lines = render_checks(checks).splitlines()
    assert lines[0].split() == ["ok", "python", "3.11"]
    assert lines[1].split() == ["problem", "compiler", "none"]
    assert lines[2] == "    apt install g++"
    assert lines[-1] == "1 problem, 1 warning"


@pytest.mark.parametrize(
    ("microseconds", "text"), [(0.0, "0.0 µs"), (999.94, "999.9 µs"), (1000.0, "1.00 ms"), (2.5e6, "2.50 s")]
)
def test_times_have_the_unit_that_keeps_them_short(microseconds: float, text: str) -> None:
    assert format_us(microseconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(4.24, "4.2 s"), (60.0, "1 min 0 s"), (134.4, "2 min 14 s")])
def test_durations_are_said_as_by_a_person(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_counts_have_a_plural() -> None:
    assert [count(n, "kernel") for n in (0, 1, 1234)] == ["0 kernels", "1 kernel", "1,234 kernels"]


def test_columns_are_aligned() -> None:
    assert align([["a", "1"], ["bcd", "10"]]) == "  a     1\n  bcd  10"
    assert align([]) == ""


@settings(derandomize=True, deadline=None, max_examples=50)
@given(
    times=st.lists(st.floats(0.1, 1e6), min_size=1, max_size=40),
    percent=st.one_of(st.sampled_from([0.0, 5.0, 50.0, 95.0, 100.0]), st.floats(0, 100)),
)
def test_percentiles_are_those_of_numpy(times: list[float], percent: float) -> None:
    assert percentile(times, percent) == pytest.approx(np.percentile(np.array(times), percent), rel=1e-9)
