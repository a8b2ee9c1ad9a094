"""Whether processes that tests start have ended."""

from __future__ import annotations

import time
from pathlib import Path

_LONGEST_S = 30.0


def is_running(pid: int) -> bool:
    """Whether a process runs; one that waits to be reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def ends(pid: int) -> bool:
    """Wait for a process to end, for it may take a moment to die of a signal; return whether it did."""
    deadline = time.monotonic() + _LONGEST_S
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)
