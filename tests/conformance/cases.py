"""The cases of the installed onnx package's own backend tests: a model, what it is fed, and what it has to answer."""

from __future__ import annotations

import fcntl
import hashlib
import pickle
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")
"""What the package brings with it; the other kinds are downloads, or graphs whose weights are all equal."""

_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


@dataclass(frozen=True, slots=True)
class Case:
    """One backend test.

    Attributes:
        id: "<kind>/<name>", unique.
        model: the model, serialized.
        feeds: what it is fed, by input: an array, or a list or None for sequences and optionals.
        expected: what it has to answer, in the order of its outputs; as `feeds`.
        rtol: relative tolerance.
        atol: absolute tolerance.
    """

    id: str
    model: bytes
    feeds: dict[str, Any]
    expected: tuple[Any, ...]
    rtol: float
    atol: float


def all_cases(folder: Path) -> tuple[Case, ...]:
    """Return every case, sorted by id.

    The package generates them, which takes some ten seconds; they are kept in `folder`, where processes that ask at
    the same time wait for the first one.
    """
    made_by = onnx.__version__.encode() + Path(__file__).read_bytes()
    kept = folder / f"cases-{hashlib.sha256(made_by).hexdigest()[:12]}.pickle"
    folder.mkdir(parents=True, exist_ok=True)
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            found = tuple(sorted((case for kind in KINDS for case in _of_kind(kind)), key=lambda case: case.id))
            partial = kept.with_suffix(".partial")
            partial.write_bytes(pickle.dumps(found))
            partial.replace(kept)
    cases: tuple[Case, ...] = pickle.loads(kept.read_bytes())
    return cases


def is_random(case: Case) -> bool:
    """Whether two runs of a case may answer differently, so that nothing can be compared."""
    model = onnx.ModelProto.FromString(case.model)
    return any(node.op_type in _RANDOM or _drops(node, case) for node in _nodes(model.graph))


def share(identifier: str, parts: int) -> int:
    """Return which of `parts` about equal shares an id belongs to; the same on every machine."""
    return int(hashlib.sha256(identifier.encode()).hexdigest(), 16) % parts


def _of_kind(kind: str) -> Iterator[Case]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        tests = load_model_tests(kind=kind)
    for test in tests:
        folder = Path(test.model_dir or "")
        model = test.model if test.model is not None else onnx.load(folder / "model.onnx")
        sets = test.data_sets if test.data_sets is not None else _stored_sets(folder)
        initialized = {tensor.name for tensor in model.graph.initializer}
        names = [info.name for info in model.graph.input]
        for number, (inputs, outputs) in enumerate(sets):
            # Before IR version 4 initializers are inputs too; those have no data of their own.
            fed = names if len(inputs) == len(names) else [name for name in names if name not in initialized]
            yield Case(
                id=f"{kind}/{test.name}" + (f"/{number}" if number else ""),
                model=model.SerializeToString(),
                feeds={name: _plain(value) for name, value in zip(fed, inputs, strict=True)},
                expected=tuple(map(_plain, outputs)),
                rtol=test.rtol,
                atol=test.atol,
            )


def _stored_sets(folder: Path) -> Iterator[tuple[list[Any], list[Any]]]:
    for data in sorted(folder.glob("test_data_set_*")):
        yield _stored(data, "input"), _stored(data, "output")


def _stored(folder: Path, kind: str) -> list[Any]:
    paths = sorted(folder.glob(f"{kind}_*.pb"), key=lambda path: int(path.stem.split("_")[1]))
    return [numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes())) for path in paths]


def _plain(value: Any) -> Any:
    """Return a value that can be fed: numpy scalars are arrays of rank 0."""
    if value is None or isinstance(value, list):
        return value
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value)


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _nodes(inner)


def _drops(node: onnx.NodeProto, case: Case) -> bool:
    """Whether this is a Dropout that drops something: its third operand says so."""
    if node.op_type != "Dropout" or len(node.input) < 3 or not node.input[2]:
        return False
    fed = case.feeds.get(node.input[2])
    return fed is None or bool(np.asarray(fed).any())
