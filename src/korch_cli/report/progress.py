"""What a command is doing, on stderr: a bar on a terminal, a line a stage elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from korch_cli.core.progress import Progress, Silent

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

_QUIET_SECONDS = 10.0
"""Within a stage, a line is printed at most this often."""


class LineProgress:
    """A line when a stage begins, and now and then while it lasts, each with the seconds since the start.

    Args:
        stream: where the lines go.
        clock: seconds from any origin.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._start = self._printed = clock()

    def stage(self, text: str) -> None:
        """Print the stage's name."""
        self._print(text)

    def step(self, done: int, total: int, text: str = "") -> None:
        """Print how far the stage is, unless a line was printed a moment ago."""
        if self._clock() - self._printed >= _QUIET_SECONDS:
            self._print(f"  {done} of {total}" + (f": {text}" if text else ""))

    def _print(self, text: str) -> None:
        self._printed = self._clock()
        print(f"[{self._printed - self._start:6.1f} s] {text}", file=self._stream, flush=True)


class BarProgress:
    """One line that is drawn over and over, with a bar for stages that count their steps."""

    def __init__(self, display: RichProgress) -> None:
        self._display = display
        self._stage = ""
        self._task = display.add_task("", total=None)

    def stage(self, text: str) -> None:
        """Show the stage's name and an empty bar."""
        self._stage = text
        self._display.reset(self._task, total=None, description=text)

    def step(self, done: int, total: int, text: str = "") -> None:
        """Fill the bar, and say what it has come to."""
        description = f"{self._stage} · {text}" if text else self._stage
        self._display.update(self._task, completed=done, total=total, description=description)


@contextmanager
def show_progress(*, quiet: bool = False, stream: TextIO | None = None) -> Iterator[Progress]:
    """Show progress on `stream` (stderr) while the context lasts, in the form that suits it."""
    # Where stderr is closed, as for a daemon, there is no stream at all.
    target: TextIO | None = sys.stderr if stream is None else stream
    if quiet or target is None:
        yield Silent()
    elif target.isatty() and not os.environ.get("CI"):
        with _bar(target) as progress:
            yield progress
    else:
        yield LineProgress(target)


@contextmanager
def _bar(stream: TextIO) -> Iterator[Progress]:
    from rich.console import Console  # only a terminal needs it
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    console = Console(file=stream, no_color="NO_COLOR" in os.environ)
    with RichProgress(*columns, console=console, transient=True) as display:
        yield BarProgress(display)
