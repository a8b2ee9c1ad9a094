"""The child process of measuring: it alone loads generated code.

Started as `python -m korch_cli.measure.worker`; reads requests from its input and writes answers to its output.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from korch_cli.measure.calibrate import run_limits
from korch_cli.measure.child import receive, send
from korch_cli.measure.cuda.experiment import run_cuda_kernel
from korch_cli.measure.experiment import run_kernel, run_profile, run_rewriting

_REQUESTS: dict[str, Callable[..., Any]] = {
    "kernel": run_kernel,
    "profile": run_profile,
    "limits": run_limits,
    "rewriting": run_rewriting,
    "cuda-kernel": run_cuda_kernel,
}
_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""


def main() -> None:
    """Answer requests until the input ends; a parent that is killed ends even a kernel that hangs."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    # What libraries print must not reach the pipe of answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            kind, arguments = receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = ("ok", _REQUESTS[kind](**arguments))
        except Exception as error:
            answer = ("failed", f"{type(error).__name__}: {error}")
        send(answers, answer)


if __name__ == "__main__":
    main()
