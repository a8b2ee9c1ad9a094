"""What a person sees when a command fails."""

from __future__ import annotations

import errno
import os
import platform
import sys
import tempfile
import time
import traceback
from pathlib import Path

import click

from korch_cli.core.errors import KorchError, MissingError, UsageError
from korch_cli.version import __version__

_OUTSIDE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}
)
"""What the system says when it has no room, no memory, no files or no processes left."""


class Terminated(BaseException):
    """The process was asked to end (SIGTERM), or its terminal was closed (SIGHUP).

    A BaseException, so that nothing but the command group catches it.
    """


def explain(error: KorchError) -> None:
    """Print what is wrong, where, and what to do about it, to stderr."""
    where = f" ({error.where})" if error.where else ""
    click.echo(f"{_red('error:')} {error.message}{where}", err=True)
    if error.hint:
        click.echo(f"  {error.hint}", err=True)


def from_outside(error: Exception) -> KorchError | None:
    """Return what a failure says of the machine or of the command line, None where it is a bug in korch."""
    if isinstance(error, MemoryError):
        return MissingError("there is not enough memory", hint="give the model's inputs smaller shapes, or free some")
    if not isinstance(error, OSError):
        return None
    name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes | os.PathLike) else ""
    if error.errno == errno.ENAMETOOLONG:
        return UsageError("a file name is too long", where=f"{Path(name).name[:40]}…", hint="give a shorter one")
    if error.errno == errno.ENOENT and error.filename is None:
        hint = "change to another one, or name files by whole paths"
        return MissingError("the current folder is not there any more", hint=hint)
    if error.errno in _OUTSIDE:
        return MissingError(f"the system refuses: {error.strerror}", where=name or None)
    return None


def report_crash(error: Exception) -> None:
    """Write a traceback to a file and print where it is; the terminal shows one sentence."""
    summary = f"{type(error).__name__}: {error}".splitlines()[0]
    click.echo(f"{_red('error:')} this is a bug in korch: {summary}", err=True)
    try:
        click.echo(f"  details: {_write_crash_file(error)} (no model data in it)", err=True)
    except OSError as failure:
        click.echo(f"  the details could not be written: {failure}", err=True)


def _write_crash_file(error: Exception) -> Path:
    """Write versions, the command line and the traceback to a new file in the temporary folder; return its path."""
    lines = [
        f"korch {__version__}, python {platform.python_version()}, {platform.platform()}",
        f"time: {time.strftime('%Y-%m-%d %H:%M:%S')}",
        f"command: {sys.argv}",
        f"folder: {Path.cwd()}",
        "",
        *traceback.format_exception(error),
    ]
    handle, name = tempfile.mkstemp(prefix="korch-crash-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    return Path(name)


def _red(text: str) -> str:
    """Colour for a terminal; `click.echo` strips it where there is none."""
    return text if "NO_COLOR" in os.environ else click.style(text, fg="red", bold=True)
