"""The functions of korch_vector.h over the bit patterns of float32: what is promised of each, and whether it holds."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from korch_cli.codegen import headers

PATTERNS = 1 << 32
_SOURCE = Path(__file__).with_name("sweep.cpp")
_SLICES = 64
_COMPILE_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Bound:
    """What is promised of a function.

    Attributes:
        ulp: units in the last place of the right result that it may be off; of 2^-149 where that is denormal.
        absolute: errors up to this do not count.
    """

    ulp: float
    absolute: float = 0.0


BOUNDS = {
    "exp": Bound(1.25),
    "sigmoid": Bound(2.5),
    "tanh": Bound(2.5),
    "log": Bound(1.0),
    "softplus": Bound(2.0),
    "tanh_softplus": Bound(4.25),
    "erf": Bound(2.0),
    "sin": Bound(1.75, 2e-10),
    "cos": Bound(1.75, 2e-10),
    "pow": Bound(0.75),
    "divided": Bound(1.5),
    "divided_once": Bound(1.5),
    "rsqrt": Bound(1.5),
    **dict.fromkeys(("sqrt", "reciprocal"), Bound(0.5)),
    **dict.fromkeys(("abs", "ceil", "floor", "neg", "round", "round_bf16", "round_f16", "sign"), Bound(0.0)),
}
"""By name; the comments in the header say the same."""
LIBRARY = dict.fromkeys(("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "tan"), Bound(3.0))
"""Functions of the C library: what the one at hand is trusted with."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a sweep found.

    Attributes:
        error: the worst one, in units of the last place.
        at: the operand with that error.
        wrong: results that are NaN where they should not be, or the other way round, or zeros of the wrong sign.
        wrong_at: an operand of these.
    """

    error: float
    at: float
    wrong: int
    wrong_at: float


def build(command: Sequence[str], flags: Sequence[str], program: Path) -> None:
    """Compile the sweep with the flags of kernels; it needs no libraries, where it is emulated.

    Raises:
        CalledProcessError: it does not compile.
    """
    folder = program.parent
    for name, text in headers().items():
        (folder / name).write_text(text, encoding="utf-8")
    arguments = [*command, *flags, f"-I{folder}", str(_SOURCE), "-o", str(program), "-static", "-lm"]
    subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=_COMPILE_SECONDS)


def sweep(
    program: Sequence[str], names: Sequence[str], *, stride: int = 1, jobs: int | None = None
) -> dict[str, Finding]:
    """Run the sweep over every `stride`-th bit pattern; return what it found of each function.

    Args:
        program: the command, an emulator in front if it needs one.
        names: of the functions.
        stride: 1 for all patterns; else odd, so that all low bits are seen.
        jobs: processes that run at the same time; None for one a processor.
    """
    size = PATTERNS // (_SLICES if stride == 1 else 1)
    slices = [(name, first) for name in names for first in range(0, PATTERNS, size)]
    bounds = BOUNDS | LIBRARY

    def run(part: tuple[str, int]) -> Finding:
        name, first = part
        arguments = [name, str(first), str(first + size), str(stride), str(bounds[name].absolute)]
        done = subprocess.run([*program, *arguments], check=True, capture_output=True, text=True)
        error, at, wrong, wrong_at = done.stdout.split()
        return Finding(float(error), _float(int(at)), int(wrong), _float(int(wrong_at)))

    found: dict[str, Finding] = {}
    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        for (name, _), finding in zip(slices, pool.map(run, slices), strict=True):
            found[name] = _worse(found[name], finding) if name in found else finding
    return found


def complaint(name: str, found: Finding) -> str | None:
    """Return what is wrong with a function, if anything is."""
    bound = (BOUNDS | LIBRARY)[name]
    if found.wrong:
        return f"{name}: {found.wrong} results of another kind, of {found.wrong_at!r} for one"
    if found.error > bound.ulp:
        return f"{name}: off by {found.error:.3f} ulp at {found.at!r}, where {bound.ulp:g} are allowed"
    return None


def _worse(first: Finding, second: Finding) -> Finding:
    worst = max(first, second, key=lambda finding: finding.error)
    other = first if first.wrong else second
    return Finding(worst.error, worst.at, first.wrong + second.wrong, other.wrong_at)


def _float(pattern: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", pattern))[0])
