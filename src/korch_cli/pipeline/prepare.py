"""From the input file to what is optimised: a loaded model, with files and inputs to run it by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from korch_cli.core.model import Model, UnrolledModel
from korch_cli.core.types import Array
from korch_cli.emit import save_model
from korch_cli.load import load, unroll
from korch_cli.pipeline.settings import Settings
from korch_cli.verify import Subject, draw_inputs, why_it_does_not_run

_INPUT_SETS = 3
_ATTEMPTS = 24


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
        flat: the model with the bodies beside it, in which every node runs once; `whole` if there are none.
    """

    unrolled: UnrolledModel
    whole: Runnable
    flat: Runnable


def prepare(settings: Settings, folder: Path) -> Prepared:
    """Load the model and write what can be run of it into `folder`.

    Bodies of control flow that do not run on inputs of their own are left as they are: often they are for other shapes.

    Raises:
        KorchError: as `load` does.
    """
    model = load(settings.source, settings.bindings)
    whole = _runnable(model, settings, folder / "prepared.onnx")
    without: set[str] = set()
    for _ in range(_ATTEMPTS):
        unrolled = unroll(model, without)
        if not unrolled.bodies:
            break
        flat = _runnable(unrolled.flat, settings, folder / "flat.onnx")
        subject = Subject("the model with its subgraphs beside it", flat.path, None, optimize=False)
        failure = why_it_does_not_run(subject, flat.feeds[0], settings.threads)
        if failure is None:
            return Prepared(unrolled, whole, flat)
        named = [body.prefix for body in unrolled.bodies if body.prefix in failure]
        if not named:
            break
        # The outer bodies' prefixes are parts of the inner ones'.
        without.add(max(named, key=len))
    return Prepared(UnrolledModel(model, model, ()), whole, whole)


def _runnable(model: Model, settings: Settings, path: Path) -> Runnable:
    save_model(model.proto, model.path.parent, path)
    inputs = [(name, model.types[name]) for name in model.inputs]
    sets = draw_inputs(path, inputs, seed=settings.seed, runs=_INPUT_SETS, given=settings.inputs)
    return Runnable(path, sets)
