"""Optimise every backend test of the installed onnx package with forced fusion, and compare with ONNX Runtime.

Prints for each variant how many trials are equal, touched by a generated kernel, opaque, and excluded by which rule.
Exits with 1 if anything fails or is not as tests/conformance/expectations.toml says. docs/conformance.md explains the
figures.

    python -m scripts.conformance
    python -m scripts.conformance --match softmax --variants as-is,frozen
    python -m scripts.conformance --update
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from korch_cli.toolchain import find_compiler
from tests.conformance.cases import all_cases, share
from tests.conformance.expectations import EXPECTATIONS, complaints, read, updated, vanished, worse_counts, write
from tests.conformance.supervising import Supervision, processors
from tests.conformance.variants import VARIANTS
from tests.conformance.verdict import Outcome, Verdict

_COLUMNS = (Outcome.TOUCHED, Outcome.OPAQUE, Outcome.FAILED, Outcome.EXCLUDED)


def main() -> None:
    """Do what the command line says."""
    parser = _parser()
    arguments = parser.parse_args()
    start = time.monotonic()
    expectations = read(EXPECTATIONS)
    cases = all_cases(arguments.folder)
    index, parts = arguments.portion
    chosen = [case for case in cases if arguments.match in case.id and share(case.id, parts) == index]
    if not chosen:
        parser.error("no case matches")
    whole = len(chosen) == len(cases) and len(arguments.variants) == len(VARIANTS)
    if arguments.update and (arguments.primitives or not whole):
        parser.error("expectations are only rewritten after a run of everything")
    compiler = None if arguments.primitives else find_compiler(None)
    supervision = Supervision(arguments.variants, arguments.folder.resolve(), compiler, expectations.skipped)
    verdicts = supervision.judge_all(chosen, arguments.jobs, _progress)
    print(_table(verdicts, len(chosen)))
    if arguments.reasons:
        print(_histogram(verdicts))
    if arguments.update:
        expectations = updated(expectations, verdicts)
        write(expectations, EXPECTATIONS)
    found = complaints(expectations, verdicts)
    if whole:
        found += vanished(expectations, supervision.keys(cases)) + worse_counts(expectations, verdicts)
    for sentence in found:
        print(f"FAILED  {sentence}")
    print(f"{len(found)} complaints, {time.monotonic() - start:.0f} s", file=sys.stderr)
    sys.exit(1 if found else 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.conformance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--match", default="", metavar="TEXT", help="only cases with TEXT in their id")
    parser.add_argument(
        "--portion", type=_portion, default=(0, 1), metavar="K/N", help="only the share K, from 0, of N shares by hash"
    )
    parser.add_argument(
        "--variants", type=_variants, default=tuple(VARIANTS), metavar="NAMES", help=f"of {','.join(VARIANTS)}"
    )
    parser.add_argument("--primitives", action="store_true", help="compute primitives in numpy, compile nothing")
    parser.add_argument("--reasons", action="store_true", help="count why trials have no generated kernel")
    parser.add_argument("--update", action="store_true", help="rewrite expectations.toml")
    parser.add_argument("--jobs", type=int, default=processors(), metavar="N", help="processes at the same time")
    folder = Path("build/conformance")
    parser.add_argument("--folder", type=Path, default=folder, help="where cases and compiled kernels are kept")
    return parser


def _portion(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise argparse.ArgumentTypeError("write K/N with K from 0 to N-1")
    return int(match[1]), int(match[2])


def _variants(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(text.split(",")))
    unknown = [name for name in names if name not in VARIANTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no variant {', '.join(unknown)}")
    return names


def _progress(done: int, total: int) -> None:
    end = "\r" if sys.stderr.isatty() and done < total else "\n"
    print(f"{done} of {total} batches", end=end, file=sys.stderr, flush=True)


def _table(verdicts: Sequence[Verdict], cases: int) -> str:
    """Return the figures by variant, and the rules that exclude trials."""
    counts = Counter((verdict.variant, verdict.outcome) for verdict in verdicts)
    lines = [f"{cases} cases", f"{'':10} {'trials':>7} {'equal':>7} " + " ".join(f"{c:>8}" for c in _COLUMNS)]
    for variant in VARIANTS:
        row = [counts[variant, outcome] for outcome in _COLUMNS]
        if sum(row):
            lines.append(f"{variant:10} {sum(row):7} {row[0] + row[1]:7} " + " ".join(f"{n:8}" for n in row))
    rules = Counter((v.variant, v.reason) for v in verdicts if v.outcome is Outcome.EXCLUDED)
    lines += [f"excluded  {variant:10} {count:5}  {rule}" for (variant, rule), count in sorted(rules.items())]
    return "\n".join(lines)


def _histogram(verdicts: Sequence[Verdict]) -> str:
    """Return why trials have no generated kernel, the most frequent reason first, with one trial of each."""
    found: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.outcome is Outcome.OPAQUE:
            for reason in dict.fromkeys(re.sub(r"'[^']*'", "'…'", reason) for reason in verdict.reasons):
                found.setdefault(reason, []).append(verdict.key)
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    return "\n".join(f"opaque  {len(keys):5}  {reason}  [{keys[0]}]" for reason, keys in ordered)


if __name__ == "__main__":
    main()
