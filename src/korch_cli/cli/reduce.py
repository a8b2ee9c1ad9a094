"""`korch reduce`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from korch_cli.cli.options import (
    MODEL,
    format_flag,
    quiet_flag,
    report_flag,
    require_file,
    require_model,
    require_report,
    same_file,
    shape_flags,
    spare_weights,
    write_report,
)
from korch_cli.cli.values import Duration, bindings_of
from korch_cli.core.errors import ExitCode, UsageError

_CODES = {"interrupted": ExitCode.INTERRUPTED, "terminated": ExitCode.TERMINATED, "nothing": ExitCode.ANSWER_IS_NO}


@click.command()
@click.argument("model", metavar="MODEL", type=MODEL)
@click.option(
    "--check",
    metavar="CMD",
    required=True,
    help="The command that fails. {} in it stands for a model's path, which is added at the end if {} is missing.",
)
@click.option("-o", "--output", metavar="OUT", type=MODEL, required=True, help="The model to write.")
@shape_flags
@click.option(
    "--exit-code",
    metavar="N",
    type=click.IntRange(min=1, max=255),
    default=None,
    show_default="that of CMD on the whole model",
    help="The exit status that counts as failing; 128 and its number for a signal.",
)
@click.option("--match", metavar="TEXT", default=None, help="Count as failing only if CMD's output contains this too.")
@click.option("--timeout", type=Duration(), default="10m", help="Time that one run of CMD may take; its status is 124.")
@click.option("--budget", type=Duration(), default="1h", help="Time that all runs may take together.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of made-up weights.")
@format_flag
@report_flag
@quiet_flag
@click.pass_context
def reduce(
    ctx: click.Context,
    model: Path,
    check: str,
    output: Path,
    dims: tuple[tuple[str, int], ...],
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    exit_code: int | None,
    match: str | None,
    timeout: float,
    budget: float,
    seed: int,
    form: str,
    report: Path | None,
    quiet: bool,
) -> None:
    """Write the smallest part of MODEL on which CMD still fails, for a report of a bug.

    CMD runs without a shell. It gets one model after the other, each with fewer nodes, outputs and weights.
    """
    words = words_of(check)
    if same_file(model, output):
        raise UsageError("MODEL and OUT are the same file", where=str(output), hint="give OUT another name")
    require_model(model)
    require_file(output)
    require_report(report, model, output)
    bindings = bindings_of(dims, shapes)

    from korch_cli import pipeline  # everything heavy comes with it
    from korch_cli.report import render_reduce, show_progress, to_json

    settings = pipeline.ReduceSettings(
        source=model,
        output=output,
        check=words,
        bindings=bindings,
        exit_code=exit_code,
        match=match or "",
        timeout_s=timeout,
        budget_s=budget,
        seed=seed,
    )
    spare_weights(model, report, output, output.with_name(f"{output.name}.data"))
    with show_progress(quiet=quiet) as progress:
        record = pipeline.reduce_model(settings, progress)
    code = _CODES.get(record.ended, ExitCode.OK)
    document = to_json("reduce", record, code)
    write_report(document, report)
    click.echo(document if form == "json" else render_reduce(record))
    ctx.exit(code)


def words_of(command: str) -> tuple[str, ...]:
    """Split a command into words as a shell would, quotes respected and nothing else.

    Raises:
        UsageError: a quote is not closed, or there is no word.
    """
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise UsageError(f"--check cannot be split into words: {error}", where=command) from error
    if not words:
        raise UsageError("--check names no command", hint='for example: --check "korch optimize {} -o /tmp/out.onnx"')
    return words
