"""The story of `korch reduce`: a model on which a command fails becomes the smallest one on which it still does."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from korch_cli.core.companions import library_beside
from korch_cli.core.model import Bindings
from korch_cli.core.progress import Progress
from korch_cli.core.record import PartRecord, ReduceRecord
from korch_cli.emit import save_model, staging, write_set
from korch_cli.load import read_whole
from korch_cli.verify import find_library
from korch_cli.verify.reduction import (
    Clock,
    Ending,
    Failure,
    OutOfTimeError,
    Reducer,
    Specimen,
    is_valid,
    measure_part,
    observe,
    operator_types,
)


@dataclass(frozen=True, slots=True)
class ReduceSettings:
    """The choices of one run.

    Attributes:
        source: the model on which the check fails.
        output: the model to write.
        check: the command, in words; `{}` in a word stands for a model's path, which comes last if no word has it.
        bindings: values of symbolic dimensions, which the models that the check gets have then.
        exit_code: the exit status that counts as failing; None for that of the check on the whole model.
        match: what the check's output has to contain to count as failing.
        timeout_s: seconds that one run of the check may take.
        budget_s: seconds that all of them together may take.
        seed: of made-up weights.
    """

    source: Path
    output: Path
    check: tuple[str, ...]
    bindings: Bindings
    exit_code: int | None = None
    match: str = ""
    timeout_s: float = 600.0
    budget_s: float = 3600.0
    seed: int = 0


_ENDS: Mapping[str, str] = {
    "minimal": "Nothing more can be left out of it.",
    "budget": "The budget ran out; with more time it may become smaller.",
    "interrupted": "The search was interrupted; with more time it may become smaller.",
    "terminated": "The search was terminated; with more time it may become smaller.",
}


def reduce_model(settings: ReduceSettings, progress: Progress) -> ReduceRecord:
    """Write the smallest part of a model on which the check still fails.

    When the budget runs out, or on Ctrl-C and SIGTERM once a part has failed, the smallest part so far is written.

    Raises:
        UsageError: a dimension has no number, or the check is no program.
        ModelError: the file is no valid ONNX model.
        MissingError: the output cannot be written.
        BudgetError: the time ran out before the whole model was checked.
    """
    start = time.monotonic()
    progress.stage("Reading the model")
    whole = read_whole(settings.source, settings.bindings)
    specimen = Specimen(whole.proto, whole.types, whole.static, whole.constants, settings.seed)
    clock = Clock(start + settings.budget_s, settings.timeout_s)
    with tempfile.TemporaryDirectory(prefix="korch-reduce-") as scratch:
        complete = settings.source
        if settings.bindings.dims or settings.bindings.shapes:
            complete = Path(scratch) / settings.source.name
            _save(whole.proto, settings.source, complete)
        progress.stage("Running the check on the whole model")
        first = observe(settings.check, complete, clock)
        status = first.status if settings.exit_code is None else settings.exit_code
        failure = Failure(status, settings.match)
        before = measure_part(whole.proto)
        if status == 0 or not failure.matches(first):
            reason = _why_not(first, settings)
            return _record(settings, status, "nothing", reason, before, before, (), first, 0, start)
        reducer = Reducer(
            specimen=specimen,
            check=lambda path: clock.run(settings.check, path),
            failure=failure,
            folder=Path(scratch),
            name=settings.source.name,
            save=lambda proto, path: _save(proto, settings.source, path),
            strict=is_valid(complete),
            progress=progress,
        )
        ended = _run(reducer)
    if reducer.best is None:
        reason = "The check fails on the model, but not once it is written again without its comments and metadata."
        return _record(settings, status, "nothing", reason, before, before, (), first, reducer.trials, start)
    assert reducer.ending is not None
    part = specimen.build(reducer.best)
    written = _write(part, settings)
    after = measure_part(part)
    reason = f"The check still ends with {status} on this part of the model. {_ENDS[ended]}"
    types = operator_types(part)
    return _record(
        settings, status, ended, reason, before, after, types, reducer.ending, reducer.trials, start, written
    )


def _run(reducer: Reducer) -> str:
    """Search until nothing more can be left out, or something ends it; say what."""
    try:
        reducer.run()
    except OutOfTimeError:
        return "budget"
    except BaseException as stop:
        # An interruption is no reason to lose what was found; before that, it is one like any other.
        if isinstance(stop, Exception) or reducer.best is None:
            raise
        return "interrupted" if isinstance(stop, KeyboardInterrupt) else "terminated"
    return "minimal"


def _why_not(ending: Ending, settings: ReduceSettings) -> str:
    if ending.status == 0 and settings.exit_code is None:
        return "The check passes on the whole model: there is nothing to reduce."
    if settings.exit_code not in (None, ending.status):
        return f"The check ends with {ending.status} on the whole model, and not with {settings.exit_code}."
    return f"The check ends with {ending.status} on the whole model, but its output lacks {settings.match!r}."


def _save(part: object, source: Path, path: Path) -> None:
    """Write a part, and beside it a link to the kernel library if it is one of a model that korch wrote."""
    save_model(part, source.parent, path)
    library = find_library(source)
    if library is not None:
        library_beside(path).symlink_to(library.resolve())


def _write(part: object, settings: ReduceSettings) -> tuple[Path, ...]:
    """Write the part, its external data and the library that it needs, all or none; return their paths, it first."""
    with staging(settings.output.parent) as staged:
        model = staged / settings.output.name
        _save(part, settings.source, model)
        data, linked, library = model.with_name(f"{model.name}.data"), find_library(model), staged / "library"
        files = {settings.output.with_name(data.name): data} if data.exists() else {}
        if linked is not None:
            shutil.copyfile(linked, library)
            files[library_beside(settings.output)] = library
        write_set({**files, settings.output: model})
    return (settings.output, *files)


def _record(
    settings: ReduceSettings,
    status: int,
    ended: str,
    reason: str,
    before: PartRecord,
    after: PartRecord,
    operators: tuple[str, ...],
    ending: Ending,
    trials: int,
    start: float,
    written: tuple[Path, ...] = (),
) -> ReduceRecord:
    return ReduceRecord(
        model=str(settings.source),
        written=tuple(map(str, written)),
        check=settings.check,
        check_status=status,
        reduced=bool(written),
        ended=ended,
        reason=reason,
        before=before,
        after=after,
        operators=operators,
        message=ending.message,
        trials=trials,
        seconds=time.monotonic() - start,
    )
