"""The smallest part of a model on which a check still fails."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import onnx

from korch_cli.core.errors import BudgetError
from korch_cli.core.progress import Progress
from korch_cli.verify.reduction.search import latest_start, minimise, shortest_prefix
from korch_cli.verify.reduction.specimen import FILLINGS, Cut, Specimen
from korch_cli.verify.reduction.trial import Ending, run_check


class OutOfTimeError(Exception):
    """The budget ran out; what was found until then counts."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What a check has to end like to have failed.

    Attributes:
        status: its exit status.
        text: what its output has to contain.
    """

    status: int
    text: str = ""

    def matches(self, ending: Ending) -> bool:
        """Whether a check failed."""
        return ending.status == self.status and self.text in ending.output


@dataclass(frozen=True, slots=True)
class Clock:
    """How long checks may take.

    Attributes:
        deadline: of all of them, on the clock of `time.monotonic`.
        timeout_s: of one of them.
    """

    deadline: float
    timeout_s: float

    def run(self, words: Sequence[str], model: Path) -> Ending:
        """Run a check.

        Raises:
            OutOfTimeError: the deadline came before the check ended.
            UsageError: there is no such program.
        """
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise OutOfTimeError
        ending = run_check(words, model, min(left, self.timeout_s))
        if time.monotonic() >= self.deadline and left < self.timeout_s:
            raise OutOfTimeError
        return ending


def observe(words: Sequence[str], model: Path, clock: Clock) -> Ending:
    """Return how a check of a whole model ends.

    Raises:
        BudgetError: it takes longer than everything together may.
        UsageError: there is no such program.
    """
    try:
        return clock.run(words, model)
    except OutOfTimeError as error:
        hint = "allow more with --budget, or end the check itself earlier with --timeout"
        raise BudgetError("the budget ran out during the check of the whole model", hint=hint) from error


def is_valid(model: Path) -> bool:
    """Whether onnx accepts a model file."""
    try:
        onnx.checker.check_model(str(model))
    except Exception:  # besides ValidationError, onnx raises what its C++ code throws
        return False
    return True


@dataclass(slots=True)
class Reducer:
    """Looks for the smallest failing part of a model.

    Attributes:
        specimen: the whole model.
        check: runs the check on a model file; may raise OutOfTimeError.
        failure: what counts as failing.
        folder: scratch space.
        name: of the model files that the check gets.
        save: writes a protobuf to a file, with the external data that it refers to.
        strict: whether parts have to pass `onnx.checker`.
        progress: told what happens.
        best: the smallest failing part so far; None as long as none failed.
        ending: how the check of `best` ended.
        trials: runs of the check so far.
    """

    specimen: Specimen
    check: Callable[[Path], Ending]
    failure: Failure
    folder: Path
    name: str
    save: Callable[[object, Path], None]
    strict: bool
    progress: Progress
    best: Cut | None = None
    ending: Ending | None = None
    trials: int = 0
    _known: dict[Cut, bool] = field(default_factory=dict)

    def run(self) -> None:
        """Make `best` as small as it gets; it is there, and fails, whenever this is interrupted.

        Raises:
            OutOfTimeError: the deadline came first.
        """
        self.progress.stage("Checking the model as it is written again")
        whole = self.specimen.whole()
        if not self._fails(whole):
            return
        minimise(sorted(whole.unread), lambda names: self._fails(replace(self._current, unread=frozenset(names))))
        self.progress.stage("Leaving out nodes at the end and at the beginning")
        self._ends()
        self.progress.stage("Leaving out nodes anywhere")
        self._nodes()
        self.progress.stage("Leaving out outputs")
        if self._outputs():
            self._nodes()
        self.progress.stage("Making up weights")
        self._weights()

    @property
    def _current(self) -> Cut:
        assert self.best is not None
        return self.best

    def _ends(self) -> None:
        nodes = self._current.nodes
        last = shortest_prefix(len(nodes), lambda k: self._nodes_fail(nodes[:k]))
        # Without its last node the beginning does not fail: only what leads there can matter.
        needed = self.specimen.ancestors(nodes[last - 1])
        self._nodes_fail([i for i in nodes[:last] if i in needed])
        nodes = self._current.nodes
        latest_start(len(nodes), lambda k: self._nodes_fail(nodes[k:]))

    def _nodes(self) -> None:
        minimise(self._current.nodes, self._nodes_fail)

    def _outputs(self) -> bool:
        """Hide all outputs but those that matter; say whether some were hidden."""
        shown = self.specimen.outputs(self._current)
        before = self._current.hidden

        def fails(kept: tuple[str, ...]) -> bool:
            return self._fails(replace(self._current, hidden=before | set(shown).difference(kept)))

        if len(shown) > 1:
            minimise(shown, fails)
        return self._current.hidden != before

    def _weights(self) -> None:
        """Make up the elements of every weight for which they do not matter, in the simplest way that will do."""
        for filling in FILLINGS:
            before = self._current.filled
            done = {name for name, _ in before}
            left = [name for name in self.specimen.weights(self._current) if name not in done]
            if not left:
                return
            minimise(left, partial(self._filled_fails, left, filling))

    def _filled_fails(self, left: Sequence[str], filling: str, real: Sequence[str]) -> bool:
        made_up = {(name, filling) for name in left if name not in real}
        earlier = {(name, how) for name, how in self._current.filled if name not in left}
        return self._fails(replace(self._current, filled=frozenset(earlier | made_up)))

    def _nodes_fail(self, nodes: Sequence[int]) -> bool:
        """Try some nodes; if they do not fail, once more with zeros for new inputs of integers, in range anywhere."""
        kept = self.specimen.closed(nodes)
        if len(kept) >= len(self._current.nodes):
            return kept == self._current.nodes
        cut = replace(self._current, nodes=kept)
        if self._fails(cut):
            return True
        risky = self.specimen.integers(self.specimen.new_inputs(cut))
        return bool(risky) and self._fails(replace(cut, frozen=cut.frozen | risky))

    def _fails(self, cut: Cut) -> bool:
        """Whether the check fails on a part, which is then the best: whoever asks makes the part smaller each time."""
        if cut not in self._known:
            ending = self._tried(cut)
            self._known[cut] = ending is not None and self.failure.matches(ending)
            if self._known[cut]:
                self.best, self.ending = cut, ending
        return self._known[cut]

    def _tried(self, cut: Cut) -> Ending | None:
        """Run the check on a part; None if it is no valid model."""
        proto = self.specimen.build(cut)
        if proto is None:
            return None
        place = self.folder / f"trial{self.trials}"
        place.mkdir()
        try:
            model = place / self.name
            self.save(proto, model)
            if self.strict and not is_valid(model):
                return None
            self.trials += 1
            whole, kept = len(self.specimen.nodes), len(self._current.nodes if self.best else cut.nodes)
            self.progress.step(whole - kept, whole, f"{kept} of {whole} nodes left, trial {self.trials}")
            return self.check(model)
        finally:
            shutil.rmtree(place, ignore_errors=True)
