"""The text form of a primitive graph: one value a line, exact in both directions.

    %0 "x" f32[2,64] = input
    %1 "w" f32[64] = const
    %2 "x_epsilon" f32[] = literal 1e-05
    %3 "x_sum" f32[2,1] = reduce sum axes=[1] (%0) @4
    outputs (%3)
    operator 4 = (%3, -)
    refusal 5 "Loop has a body"

A line gives the id, the name (a JSON string), the type, the operation with its fields (JSON values without spaces; a
field that holds a word stands bare), the operands, and after `@` the ONNX operator it came from. A constant that is a
literal is printed by value. Any other constant is printed by its role alone: its data are no part of the text, and
parsing gives a placeholder of the same type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.primitive import (
    Broadcast,
    Concat,
    Constant,
    Elementwise,
    Gather,
    Input,
    Layout,
    Linear,
    Op,
    Opaque,
    Pad,
    Reduce,
    Reshape,
    Slice,
    Transpose,
    WindowReduce,
)
from korch_cli.core.types import Array, DType, TensorType

_PRIMITIVES: Mapping[str, Callable[..., Op]] = {
    "elementwise": Elementwise,
    "broadcast": Broadcast,
    "reduce": Reduce,
    "window_reduce": WindowReduce,
    "transpose": Transpose,
    "reshape": Reshape,
    "slice": Slice,
    "pad": Pad,
    "concat": Concat,
    "gather": Gather,
    "linear": Linear,
    "opaque": Opaque,
}
_WORDS = {made: word for word, made in _PRIMITIVES.items()}
_Primitive = Elementwise | Broadcast | Reduce | WindowReduce | Layout | Linear | Opaque
_REF = r"(?:%\d+|-)"
_REFS = rf"\(({_REF}(?:, {_REF})*)?\)"
_STRING = r'"(?:[^"\\]|\\.)*"'
_VALUE = re.compile(
    rf"%(\d+) ({_STRING}) (\w+\[[\d,]*\]) = (\w+)((?: [^\s()@]+)*?)(?: {_REFS})?(?: @(-?\d+))?", re.ASCII
)
_OUTPUTS = re.compile(rf"outputs {_REFS}", re.ASCII)
_OPERATOR = re.compile(rf"operator (\d+) = {_REFS}", re.ASCII)
_REFUSAL = re.compile(rf"refusal (\d+) ({_STRING})", re.ASCII)


def print_graph(graph: PrimitiveGraph) -> str:
    """Return the text of `graph`; equal graphs have equal texts, whatever their weights hold."""
    lines = [_print_value(value) for value in graph.values]
    lines.append(f"outputs {_print_refs(graph.outputs)}")
    lines += [f"operator {index} = {_print_refs(ids)}" for index, ids in sorted(graph.operator_outputs.items())]
    lines += [f"refusal {index} {json.dumps(sentence)}" for index, sentence in sorted(graph.refusals.items())]
    return "\n".join(lines) + "\n"


def print_op(op: Op) -> str:
    """Return the operation and its fields, as they stand in the text of a graph, without operands."""
    if isinstance(op, Input):
        return "input"
    if isinstance(op, Constant):
        literal = op.literal
        return "const" if literal is None else f"literal {_print_literal(literal, op.dtype)}"
    return _print_primitive(op)


def parse_graph(text: str) -> PrimitiveGraph:
    """Return the graph whose text this is.

    A `const` becomes a Constant of zeros, made when it is read. Where a single zero would count as a literal, it is
    another number that does not.

    Raises:
        ValueError: with the number of the first line that is not understood.
    """
    values: list[Value] = []
    outputs: tuple[int, ...] | None = None
    operator_outputs: dict[int, tuple[int, ...]] = {}
    refusals: dict[int, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            if line.startswith("%"):
                values.append(_parse_value(line))
            elif found := _OUTPUTS.fullmatch(line):
                outputs = _parse_refs(found[1])
            elif found := _OPERATOR.fullmatch(line):
                operator_outputs[int(found[1])] = _parse_refs(found[2])
            elif found := _REFUSAL.fullmatch(line):
                refusals[int(found[1])] = json.loads(found[2])
            elif line.strip():
                raise ValueError("a line starts with %, outputs, operator or refusal")
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"line {number} of the graph is not understood: {error}") from error
    if outputs is None:
        raise ValueError("the text has no line for the graph's outputs")
    return PrimitiveGraph(tuple(values), outputs, operator_outputs, refusals)


def _print_primitive(op: _Primitive) -> str:
    words = [_WORDS[type(op)]]
    for field in fields(op):
        content = getattr(op, field.name)
        if isinstance(content, str):
            words.append(content)
            continue
        if isinstance(op, Linear):
            content = dict(content)
        words.append(f"{field.name}={json.dumps(content, separators=(',', ':'))}")
    return " ".join(words)


def _print_value(value: Value) -> str:
    parts = [f"%{value.id} {json.dumps(value.name)} {value.type} = {print_op(value.op)}"]
    if not value.is_source:
        parts.append(_print_refs(value.args))
    if value.operator != -1:
        parts.append(f"@{value.operator}")
    return " ".join(parts)


def _print_refs(ids: tuple[int, ...]) -> str:
    return "(" + ", ".join("-" if i < 0 else f"%{i}" for i in ids) + ")"


def _print_literal(literal: float | int | bool, dtype: DType) -> str:
    if not dtype.is_float:
        return json.dumps(literal)
    exact = np.array(literal, dtype.numpy)
    short = str(exact)
    # The shortest text is the readable one; a few values survive only as the exact double.
    return short if np.array(float(short), dtype.numpy).tobytes() == exact.tobytes() else repr(float(literal))


def _parse_value(line: str) -> Value:
    found = _VALUE.fullmatch(line)
    if found is None:
        raise ValueError('a value reads %id "name" type = operation (operands) @operator')
    number, name, type_text, word, rest, refs, operator = found.groups()
    tensor = _parse_type(type_text)
    return Value(
        int(number),
        json.loads(name),
        tensor,
        _parse_op(word, rest.split(), tensor),
        _parse_refs(refs),
        -1 if operator is None else int(operator),
    )


def _parse_op(word: str, details: list[str], tensor: TensorType) -> Op:
    if word == "input":
        return Input()
    if word == "const":
        return _placeholder(tensor)
    if word == "literal":
        return Constant(_parse_literal(details[0], tensor))
    content: dict[str, Any] = {}
    bare: list[str] = []
    for detail in details:
        name, equals, encoded = detail.partition("=")
        if equals:
            content[name] = _freeze(json.loads(encoded))
        else:
            bare.append(name)
    return _PRIMITIVES[word](*bare, **content)


def _freeze(content: Any) -> Any:
    if isinstance(content, list):
        return tuple(content)
    if isinstance(content, dict):
        return tuple((name, _freeze(item)) for name, item in content.items())
    return content


def _parse_type(text: str) -> TensorType:
    dtype, _, shape = text.rstrip("]").partition("[")
    return TensorType(DType.from_text(dtype), tuple(int(extent) for extent in shape.split(",")) if shape else ())


def _parse_refs(text: str | None) -> tuple[int, ...]:
    return tuple(-1 if ref == "-" else int(ref[1:]) for ref in text.split(", ")) if text else ()


def _parse_literal(text: str, tensor: TensorType) -> Array:
    number = float(text) if tensor.dtype.is_float else json.loads(text)
    return np.full(tensor.shape, number, tensor.dtype.numpy)


def _placeholder(tensor: TensorType) -> Constant:
    fill = 0.123456789 if tensor.dtype.is_float else 0
    if tensor.elements != 1:
        fill = 0
    return Constant(
        read=lambda: np.full(tensor.shape, fill, tensor.dtype.numpy), dtype=tensor.dtype, shape=tensor.shape
    )
