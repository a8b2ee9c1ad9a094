"""From the input file to what is optimised: a loaded model, with files and inputs to run it by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from korch_cli.algebra import simplify
from korch_cli.core.errors import MissingError, ModelError
from korch_cli.core.model import Model, UnrolledModel
from korch_cli.core.randomness import is_random
from korch_cli.core.types import Array, TensorType
from korch_cli.emit import save_model, with_given
from korch_cli.load import load, reload, unroll
from korch_cli.pipeline.settings import Settings
from korch_cli.pipeline.ways import REWRITTEN, WRITTEN
from korch_cli.verify import Subject, draw_inputs, first_failure

_INPUT_SETS = 3
_ATTEMPTS = 24
_TOO_NEW = ("Unsupported model IR version", "is under development", "is till opset")
"""What ONNX Runtime says of models that are newer than it is."""


@dataclass(frozen=True, slots=True)
class Runnable:
    """A model as a file, with inputs.

    Attributes:
        path: the file.
        feeds: sets of inputs.
    """

    path: Path
    feeds: Sequence[Mapping[str, Array]]


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is optimised.

    Attributes:
        unrolled: the loaded model with the bodies of its control flow.
        whole: the loaded model, as its users run it.
        flat: the model with the bodies beside it, in which every node runs once.
        rewritten: another way to write `unrolled.flat`; None where there is none.
        rewritten_flat: `rewritten` as a file; None without it.
        random: what random operators of the main graph draw.
        compared: `whole` as outputs are compared: `random` is given. `flat_compared` is the same of `flat`.
    """

    unrolled: UnrolledModel
    whole: Runnable
    flat: Runnable
    rewritten: Model | None
    rewritten_flat: Runnable | None
    random: Mapping[str, TensorType]
    compared: Runnable
    flat_compared: Runnable

    @property
    def runnables(self) -> Mapping[str, Runnable]:
        """The ways to write the flat model as files, by name."""
        found = {WRITTEN: self.flat}
        return found if self.rewritten_flat is None else found | {REWRITTEN: self.rewritten_flat}


def prepare(settings: Settings, folder: Path) -> Prepared:
    """Load the model and write what can be run of it into `folder`.

    Bodies of control flow that do not run on inputs of their own are left as they are: often they are for other shapes.

    Raises:
        ModelError: as `load` does; or an input cannot be fed, or ONNX Runtime does not run the model.
        MissingError: this ONNX Runtime is too old for the model.
        UsageError: as `load` does, or `settings.inputs` do not fit.
    """
    model = load(settings.source, settings.bindings)
    whole = _runnable(model, settings, folder / "prepared.onnx")
    _check_runs(whole, settings)
    random = dict(_random(model))
    compared = _compared(model, whole, random, settings, folder / "compared.onnx")
    unrolled, flat = _unrolled(model, whole, settings, folder)
    flat_compared = compared
    if flat is not whole:
        flat_compared = _compared(unrolled.flat, flat, random, settings, folder / "flat-compared.onnx")
    rewritten, rewritten_flat = _rewritten(unrolled.flat, flat, settings, folder / "rewritten.onnx")
    return Prepared(unrolled, whole, flat, rewritten, rewritten_flat, random, compared, flat_compared)


def _unrolled(model: Model, whole: Runnable, settings: Settings, folder: Path) -> tuple[UnrolledModel, Runnable]:
    """Return the model with the bodies that run beside it, and that as a file."""
    without: set[str] = set()
    for _ in range(_ATTEMPTS):
        unrolled = unroll(model, without)
        if not unrolled.bodies:
            break
        flat = _runnable(unrolled.flat, settings, folder / "flat.onnx")
        subject = Subject("the model with its subgraphs beside it", flat.path, None, optimize=False)
        failure = first_failure(subject, flat.feeds[0], settings.threads)
        if failure is None:
            return unrolled, flat
        named = [body.prefix for body in unrolled.bodies if body.prefix in failure.sentence]
        if not named:
            break
        # The outer bodies' prefixes are parts of the inner ones'.
        without.add(max(named, key=len))
    return UnrolledModel(model, model, ()), whole


def _rewritten(model: Model, flat: Runnable, settings: Settings, path: Path) -> tuple[Model | None, Runnable | None]:
    """Return a flat model in another way, and that as a file; None where there is no other that runs."""
    found = simplify(model, portable=settings.portable)
    if found is None:
        return None, None
    rewritten = reload(model, found.proto, found.sentence)
    save_model(rewritten.proto, model.path.parent, path)
    subject = Subject("the rewritten model", path, None, optimize=False)
    if first_failure(subject, flat.feeds[0], settings.threads) is not None:
        return None, None
    return rewritten, Runnable(path, flat.feeds)


def _random(model: Model) -> Iterator[tuple[str, TensorType]]:
    for operator in model.operators:
        if is_random(operator.op_type, operator.domain):
            yield from ((name, model.types[name]) for name in operator.outputs if name in model.types)


def _compared(
    model: Model, runnable: Runnable, random: Mapping[str, TensorType], settings: Settings, path: Path
) -> Runnable:
    if not random:
        return runnable
    given = replace(model, inputs=(*model.inputs, *random), proto=with_given(model.proto, random))
    return _runnable(given, settings, path)


def _runnable(model: Model, settings: Settings, path: Path) -> Runnable:
    save_model(model.proto, model.path.parent, path)
    for name in model.inputs:
        if name not in model.types:
            raise ModelError("an input is no tensor of a type that korch can make, so it cannot be fed", where=name)
    inputs = [(name, model.types[name]) for name in model.inputs]
    sets = draw_inputs(path, inputs, seed=settings.seed, runs=_INPUT_SETS, given=settings.inputs)
    return Runnable(path, sets)


def _check_runs(whole: Runnable, settings: Settings) -> None:
    failure = first_failure(Subject("input", whole.path, None, optimize=False), whole.feeds[0], settings.threads)
    if failure is None:
        return
    message, where = f"ONNX Runtime does not run the model: {failure.sentence}", settings.source.name
    if failure.stage == "open" and any(word in failure.sentence for word in _TOO_NEW):
        raise MissingError(message, where=where, hint="upgrade it: pip install --upgrade onnxruntime")
    hint = "if it needs particular inputs, give them with --inputs FILE.npz" if failure.stage == "run" else None
    raise ModelError(message, where=where, hint=hint)
