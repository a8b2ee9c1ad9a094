"""One row of the survival suite: a model, what it is fed, and what has to come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

Outputs = Sequence[Any]


@dataclass(frozen=True)
class Equal:
    """The outputs are ONNX Runtime's without optimisation, and a generated kernel took part."""


@dataclass(frozen=True)
class Opaque:
    """The outputs are ONNX Runtime's; these operators are still nodes, so many of each.

    Attributes:
        operators: what has to be left.
        around: whether a generated kernel computes something beside them.
    """

    operators: tuple[str, ...]
    around: bool = True


@dataclass(frozen=True)
class Error:
    """`korch optimize` ends with this exit code, and its message has these words."""

    code: int
    words: tuple[str, ...]


Expectation = Equal | Opaque | Error


@dataclass(frozen=True)
class Link:
    """A symbolic or a hard link; `target` is relative to the folder of the model."""

    target: str
    hard: bool = False


@dataclass(frozen=True)
class Row:
    """A model and its fate.

    Attributes:
        model: the model, or the bytes of a file that is none.
        feeds: arrays by input, or lists of them for sequences; inputs with a default may be absent.
        expectation: what has to come of it.
        data: the inputs that stay inputs when all others are frozen; the first one if nothing is said.
        variants: "as is", "frozen" and "symbolic", unless the model has no meaning in one of them.
        fused_in: the variants in which a kernel must take part; freezing may leave nothing to compute.
        files: other files in the model's folder (a name that starts with ".." lies beside that folder).
        flags: more arguments of `korch optimize`, for rows that end with an error.
        instead: what outputs are to be where ONNX Runtime is no judge; if these are all, it may refuse the model.
        judge: looks at the outputs where they cannot be compared, because they are random.
        tolerance: of floating-point outputs, relative and absolute, if not the usual one.
        new_ops: operators that ONNX Runtime lacks, for onnx's reference evaluator to run the model with.
    """

    model: onnx.ModelProto | bytes
    feeds: Mapping[str, Any]
    expectation: Expectation
    data: tuple[str, ...] = ()
    variants: tuple[str, ...] = ("as is", "frozen", "symbolic")
    fused_in: tuple[str, ...] = ("as is", "frozen", "symbolic")
    files: Mapping[str, bytes | Link] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    instead: Mapping[str, Any] = field(default_factory=dict)
    judge: Callable[[Outputs], None] | None = None
    tolerance: float | None = None
    new_ops: tuple[Any, ...] = ()


Factory = Callable[[], Row]
ROWS: dict[str, Factory] = {}
SECTIONS: dict[str, list[str]] = {}


def row(factory: Factory) -> Factory:
    """Register a factory under its name, in the section that its module is."""
    name = factory.__name__
    assert name not in ROWS, f"two rows are called {name}"
    ROWS[name] = factory
    SECTIONS.setdefault(factory.__module__.rpartition(".")[2], []).append(name)
    return factory


def equal() -> Equal:
    """The outputs are equal and something was fused."""
    return Equal()


def opaque(*operators: str, around: bool = True) -> Opaque:
    """These operators are left as they are; what is around them is fused."""
    return Opaque(operators, around)


def error(code: int, *words: str) -> Error:
    """The command ends with this code and these words."""
    return Error(code, words)


def model(
    text: str,
    *,
    opset: int = 17,
    ir: int = 8,
    domains: Mapping[str, int] | None = None,
    functions: Sequence[str] = (),
    **weights: Any,
) -> onnx.ModelProto:
    """Parse a graph in ONNX's text syntax.

    Args:
        text: signature and nodes of the graph.
        opset: version of the default domain; 0 for none.
        ir: version of the format.
        domains: other domains by version.
        functions: model-local functions in text syntax.
        weights: initializers.
    """
    graph = parser.parse_graph(text)
    opsets = [helper.make_opsetid("", opset)] if opset else []
    opsets += [helper.make_opsetid(name, version) for name, version in (domains or {}).items()]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=ir)
    proto.functions.extend(parser.parse_function(function) for function in functions)
    for name, array in weights.items():
        tensor = numpy_helper.from_array(np.asarray(array), name)
        proto.graph.initializer.append(tensor)
        if ir < 4 and all(info.name != name for info in proto.graph.input):
            info = helper.make_tensor_value_info(name, tensor.data_type, tuple(tensor.dims))
            proto.graph.input.append(info)
    assert isinstance(proto, onnx.ModelProto)
    return proto


def floats(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    """Normally distributed numbers."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def integers(*shape: int, seed: int = 0, dtype: Any = np.int64, low: int = -9, high: int = 10) -> Any:
    """Small integers."""
    return np.random.default_rng([seed, *shape]).integers(low, high, shape).astype(dtype)


def external(name: str, shape: Sequence[int], location: str, dtype: int = 1, **entries: object) -> onnx.TensorProto:
    """Return a tensor whose elements lie in another file."""
    tensor = onnx.TensorProto(name=name, data_type=dtype, dims=shape, data_location=onnx.TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def chain(op: str, x: Any, shape: str, *, kind: str = "float", opset: int = 17, ir: int = 8, **weights: Any) -> Row:
    """One operator between two others, so that a kernel has something to join."""
    dims = ",".join(map(str, x.shape))
    text = f"g (float[{dims}] x) => ({kind}[{shape}] y) {{ a = Neg(x) middle = {op} y = Neg(middle) }}"
    return Row(model(text, opset=opset, ir=ir, **weights), {"x": x}, equal())
