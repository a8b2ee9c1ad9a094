"""The command group, and the one place where failures become messages and exit codes."""

from __future__ import annotations

import io
import signal
import sys
from types import FrameType
from typing import Any

import click

from korch_cli.cli.cache import cache
from korch_cli.cli.doctor import doctor
from korch_cli.cli.explain import explain as explain_command
from korch_cli.cli.failure import Terminated, explain, from_outside, report_crash
from korch_cli.cli.inspect import inspect
from korch_cli.cli.optimize import optimize
from korch_cli.cli.profile import profile
from korch_cli.cli.reduce import reduce
from korch_cli.cli.verify import verify
from korch_cli.core.errors import ExitCode, KorchError
from korch_cli.version import __version__


class GuardedGroup(click.Group):
    """A group whose commands end with a documented exit code whatever happens in them."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn what it raises into a message on stderr and an exit code."""
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.ClickException, click.Abort, BrokenPipeError):
            raise
        except KorchError as error:
            explain(error)
            code = error.exit_code
        except KeyboardInterrupt:
            click.echo("interrupted; what was measured is kept, nothing was written", err=True)
            code = ExitCode.INTERRUPTED
        except Terminated:
            click.echo("terminated; what was measured is kept, nothing was written", err=True)
            code = ExitCode.TERMINATED
        except Exception as error:
            cause = from_outside(error)
            if cause is None:
                report_crash(error)
            else:
                explain(cause)
            code = ExitCode.BUG if cause is None else cause.exit_code
        raise click.exceptions.Exit(code)


@click.group(
    cls=GuardedGroup,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 110},
    epilog="Exit codes: 0 done, 1 the answer is no, 2 usage, 3 bad model, 4 environment, 5 out of time, 70 a bug.",
)
@click.version_option(__version__, prog_name="korch", message="%(prog)s %(version)s")
def korch() -> None:
    """Make ONNX models run faster in ONNX Runtime, and prove that they still compute the same."""


for _command in (optimize, profile, verify, inspect, explain_command, reduce, cache, doctor):
    korch.add_command(_command)


def main() -> None:
    """Run the command line of this process; never returns."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        # nohup has its programs ignore that their terminal was closed.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_terminate)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names in a model and paths may hold what the terminal's encoding has no character for.
        sys.stdout.reconfigure(errors="backslashreplace")
    korch(prog_name="korch")


def _on_terminate(_signal: int, _frame: FrameType | None) -> None:
    raise Terminated
