"""`korch profile`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from korch_cli.cli.feeding import draw_shared_inputs, read_inputs
from korch_cli.cli.options import (
    MODEL,
    format_flag,
    inputs_flag,
    provider_of,
    quiet_flag,
    require_model,
    seed_flag,
    shape_flags,
    target_flag,
    threads_flag,
)
from korch_cli.cli.values import Duration, Number, bindings_of
from korch_cli.core.errors import ExitCode
from korch_cli.core.record import Comparison, KernelTime, NodeTime


@click.command()
@click.argument("model", metavar="MODEL", type=MODEL)
@click.option("--against", metavar="OTHER", type=MODEL, multiple=True, help="A model to compare with. May be repeated.")
@shape_flags
@target_flag
@threads_flag
@seed_flag
@inputs_flag
@click.option("--seconds", type=Duration(), default="10s", help="Time to spend on timing, all models together.")
@click.option("--per-node", is_flag=True, help="Also list the time of every node, from ONNX Runtime's profiler.")
@click.option(
    "--per-kernel",
    is_flag=True,
    help="Also list the generated kernels of MODEL: bytes, operations, time, and the share of what the machine can do.",
)
@format_flag
@click.option(
    "--fail-if-slower",
    metavar="PCT",
    type=Number(min=0),
    default=None,
    help="Exit with 1 if MODEL takes more than PCT percent longer than an OTHER, its whole 95 % interval considered.",
)
@click.option(
    "--fail-above-us",
    metavar="N",
    type=Number(min=0),
    default=None,
    help="Exit with 1 if the median of MODEL is above N microseconds.",
)
@quiet_flag
@click.pass_context
def profile(
    ctx: click.Context,
    model: Path,
    against: tuple[Path, ...],
    dims: tuple[tuple[str, int], ...],
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    target: str,
    threads: int,
    seed: int,
    inputs: Path | None,
    seconds: float,
    per_node: bool,
    per_kernel: bool,
    form: str,
    fail_if_slower: float | None,
    fail_above_us: float | None,
    quiet: bool,
) -> None:
    """Time MODEL in ONNX Runtime, alternating with the OTHERs if there are any.

    A model written by korch runs with the kernel library that lies beside it.
    """
    paths = (model, *against)
    if fail_if_slower is not None and not against:
        raise click.UsageError("--fail-if-slower needs --against OTHER to compare with.")
    for path in paths:
        require_model(path)
    given, bindings = read_inputs(inputs, bindings_of(dims, shapes))

    from korch_cli import pipeline, verify  # everything heavy comes with them
    from korch_cli.report import Profile, render_profile, show_progress, to_json

    provider = provider_of(target)
    plan = pipeline.kernel_plan(model) if per_kernel else None
    feeds = draw_shared_inputs(paths, bindings, seed=seed, runs=1, given=given)[0]
    subjects = [
        verify.Subject(name, path, verify.fitting_library(path, [provider]), True, provider)
        for name, path in zip(distinct_names(paths), paths, strict=True)
    ]
    with show_progress(quiet=quiet) as progress:
        progress.stage(f"Timing {' and '.join(subject.name for subject in subjects)}")
        comparison = verify.compare_speed(subjects, feeds, threads=threads, seconds=seconds, progress=progress)
        nodes: tuple[NodeTime, ...] = ()
        kernels: tuple[KernelTime, ...] = ()
        if per_node or plan is not None:
            progress.stage(f"Profiling the nodes of {subjects[0].name}")
            nodes = verify.profile_nodes(subjects[0], feeds, threads=threads)
        if plan is not None:
            kernels = pipeline.kernel_times(plan, nodes, threads=threads, progress=progress)
    result = Profile(comparison, nodes if per_node else (), kernels)
    code = judge(comparison, fail_if_slower, fail_above_us)
    click.echo(to_json("profile", result, code) if form == "json" else render_profile(result))
    ctx.exit(code)


def judge(comparison: Comparison, slower_percent: float | None, above_us: float | None) -> ExitCode:
    """Return whether the first model is as fast as was asked for; say on stderr why not."""
    from korch_cli.report import percentile, speed_ups

    failures = []
    first = comparison.samples[0]
    if above_us is not None and percentile(first.times_us, 50) > above_us:
        failures.append(f"the median of {first.name} is {percentile(first.times_us, 50):.1f} µs, above {above_us:g} µs")
    if slower_percent is not None:
        least = 1 / (1 + slower_percent / 100)
        failures += [
            f"{first.name} takes at least {100 * (1 / found.ratio.high - 1):.1f} % longer than {found.against}"
            for found in speed_ups(comparison)
            if found.ratio.high < least
        ]
    for failure in failures:
        click.echo(f"failed: {failure}", err=True)
    return ExitCode.ANSWER_IS_NO if failures else ExitCode.OK


def distinct_names(paths: Sequence[Path]) -> tuple[str, ...]:
    """Return file names, or whole paths where file names repeat."""
    short = [path.name for path in paths]
    return tuple(short) if len(set(short)) == len(short) else tuple(map(str, paths))
