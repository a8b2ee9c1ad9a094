"""`korch inspect`."""

from __future__ import annotations

from pathlib import Path

import click

from korch_cli.cli.options import (
    MODEL,
    format_flag,
    kernel_size_flag,
    quiet_flag,
    report_flag,
    require_model,
    require_report,
    shape_flags,
    spare_weights,
    write_report,
)
from korch_cli.cli.values import bindings_of
from korch_cli.core.errors import ExitCode


@click.command()
@click.argument("model", metavar="MODEL", type=MODEL)
@shape_flags
@kernel_size_flag
@click.option(
    "--exhaustive", is_flag=True, help="Ask the code generator for every distinct candidate, not for a sample of them."
)
@format_flag
@report_flag
@click.option(
    "-v", "--verbose", is_flag=True, help="List every operator that stays opaque, every reason, every kernel."
)
@quiet_flag
def inspect(
    model: Path,
    dims: tuple[tuple[str, int], ...],
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    max_kernel_size: int,
    exhaustive: bool,
    form: str,
    report: Path | None,
    verbose: bool,
    quiet: bool,
) -> None:
    """Say what korch makes of MODEL: operators, primitives, what stays opaque and why, candidate kernels.

    Nothing is compiled, timed or run. Of a model that korch wrote it lists the kernels and what they replace.
    """
    require_model(model)
    require_report(report, model)
    bindings = bindings_of(dims, shapes)

    from korch_cli import pipeline  # everything heavy comes with it
    from korch_cli.report import render_inspect, show_progress, to_json

    spare_weights(model, report)
    with show_progress(quiet=quiet) as progress:
        record = pipeline.inspect_model(
            model, bindings, progress, max_primitives=max_kernel_size, exhaustive=exhaustive
        )
    document = to_json("inspect", record, ExitCode.OK)
    write_report(document, report)
    click.echo(document if form == "json" else render_inspect(record, verbose=verbose))
