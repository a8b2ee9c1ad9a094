"""Compare two runs of the benchmarks: which ratios do not agree within the intervals that the runs themselves gave.

    python benchmarks/agreement.py first.json second.json

Two ratios agree if their intervals meet. Prints those that do not, and how many did; the exit code is 1 if one did not.
Of two runs of the same code on an idle machine all should agree; of two versions, what disagrees has changed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Ratios = dict[tuple[str, str], Mapping[str, float]]


def main() -> None:
    """Read both documents, print what disagrees."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    first, second = (ratios(json.loads(Path(path).read_text(encoding="utf-8"))) for path in sys.argv[1:])
    shared = first.keys() & second.keys()
    apart = list(disagreements(first, second))
    for line in apart:
        print(line)
    alone = len(first.keys() ^ second.keys())
    print(f"{len(shared) - len(apart)} of {len(shared)} ratios agree; {alone} are in one run only.")
    sys.exit(int(bool(apart) or not shared))


def ratios(document: Mapping[str, Any]) -> Ratios:
    """Return the ratios of a run that have an interval, by model or pattern and by runtime."""
    found = {}
    for entry in [*document["models"], *document["kernels"]]:
        for row in entry.get("rows", ()):
            if "low" in row.get("ratio", ()) and row["runtime"] != "copy":
                found[entry.get("model") or entry["pattern"], row["runtime"]] = row["ratio"]
    return found


def disagreements(first: Ratios, second: Ratios) -> Iterator[str]:
    """Yield a line for every ratio whose two intervals do not meet."""
    for (name, runtime), one in first.items():
        other = second.get((name, runtime), one)
        if one["low"] > other["high"] or other["low"] > one["high"]:
            yield f"{name}, {runtime}: {_told(one)} and {_told(other)}"


def _told(ratio: Mapping[str, float]) -> str:
    return f"{ratio['value']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


if __name__ == "__main__":
    main()
