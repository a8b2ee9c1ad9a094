"""`korch explain`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from korch_cli.cli.options import (
    MODEL,
    format_flag,
    report_flag,
    require_model,
    require_report,
    spare_weights,
    write_report,
)
from korch_cli.core.errors import ExitCode


@click.command()
@click.argument("model", metavar="MODEL", type=MODEL)
@click.argument("node", metavar="[NODE]", required=False)
@format_flag
@report_flag
def explain(model: Path, node: str | None, form: str, report: Path | None) -> None:
    """Say what the plan for MODEL runs for NODE, what else it could run, and what each choice would cost.

    MODEL is what korch optimize read or what it wrote. Without NODE, every node is listed with what is run for it.
    Nothing is compiled, timed or run: the prices are those of the last search for the model on this machine.
    """
    require_model(model)
    require_report(report, model)

    from korch_cli import pipeline  # everything heavy comes with it
    from korch_cli.measure import ProfileStore, default_folder
    from korch_cli.report import render_explain, to_json

    spare_weights(model, report)
    with closing(ProfileStore(default_folder())) as store:
        record = pipeline.explain(model, node, store)
    document = to_json("explain", record, ExitCode.OK)
    write_report(document, report)
    click.echo(document if form == "json" else render_explain(record, whole=node is None))
