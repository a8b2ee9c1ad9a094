"""Solving beside the main thread, which Ctrl-C can then reach."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def beside(solve: Callable[[], Result], stop: Callable[[], object]) -> Result:
    """Return what `solve` returns; on Ctrl-C, `stop` it first.

    Raises:
        KeyboardInterrupt: it was interrupted.
    """
    with ThreadPoolExecutor(1) as pool:
        solving = pool.submit(solve)
        try:
            return solving.result()
        except KeyboardInterrupt:
            stop()
            raise
