"""The three levels at which a random model is tried: primitives, functions, kernels."""

from __future__ import annotations

import hashlib
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from korch_cli.core.check import check
from korch_cli.core.errors import KorchError
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.interpreter import evaluate
from korch_cli.core.model import Bindings, Model
from korch_cli.core.primitive import Constant, Input, Opaque
from korch_cli.core.types import UNKNOWN, Array
from korch_cli.emit import save_model
from korch_cli.fission import fission
from korch_cli.load import load
from korch_cli.pipeline import build_fusions, fused_model, plan_fusion
from korch_cli.pipeline.forced import Fusion
from korch_cli.rewrite import rewrite
from korch_cli.toolchain import Compiler
from tests.fuzz.graphs import Network
from tests.fuzz.oracle import Expectation, Nodewise, NotJudged, difference, expect
from tests.fuzz.running import Session

_KERNEL_SIZES = (2, 4, 8, 16)
"""Primitives in one kernel at most; smaller ones are enumerated quickly, and cut a model in more places."""
_ABSENT: Array = np.array("", object)
"""Stands for what has no static type; primitives do not touch it."""


@dataclass(frozen=True)
class Finding:
    """A model for which something is wrong.

    Attributes:
        network: the model.
        level: "primitives", "functions" or "kernels".
        sentence: what is wrong.
    """

    network: Network
    level: str
    sentence: str


@dataclass(frozen=True)
class Planned:
    """A model with its forced plan, and what to expect of it. `folder` is its own."""

    network: Network
    expected: Sequence[Expectation | None]
    fusion: Fusion
    folder: Path


def bindings(network: Network) -> Bindings:
    """Return the shapes of the inputs, for a model may leave some of them open."""
    feeds = next(iter(network.feeds.values()))
    return Bindings({}, {name: tuple(array.shape) for name, array in feeds.items()})


def expectations(network: Network) -> list[Expectation | None]:
    """Return what to expect for each set of inputs, None where nothing can be said."""
    found: list[Expectation | None] = []
    for feeds in network.feeds.values():
        try:
            found.append(expect(network.model, feeds))
        except NotJudged:
            found.append(None)
    return found


def try_primitives(network: Network, expected: Sequence[Expectation | None], folder: Path) -> str | None:
    """Split a model into primitives and interpret them; return what is wrong."""
    path = folder / "model.onnx"
    path.write_bytes(network.model.SerializeToString())
    try:
        model = load(path, bindings(network))
        graph = rewrite(fission(model))
        check(graph)
    except Exception as error:
        return _words(error)
    return _compared(network, expected, lambda feeds: interpret(model, graph, feeds))


def plan(network: Network, expected: Sequence[Expectation | None], folder: Path) -> Planned:
    """Plan a model with forced fusion, in a folder of its own. Raises whatever goes wrong."""
    folder = Path(tempfile.mkdtemp(dir=folder))
    path = folder / "model.onnx"
    content = network.model.SerializeToString()
    path.write_bytes(content)
    size = _KERNEL_SIZES[zlib.crc32(content) % len(_KERNEL_SIZES)]
    fusion = plan_fusion(path, bindings(network), max_primitives=size)
    return Planned(network, expected, fusion, folder)


def try_functions(planned: Planned) -> str | None:
    """Write a planned model and run it without a library; return what is wrong."""
    path, fusion = planned.folder / "functions.onnx", planned.fusion
    try:
        proto = fused_model(fusion, "korch.fuzz")
        save_model(proto, planned.folder, path)
        if _is_checked(planned.network.model):
            onnx.checker.check_model(onnx.load(path))
        session = Session(path)
    except Exception as error:
        return _words(error) if _runs(planned) else None
    broken = broken_promise(planned.network.model, onnx.load(path))
    return broken or _compared(planned.network, planned.expected, session.run)


def _runs(planned: Planned) -> bool:
    """Whether ONNX Runtime runs the model as it is."""
    return any(expected is not None for expected in planned.expected)


def _is_checked(model: onnx.ModelProto) -> bool:
    """Whether the checker accepts a model; ONNX Runtime is less strict."""
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError:
        return False
    return True


def build(planned: Sequence[Planned], compiler: Compiler, folder: Path, jobs: int) -> tuple[list[Path], Path]:
    """Write models and one library with the kernels of all of them.

    Raises:
        KorchError: a kernel does not compile.
    """
    outputs = [each.folder / "kernels.onnx" for each in planned]
    names = sorted({kernel.name for each in planned for kernel in each.fusion.chosen.values()})
    # A library stays loaded under its path, so that each needs one of its own.
    library = folder / f"{hashlib.sha256(' '.join(names).encode()).hexdigest()[:12]}.so"
    build_fusions([each.fusion for each in planned], outputs, library, compiler, folder / "objects", jobs)
    return outputs, library


def try_kernels(planned: Planned, output: Path, library: Path) -> str | None:
    """Run a built model with its library; return what is wrong."""
    try:
        session = Session(output, library)
    except Exception as error:
        return _words(error) if _runs(planned) else None
    return _compared(planned.network, planned.expected, session.run)


def interpret(model: Model, graph: PrimitiveGraph, feeds: Mapping[str, Array]) -> list[Array]:
    """Return the outputs of a primitive graph; opaque operators run in ONNX Runtime, on what the primitives compute."""
    assert isinstance(model.proto, onnx.ModelProto)
    opaque = {v.op.operator for v in graph.values if isinstance(v.op, Opaque)}
    unknown = {v.id for v in graph.values if v.type is UNKNOWN}
    nodewise = Nodewise(model.proto)
    # An initializer that is an input too need not be fed.
    known = {t.name: numpy_helper.to_array(t) for t in model.proto.graph.initializer} | dict(feeds)
    if opaque:
        known = nodewise.values(feeds)
    absent = {v: _ABSENT for v in unknown if not isinstance(graph.values[v].op, Constant)}
    sources = [v for v in graph.values if isinstance(v.op, Input | Opaque) and v.id not in unknown]
    for operator in [*sorted(opaque), None]:
        given = absent | {v.id: known[v.name] for v in sources}
        found = evaluate(graph, given)
        if operator is not None:
            # Equal numbers must stay equal: the answer that ONNX Runtime gave was on operands of its own.
            known |= {v.name: found[v.id] for v in graph.values if v.id not in unknown}
            known |= nodewise.node_values(operator, known)
    return [known[graph.values[v].name] if v in unknown else found[v] for v in graph.outputs]


def broken_promise(before: onnx.ModelProto, after: onnx.ModelProto) -> str | None:
    """Return a sentence on what a caller relies on and is not kept, None if all is."""
    fixed = {tensor.name for tensor in before.graph.initializer}
    fed = [info for info in before.graph.input if info.name not in fixed]
    kept = {tensor.name for tensor in after.graph.initializer}
    still = [info for info in after.graph.input if info.name not in kept]
    for kind, old, new in (("inputs", fed, still), ("outputs", before.graph.output, after.graph.output)):
        if [info.name for info in old] != [info.name for info in new]:
            return f"the {kind} {[i.name for i in old]} became {[i.name for i in new]}"
        for a, b in zip(old, new, strict=True):
            if a.type.tensor_type.elem_type != b.type.tensor_type.elem_type:
                return f"{a.name!r} has another element type"
    for a, b in zip(fed, still, strict=True):
        dims = zip(a.type.tensor_type.shape.dim, b.type.tensor_type.shape.dim, strict=True)
        if any(old.dim_value and old.dim_value != new.dim_value for old, new in dims):
            return f"the input {a.name!r} has another shape"
    return None


def _compared(
    network: Network, expected: Sequence[Expectation | None], run: Callable[[Mapping[str, Array]], Sequence[Array]]
) -> str | None:
    names = [info.name for info in network.model.graph.output]
    for (kind, feeds), wanted in zip(network.feeds.items(), expected, strict=True):
        if wanted is None:
            continue
        try:
            got = run(feeds)
        except Exception as error:
            if wanted.is_open:
                # Extents may be among what is not known.
                continue
            return f"on {kind} inputs: {_words(error)}"
        found = difference(names, got, wanted)
        if found is not None:
            return f"on {kind} inputs, {found}"
    return None


def _words(error: Exception) -> str:
    name = "" if isinstance(error, KorchError) else f"{type(error).__name__}: "
    return f"{name}{error}"
