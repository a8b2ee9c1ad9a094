"""From a file to a model with static shapes."""

from __future__ import annotations

from pathlib import Path

import onnx

from korch_cli.core.model import Bindings, Model
from korch_cli.load.bind import bind
from korch_cli.load.constants import lift_constants
from korch_cli.load.describe import describe
from korch_cli.load.domain import name_default_domain
from korch_cli.load.fold import fold
from korch_cli.load.infer import take_stated
from korch_cli.load.inline import inline
from korch_cli.load.order import sort
from korch_cli.load.read import read_model


def load(path: Path, bindings: Bindings) -> Model:
    """Read a model and prepare it: every stage after this one sees static shapes and sorted, named nodes.

    Raises:
        UsageError: the file is missing, or the bindings do not fit the model's inputs or leave some open.
        ModelError: the file is no valid ONNX model.
    """
    proto = read_model(path)
    name_default_domain(proto)
    notes = bind(proto, bindings)
    proto, inlined = inline(proto, path)
    notes += inlined
    lift_constants(proto)
    sort(proto.graph)
    folded = fold(proto, take_stated(proto), path.parent)
    if folded:
        notes.append(f"Folded into constants: {folded} node{'s' if folded > 1 else ''}.")
    return describe(proto, path, tuple(notes))


def reload(model: Model, proto: object, note: str) -> Model:
    """Return a loaded model after its protobuf was changed; `note` says how."""
    assert isinstance(proto, onnx.ModelProto)
    fold(proto, take_stated(proto), model.path.parent)
    return describe(proto, model.path, (*model.notes, note))
