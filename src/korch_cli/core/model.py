"""A loaded model in neutral terms; no protobuf is needed to read one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from korch_cli.core.primitive import Constant
from korch_cli.core.types import Array, TensorType

Attribute = int | float | str | bytes | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | Array | object
"""An attribute's value; a tensor is an array, anything else (graphs, types) is the protobuf itself."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One ONNX node.

    Attributes:
        index: position in `Model.operators` and in the node list of `Model.proto`.
        name: unique in the model (made up where the file has none or repeats one).
        op_type: e.g. "Softmax".
        domain: "" for the default ONNX domain ("ai.onnx" is normalised to it).
        version: the opset version that the model imports for `domain`.
        inputs: tensor names, "" for an omitted optional input.
        outputs: tensor names, "" for an omitted optional output.
        captures: names of outer tensors that its subgraphs read.
        attributes: by name.
    """

    index: int
    name: str
    op_type: str
    domain: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    captures: tuple[str, ...]
    attributes: Mapping[str, Attribute]


@dataclass(frozen=True, slots=True)
class Model:
    """A model with static shapes, sorted nodes, inlined functions and folded constants.

    Attributes:
        path: the file it came from.
        inputs: names of the inputs that must be fed, in order (initializers are not among them).
        outputs: names of the outputs, in order.
        operators: in topological order.
        types: the static type of every tensor where it is known; a name that is absent has no static type (a sequence,
            a string, an unknown shape), and operators that touch it stay opaque.
        constants: initializers and folded values, by name. An overridable initializer (IR >= 4 and also a graph input)
            is an input, not a constant.
        opsets: imported version by domain ("" is the default one).
        ir_version: as in the file.
        proto: the `onnx.ModelProto` all of this describes, for `emit` alone; it may refer to external data in `path`'s
            folder.
        notes: what the user should know of what loading did (a dimension bound, a function inlined), a sentence each.
    """

    path: Path
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operators: tuple[Operator, ...]
    types: Mapping[str, TensorType]
    constants: Mapping[str, Constant]
    opsets: Mapping[str, int]
    ir_version: int
    proto: object
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Body:
    """A subgraph of If, Loop or Scan, as a part of an unrolled model.

    Attributes:
        prefix: what the names of its tensors and nodes begin with in the unrolled model.
        path: where it is: from the main graph on, the position of a node and the attribute that holds the graph.
        left: positions of its nodes that the unrolled model does not have.
    """

    prefix: str
    path: tuple[tuple[int, str], ...]
    left: frozenset[int]


@dataclass(frozen=True, slots=True)
class UnrolledModel:
    """A model, and the same with the bodies of its control flow beside it, so that they are optimised with it.

    Attributes:
        model: the model as it was loaded.
        flat: the model with the nodes of all bodies behind its own. What a body is given, and what it takes from
            outside that is no constant, are further inputs; what it gives are further outputs. It computes what no
            caller asks for, but each node computes in it what it computes in its body. `model` itself if there is no
            body with static types.
        bodies: outer ones before the ones inside them.
    """

    model: Model
    flat: Model
    bodies: tuple[Body, ...]


@dataclass(frozen=True, slots=True)
class Bindings:
    """What the user says of symbolic shapes: `--dim batch=1` and `--shape x=1x3x48x320`."""

    dims: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]
