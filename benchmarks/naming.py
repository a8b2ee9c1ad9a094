"""Names on a command line: a wrong one is an error that lists the right ones, never an empty result."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Container, Iterable, Sequence
from pathlib import Path


def known_names(
    parser: argparse.ArgumentParser, wanted: Sequence[str] | None, known: Iterable[str], kind: str
) -> tuple[str, ...]:
    """Return what was asked for, each once, in the order in which it is known; everything if nothing was asked for.

    Args:
        parser: ends the process with exit code 2 and a sentence if a name is unknown.
        wanted: names from the command line.
        known: all that there are.
        kind: what they are names of, in the singular.
    """
    every = tuple(known)
    unknown = [name for name in wanted or () if name not in every]
    if unknown:
        parser.error(f"no such {kind}: {', '.join(unknown)}; there are: {'; '.join(every)}")
    return tuple(name for name in every if not wanted or name in wanted)


def part_names(parser: argparse.ArgumentParser, part: str, known: Iterable[str], kind: str) -> tuple[str, ...]:
    """Return the names that hold `part`; if there are none, `parser` ends the process as above."""
    every = tuple(known)
    found = tuple(name for name in every if part in name)
    if not found:
        parser.error(f"no {kind} has {part!r} in its name; there are: {'; '.join(every)}")
    return found


def names_with_files(
    parser: argparse.ArgumentParser,
    wanted: Sequence[str] | None,
    known: Iterable[str],
    folder: Path,
    measured: Container[str] = (),
) -> tuple[str, ...]:
    """Return the models that were asked for, all of which have a file in `folder`, or all models that have one.

    Those in `measured` need no file. Models that nobody asked for and that are not there are named on stderr. `parser`
    ends the process as above if a name is unknown, a file is missing, or there is no model at all.
    """
    names = known_names(parser, wanted, known, "model")
    absent = [name for name in names if name not in measured and not (folder / f"{name}.onnx").is_file()]
    fetch = f"python models/fetch.py {' '.join(absent) if wanted else '--all'} -o {folder}"
    if absent and (wanted or len(absent) == len(names)):
        parser.error(f"not in {folder}: {', '.join(absent) if wanted else 'any model'}; {fetch}")
    if absent:
        print(f"left out, as they are not in {folder}: {', '.join(absent)}; {fetch}", file=sys.stderr)
    return tuple(name for name in names if name not in absent)
