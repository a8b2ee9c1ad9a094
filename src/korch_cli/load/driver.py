"""From a file to a model with static shapes."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.inliner

from korch_cli.core.errors import ModelError
from korch_cli.core.model import Bindings, Model
from korch_cli.load.bind import bind
from korch_cli.load.describe import describe
from korch_cli.load.fold import fold, lift_constants
from korch_cli.load.infer import forget_shapes
from korch_cli.load.read import read_model, sorted_nodes


def load(path: Path, bindings: Bindings) -> Model:
    """Read a model and prepare it: every stage after this one sees static shapes and sorted, named nodes.

    Raises:
        UsageError: the file is missing, or the bindings do not fit the model's inputs or leave some open.
        ModelError: the file is no valid ONNX model.
    """
    proto = read_model(path)
    notes = bind(proto, bindings)
    if notes:
        forget_shapes(proto)
    if proto.functions:
        names = ", ".join(sorted({f.name for f in proto.functions}))
        notes.append(f"Model-local functions were inlined: {names}.")
        proto = _inlined(proto, path)
    lift_constants(proto)
    nodes = sorted_nodes(proto.graph)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del proto.graph.node[:]
    proto.graph.node.extend(copies)
    proto, folded = fold(proto, path.parent)
    if folded:
        notes.append(f"{folded} nodes depend on constants alone and were folded.")
    return describe(proto, path, tuple(notes))


def _inlined(proto: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    try:
        return onnx.inliner.inline_local_functions(proto)
    except Exception as error:
        raise ModelError(f"its model-local functions cannot be inlined: {error}", where=str(path)) from error
