"""Look for random models that korch changes: optimised with forced fusion, they must compute what they did before.

    python scripts/fuzz.py --seconds 600 --seed 1
    python scripts/fuzz.py --replay build/fuzz/kernels-Add-Softmax

Models are drawn and tried in child processes; one that crashes or hangs is a finding. A finding is made smaller and
written to a folder with its inputs. Exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.trials import Finding

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

GRAPHS = {"primitives": 300, "kernels": 80}
"""Models in one batch: with kernels it is one library, without it is far quicker."""
BATCH_SECONDS = 900.0
REPLAY_SECONDS = 60.0
SHRINK_SECONDS = 90.0
LEVELS = ("primitives", "functions", "kernels")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to go on (default: 600)")
    parser.add_argument("--seed", type=int, default=0, help="the same seed draws the same models (default: 0)")
    parser.add_argument("--jobs", type=int, default=2, help="child processes at the same time (default: 2)")
    parser.add_argument("--level", choices=sorted(GRAPHS), help="only this kind of batch (default: both in turn)")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "fuzz", help="where findings are written")
    parser.add_argument("--replay", type=Path, help="try the one model in this folder again")
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.replay is not None:
        sys.exit(replay(options.replay))
    if options.batch is not None:
        sys.exit(work(options.batch, options.level, options.folder))
    sys.exit(supervise(options))


def supervise(options: argparse.Namespace) -> int:
    """Run batches until the time is up; return the exit code."""
    deadline = time.monotonic() + options.seconds
    total: Counter[str] = Counter()
    options.folder.mkdir(parents=True, exist_ok=True)

    def chain(first: int) -> None:
        number = first
        while time.monotonic() < deadline:
            level = options.level or sorted(GRAPHS)[number // options.jobs % 2]
            summary = batch(options.seed * 1_000_000 + number, level, options.folder)
            total.update({k: v for k, v in summary.items() if isinstance(v, int)})
            print(f"batch {number} ({level}): {json.dumps(summary)}", flush=True)
            number += options.jobs

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(chain, range(options.jobs)))
    judged = f"{total['judged']} of {total['elements']} output elements judged"
    print(f"{total['graphs']} graphs, {total['kernels']} kernels, {judged}, {total['findings']} findings")
    return 1 if total["findings"] else 0


def batch(number: int, level: str, folder: Path) -> dict[str, object]:
    """Run one batch in a child process and return its summary; its death is a finding."""
    journal = folder / f"running-{number}"
    command = [sys.executable, __file__, "--batch", str(number), "--level", level, "--folder", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BATCH_SECONDS, check=False)
        fate = f"it ended with exit code {done.returncode}: {done.stderr.strip()[-2000:]}"
    except subprocess.TimeoutExpired:
        done, fate = None, f"it did not finish within {BATCH_SECONDS:.0f} s"
    if done is not None and done.returncode == 0:
        shutil.rmtree(journal, ignore_errors=True)
        summary: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        return summary
    found = folder / f"crash-{number}"
    shutil.rmtree(found, ignore_errors=True)
    if journal.exists():
        journal.rename(found)
        _shrink_crash(found)
        _explain(found, "crash", fate)
    else:
        print(f"batch {number} of seed and level {level} failed before the first model: {fate}", flush=True)
    return {"findings": 1, "names": [found.name]}


def _shrink_crash(folder: Path) -> None:
    """Make a model smaller that ends its process, in processes of its own."""
    from tests.fuzz.graphs import Network
    from tests.fuzz.records import read, save
    from tests.fuzz.shrinking import shrink

    def dies(network: Network) -> bool:
        with tempfile.TemporaryDirectory(prefix="korch-fuzz-") as scratch:
            save(network, Path(scratch))
            command = [sys.executable, __file__, "--replay", scratch]
            try:
                return subprocess.run(command, capture_output=True, timeout=REPLAY_SECONDS, check=False).returncode < 0
            except subprocess.TimeoutExpired:
                return True

    network = read(folder)
    if dies(network):
        # The shrinker runs nodes here, which may be what ends a process.
        save(shrink(network, dies, SHRINK_SECONDS), folder)


def work(number: int, level: str, folder: Path) -> int:
    """Draw and try the models of one batch; print a summary as JSON."""
    from tests.fuzz.batches import draw, run_batch
    from tests.fuzz.graphs import Network
    from tests.fuzz.records import save

    journal = folder / f"running-{number}"

    def note(network: Network) -> None:
        save(network, journal)

    with tempfile.TemporaryDirectory(prefix="korch-fuzz-") as scratch:
        start = time.monotonic()
        drawn = draw(number, GRAPHS[level])
        spent = time.monotonic() - start
        tally = run_batch(drawn, Path(scratch), kernels=level == "kernels", journal=note)
    names = list(reported(tally.findings, folder))
    summary = {
        "graphs": tally.graphs,
        "kernels": tally.kernels,
        "judged": tally.judged,
        "elements": tally.elements,
        "findings": len(names),
        "names": sorted(set(names)),
        "seconds": {k: round(v, 1) for k, v in {"drawing": spent, **tally.seconds}.items()},
    }
    print(json.dumps(summary))
    return 0


def reported(findings: Sequence[Finding], folder: Path) -> Iterator[str]:
    """Report findings and yield their names; those that read like an earlier one are counted with it."""
    known: dict[str, str] = {}
    for finding in findings:
        words = finding.level + re.sub(r"""['"].*['"]|[0-9.e+-]+""", "", finding.sentence)[:60]
        if words not in known or "differs" in words:
            known[words] = report(finding, folder)
        yield known[words]


def report(finding: Finding, folder: Path) -> str:
    """Make a finding smaller and write it to a folder, which is named after its operators; return the name."""
    from tests.fuzz.batches import judge
    from tests.fuzz.records import save
    from tests.fuzz.shrinking import shrink

    level = finding.level
    small = shrink(finding.network, lambda network: judge(network, level) is not None, SHRINK_SECONDS)
    operators = sorted({node.op_type for node in small.model.graph.node if node.op_type != "Constant"})
    name = "-".join([level, *operators])[:100]
    if not (folder / name).exists():
        save(small, folder / name)
        _explain(folder / name, level, judge(small, level) or finding.sentence)
    return name


def _explain(folder: Path, level: str, sentence: str) -> None:
    text = f"{level}: {sentence}\n\nTry it again with: python scripts/fuzz.py --replay {folder}\n"
    (folder / "finding.txt").write_text(text, encoding="utf-8")
    print(f"{folder.name}: {sentence}", file=sys.stderr)


def replay(folder: Path) -> int:
    """Try one model at every level; return the exit code."""
    from tests.fuzz.batches import judge
    from tests.fuzz.records import read

    network = read(folder)
    wrong = 0
    for level in LEVELS:
        sentence = judge(network, level)
        print(f"{level}: {sentence or 'as expected'}", flush=True)
        wrong += sentence is not None
    return 1 if wrong else 0


if __name__ == "__main__":
    main()
