"""`korch doctor`."""

from __future__ import annotations

import click

from korch_cli.cli.options import format_flag
from korch_cli.core.errors import ExitCode


@click.command()
@click.option("--strict", is_flag=True, help="Exit with 1 if there is a problem or a warning.")
@click.option(
    "--cxx",
    metavar="PATH",
    default=None,
    show_default="$KORCH_CXX, or the first that works of g++, clang++, c++ and zig",
    help="The C++ compiler to look at.",
)
@format_flag
@click.pass_context
def doctor(ctx: click.Context, strict: bool, cxx: str | None, form: str) -> None:
    """Say whether everything that korch needs is there, and what to do about what is not."""
    from korch_cli.cli.checkup import examine  # it loads the packages that it looks at
    from korch_cli.report import Level, render_checks, to_json

    checks = examine(cxx)
    found = any(check.level is not Level.OK for check in checks)
    code = ExitCode.ANSWER_IS_NO if strict and found else ExitCode.OK
    click.echo(to_json("doctor", {"checks": checks}, code) if form == "json" else render_checks(checks))
    ctx.exit(code)
