"""Trials in batches, in child processes: what crashes or hangs there is found, and never lost."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from korch_cli.toolchain import Compiler
from tests.conformance.cases import Case, is_random
from tests.conformance.examining import Request
from tests.conformance.variants import Trial, trials
from tests.conformance.verdict import Journal, Outcome, Verdict

_ROOT = Path(__file__).parents[2]
_BATCH_SECONDS = 900
CASES_PER_BATCH = 50


@dataclass(frozen=True, slots=True)
class Supervision:
    """How trials are examined.

    Attributes:
        variants: the forms in which a case is tried.
        objects: where compiled kernels are kept.
        compiler: builds kernels; None to check the primitive graphs alone.
        skipped: trials that are left out.
        seconds: that planning or running one trial may take.
    """

    variants: tuple[str, ...]
    objects: Path
    compiler: Compiler | None
    skipped: frozenset[str] = frozenset()
    seconds: float = 120.0

    def judge_all(
        self, cases: Sequence[Case], jobs: int, progress: Callable[[int, int], None] = lambda _done, _all: None
    ) -> list[Verdict]:
        """Return a verdict on every trial of every case, sorted by key; random cases have none.

        Args:
            cases: what to try.
            jobs: child processes at the same time.
            progress: told how many batches are done, and of how many.
        """
        count = -(-len(cases) // CASES_PER_BATCH)
        # Neighbours are alike, so that dealing them out makes batches that take about the same time.
        batches = [cases[start::count] for start in range(count)]
        verdicts: list[Verdict] = []
        with ThreadPoolExecutor(jobs) as pool:
            futures = [pool.submit(self.judge, batch) for batch in batches]
            for done, future in enumerate(as_completed(futures), 1):
                verdicts += future.result()
                progress(done, count)
        return sorted(verdicts, key=lambda verdict: verdict.key)

    def judge(self, cases: Iterable[Case]) -> list[Verdict]:
        """Return a verdict on every trial of these cases, which share a child process and a library."""
        return self._judged(tuple(trial for trial in self._trials(cases) if trial.key not in self.skipped))

    def keys(self, cases: Iterable[Case]) -> set[str]:
        """Return the keys of all trials of these cases, those that are skipped among them."""
        return {trial.key for trial in self._trials(cases)}

    def _trials(self, cases: Iterable[Case]) -> Iterator[Trial]:
        for case in cases:
            if not is_random(case):
                yield from trials(case, self.variants)

    def _judged(self, batch: tuple[Trial, ...]) -> list[Verdict]:
        """Examine a batch; if its process ends early, each half again, down to the trial that ends it."""
        if not batch:
            return []
        verdicts, culprit, end = self._examined(batch)
        if not end:
            return verdicts
        if len(batch) == 1:
            return [Verdict(batch[0].key, Outcome.FAILED, (end,))]
        half = len(batch) // 2
        found = self._judged(batch[:half]) + self._judged(batch[half:])
        if any(verdict.outcome is Outcome.FAILED for verdict in found):
            return found
        alone = Verdict(culprit or batch[0].key, Outcome.FAILED, (f"{end}, but only together with other trials",))
        return [alone if verdict.key == alone.key else verdict for verdict in found]

    def _examined(self, batch: tuple[Trial, ...]) -> tuple[list[Verdict], str, str]:
        """Return the verdicts of a child process, the trial that it was at, and how it ended ("" for well)."""
        with tempfile.TemporaryDirectory(prefix="conformance-") as scratch:
            folder = Path(scratch)
            request, journal = folder / "request.pickle", Journal(folder / "journal")
            request.write_bytes(pickle.dumps(Request(batch, folder, self.objects, self.compiler, self.seconds)))
            command = [sys.executable, "-m", "tests.conformance.examining", str(request), str(folder / "journal")]
            with (folder / "log").open("w+") as log:
                child = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                try:
                    child.wait(_BATCH_SECONDS)
                except subprocess.TimeoutExpired:
                    pass
                finally:
                    child.kill()
                    child.wait()
                log.seek(0)
                said = log.read()
            verdicts, (key, stage) = journal.verdicts(), journal.last()
            if {verdict.key for verdict in verdicts} == {trial.key for trial in batch}:
                return verdicts, "", ""
            return verdicts, key, f"{stage}: {_end(child.returncode, said)}"


def _end(code: int, said: str) -> str:
    if "Timeout (" in said or code == -signal.SIGKILL:
        return "it takes too long"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    how = f"crash with {signal.Signals(-code).name}" if code < 0 else f"the process ends with exit code {code}"
    return f"{how}: {lines[-1][:300]}" if lines else how


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0))
