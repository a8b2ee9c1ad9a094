"""The child process: optimises a batch of trials with forced fusion, and finds out whether each came out right.

python -m tests.conformance.examining REQUEST JOURNAL
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import pickle
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from korch_cli.core.errors import KorchError
from korch_cli.core.primitive import Opaque
from korch_cli.fission import fission
from korch_cli.pipeline import Fusion, build_fusions, plan_fusion
from korch_cli.rewrite import rewrite
from korch_cli.toolchain import Compiler
from tests.conformance.comparing import difference
from tests.conformance.interpreting import interpret
from tests.conformance.promises import broken_promise
from tests.conformance.running import Session, UnfeedableError
from tests.conformance.variants import Trial
from tests.conformance.verdict import Journal, Outcome, Verdict

_MOST_PRIMITIVES = 6
"""In a kernel. Expanded functions have dozens of primitives, and larger kernels of them are combinations of these."""
_BUILD_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Request:
    """What a child process is to do.

    Attributes:
        trials: what to try.
        folder: empty, for models and libraries.
        objects: where compiled kernels are kept.
        compiler: builds kernels; None to check the primitive graphs alone.
        seconds: that planning or running one trial may take.
    """

    trials: tuple[Trial, ...]
    folder: Path
    objects: Path
    compiler: Compiler | None
    seconds: float


@dataclass(frozen=True, slots=True)
class _Subject:
    """A trial that could be optimised.

    Attributes:
        trial: the trial.
        answers: what ONNX Runtime answers without korch, None if it does not.
        excluded: why there are no answers.
        fusion: what korch made of the model.
        output: the file that it writes.
    """

    trial: Trial
    answers: list[Any] | None
    excluded: str
    fusion: Fusion
    output: Path


class _Fault(Exception):  # noqa: N818 - a finding, not an error of this program
    """A trial did not come out right; the argument says how."""


def examine(request: Request, journal: Journal) -> None:
    """Write a verdict on every trial to the journal."""
    # The solver is imported late; that is not the first trial's time.
    importlib.import_module("ortools.sat.python.cp_model")
    subjects = []
    for number, trial in enumerate(request.trials):
        with _judged(trial, "planning", journal, request.seconds):
            subjects.append(_planned(trial, request.folder / f"{number}.onnx"))
    if request.compiler is None:
        for subject in subjects:
            journal.conclude(_success(subject))
        return
    for group, library in _built(subjects, request, request.compiler, journal):
        for subject in group:
            with _judged(subject.trial, "running", journal, request.seconds):
                _check_output(subject, library)
                journal.conclude(_success(subject))


@contextlib.contextmanager
def _judged(trial: Trial, stage: str, journal: Journal, seconds: float) -> Iterator[None]:
    """Turn whatever goes wrong inside into a verdict, and end the process if it takes too long."""
    journal.begin(trial.key, stage)
    _watch(seconds)
    try:
        yield
    except _Fault as fault:
        journal.conclude(Verdict(trial.key, Outcome.FAILED, (str(fault),)))
    except Exception as error:
        words = f"{stage}: {type(error).__name__}: {_first_line(error)}"
        journal.conclude(Verdict(trial.key, Outcome.FAILED, (words,)))
    finally:
        faulthandler.cancel_dump_traceback_later()


def _watch(seconds: float) -> None:
    """End the process in some time, wherever it is then, unless that is called off."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or sys.stderr)


def _planned(trial: Trial, source: Path) -> _Subject:
    source.write_bytes(trial.model)
    answers, excluded = _reference(trial)
    fusion = plan_fusion(source, trial.bindings, max_primitives=_MOST_PRIMITIVES)
    if answers is not None:
        # Bodies of control flow lie in the graph too, where they have inputs of their own.
        model, graph = fusion.model.model, fusion.graph
        graph = rewrite(fission(model)) if fusion.model.bodies else graph
        wrong = _wrong_answers(interpret(model, graph, trial.feeds), answers, trial)
        if wrong:
            raise _Fault(f"primitives: {wrong}")
    return _Subject(trial, answers, excluded, fusion, source.with_suffix(".out.onnx"))


def _reference(trial: Trial) -> tuple[list[Any] | None, str]:
    """Return what ONNX Runtime answers; or None, and why it does not."""
    try:
        session = Session(trial.oracle)
    except Exception:  # of which there is a class for each status
        return None, "ONNX Runtime cannot load the model"
    try:
        return session.run(trial.feeds), ""
    except UnfeedableError:
        return None, "Python cannot feed or fetch an element type"
    except Exception:
        return None, "ONNX Runtime cannot run the model"


def _built(
    subjects: Sequence[_Subject], request: Request, compiler: Compiler, journal: Journal
) -> Iterator[tuple[Sequence[_Subject], Path]]:
    """Yield groups with the library of each: a single one, unless some cannot be built."""
    if not subjects:
        return
    library = request.folder / f"{subjects[0].output.stem}-{len(subjects)}.so"
    journal.begin(subjects[0].trial.key, "building")
    _watch(_BUILD_SECONDS)
    try:
        outputs = [subject.output for subject in subjects]
        build_fusions([s.fusion for s in subjects], outputs, library, compiler, request.objects, jobs=1)
    except Exception as error:
        if len(subjects) == 1:
            words = f"building: {type(error).__name__}: {_first_line(error)}"
            journal.conclude(Verdict(subjects[0].trial.key, Outcome.FAILED, (words,)))
            return
        half = len(subjects) // 2
        yield from _built(subjects[:half], request, compiler, journal)
        yield from _built(subjects[half:], request, compiler, journal)
        return
    finally:
        faulthandler.cancel_dump_traceback_later()
    yield subjects, library


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _all_nodes(attribute.g)


def _check_output(subject: _Subject, library: Path) -> None:
    """Raise _Fault unless the output keeps its promises and answers the same.

    One with kernels runs three times: as it is deployed, without its functions, so that kernels have to run, and
    without its library, so that functions have to.
    """
    trial = subject.trial
    before, after = onnx.ModelProto.FromString(trial.model), onnx.load(subject.output)
    custom = sum(node.domain.startswith("korch.") for node in _all_nodes(after.graph))
    if custom != subject.fusion.kernels:
        raise _Fault(f"{subject.fusion.kernels} kernels are planned, but there are {custom} custom nodes")
    shapes = {name: value.shape for name, value in trial.feeds.items() if isinstance(value, np.ndarray)}
    broken = broken_promise(before, after, shapes, subject.answers or ())
    if broken:
        raise _Fault(f"promise: {broken}")
    if subject.answers is None:
        return
    ways: list[tuple[str, Path | bytes, Path | None]] = [("output", subject.output, library)]
    if after.functions:
        del after.functions[:]
        ways += [("kernels", after.SerializeToString(), library), ("functions", subject.output, None)]
    for name, model, used in ways:
        wrong = _wrong_answers(Session(model, used).run(trial.feeds), subject.answers, trial)
        if wrong:
            raise _Fault(f"{name}: {wrong}")


def _wrong_answers(got: Sequence[Any], want: Sequence[Any], trial: Trial) -> str | None:
    if len(got) != len(want):
        return f"{len(want)} outputs became {len(got)}"
    for index, (g, w) in enumerate(zip(got, want, strict=True)):
        sentence = difference(g, w, trial.rtol, trial.atol)
        if sentence:
            disputed = difference(w, trial.expected[index], trial.rtol, trial.atol) is not None
            note = " (the package's own answer differs from ONNX Runtime's)" if disputed else ""
            return f"output {index}: {sentence}{note}"
    return None


def _success(subject: _Subject) -> Verdict:
    key = subject.trial.key
    if subject.answers is None:
        return Verdict(key, Outcome.EXCLUDED, (subject.excluded,))
    if subject.fusion.kernels:
        return Verdict(key, Outcome.TOUCHED)
    return Verdict(key, Outcome.OPAQUE, _why_opaque(subject.fusion))


def _why_opaque(fusion: Fusion) -> tuple[str, ...]:
    """Return why no kernel is generated: what fission and the code generator decline, or plans have no use for."""
    graph = fusion.graph
    found = [f"{fusion.model.flat.operators[i].op_type}: {why}" for i, why in sorted(graph.refusals.items())]
    found += [f"kernel: {why}" for why in fusion.rejected]
    kinds = sorted({type(v.op).__name__ for v in graph.primitives() if not isinstance(v.op, Opaque)})
    if kinds and not found:
        found.append(f"kernel: no plan with one needs fewer operators ({', '.join(kinds)})")
    return tuple(dict.fromkeys(found)) or ("it has nothing to compute",)


def _first_line(error: Exception) -> str:
    message = error.message if isinstance(error, KorchError) else str(error)
    where = f" ({error.where})" if isinstance(error, KorchError) and error.where else ""
    return (message.strip().splitlines() or [""])[0][:300] + where


def main() -> None:
    """Do what the request in the file of the first argument says; the second one names the journal."""
    request: Request = pickle.loads(Path(sys.argv[1]).read_bytes())
    examine(request, Journal(Path(sys.argv[2])))
    # Sessions are not torn down: a library's destructors must not turn verdicts that were given into a crash.
    os._exit(0)


if __name__ == "__main__":
    main()
