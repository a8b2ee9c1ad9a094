"""Index arithmetic and elementwise functions as C++ expressions."""

from __future__ import annotations

import math

import numpy as np

from korch_cli.codegen.index import Atom, Div, Expr, Lookup, Var
from korch_cli.codegen.nest import Guards
from korch_cli.core.errors import Refusal
from korch_cli.core.types import DType

CPP_TYPES = {
    DType.BF16: "uint16_t",
    DType.BOOL: "uint8_t",
    DType.F16: "uint16_t",
    DType.F32: "float",
    DType.F64: "double",
    DType.I8: "int8_t",
    DType.I16: "int16_t",
    DType.I32: "int32_t",
    DType.I64: "int64_t",
    DType.U8: "uint8_t",
    DType.U16: "uint16_t",
    DType.U32: "uint32_t",
    DType.U64: "uint64_t",
}
"""What an element is in memory."""
NARROW_FLOATS = {DType.F16: "f16", DType.BF16: "bf16"}
"""Floats that are held as float32 which they can be rounded to; the names are those of their conversions."""
LANES = frozenset({DType.F32, *NARROW_FLOATS})
"""What is held as float, of which a vector has lanes."""

_OPERATORS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "equal": "==",
    "greater": ">",
    "greater_equal": ">=",
    "less": "<",
    "less_equal": "<=",
}
_FLOAT_CALLS = {
    **{
        name: f"{name}_"
        for name in (
            *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "floor"),
            *("fmod", "log", "mod", "pow", "reciprocal", "round", "sigmoid", "sign", "sin", "sinh", "softplus"),
            *("sqrt", "tan", "tanh", "tanh_softplus"),
        )
    },
    "max": "vmax",
    "min": "vmin",
    "neg": "neg",
}
_LOGICAL = {"and": "and_", "or": "or_", "xor": "xor_", "not": "not_", "max": "or_", "min": "and_"}
_COMPARISONS = frozenset({"equal", "greater", "greater_equal", "less", "less_equal"})
_INTEGER_CALLS = frozenset(
    {"abs", "add", "bit_and", "bit_not", "bit_or", "bit_xor", "div", "fmod", "max", "min", "mod", "mul", "neg", "pow"}
    | {"shift_left", "shift_right", "sign", "sub"}
)
_KEEPS_PRECISION = frozenset({"abs", "ceil", "floor", "max", "min", "neg", "round", "sign", "where"})
"""What gives a number of few digits from numbers of few digits."""


class Tables:
    """The constant tables of a kernel, by content."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, ...], str] = {}

    def name(self, table: tuple[int, ...]) -> str:
        """Return the name of a table."""
        return self._names.setdefault(table, f"table{len(self._names)}")

    def lines(self) -> list[str]:
        """Return the tables' definitions."""
        return [
            f"static const int32_t {name}[{len(table)}] = {{{', '.join(map(str, table))}}};"
            for table, name in self._names.items()
        ]


def index_text(expr: Expr, tables: Tables) -> str:
    """Return an index expression in C++; loop variables have their own names and the type int64_t."""
    parts: list[str] = []
    for atom, coefficient in expr.terms:
        text = _atom_text(atom, tables)
        if abs(coefficient) != 1:
            text = f"{abs(coefficient)} * {text}"
        sign = "-" if coefficient < 0 else "+"
        parts.append(f" {sign} {text}" if parts else (f"-{text}" if coefficient < 0 else text))
    if expr.constant or not parts:
        sign = "-" if expr.constant < 0 else "+"
        parts.append(f" {sign} {abs(expr.constant)}" if parts else str(expr.constant))
    return "".join(parts)


def _atom_text(atom: Atom, tables: Tables) -> str:
    if isinstance(atom, Var):
        return atom.name
    operand = index_text(atom.operand, tables)
    if isinstance(atom, Lookup):
        return f"{tables.name(atom.table)}[{operand}]"
    wrapped = operand if isinstance(atom.operand, Expr) and _is_simple(atom.operand) else f"({operand})"
    if atom.operand.range[0] >= 0:
        return f"({wrapped} {'/' if isinstance(atom, Div) else '%'} {atom.by})"
    return f"{'floor_div' if isinstance(atom, Div) else 'floor_mod'}({operand}, {atom.by})"


def _is_simple(expr: Expr) -> bool:
    return len(expr.terms) == 1 and expr.terms[0][1] == 1 and expr.constant == 0


def guards_text(guards: Guards, tables: Tables) -> str:
    """Return the condition that all guards hold."""
    conditions = []
    for guard in guards:
        low, high = guard.position.range
        position = index_text(guard.position, tables)
        if low < guard.low:
            conditions.append(f"{position} >= {guard.low}")
        if high >= guard.high:
            conditions.append(f"{position} < {guard.high}")
    return " && ".join(conditions) or "true"


def held_type(dtype: DType) -> str:
    """Return the C++ type in which one element is computed with."""
    if dtype in LANES:
        return "float"
    return "bool" if dtype is DType.BOOL else CPP_TYPES[dtype]


def literal_text(value: float | int | bool, dtype: DType) -> str:
    """Return a number as a C++ literal of the type that its element type is held in."""
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if dtype.is_float:
        return _float_literal(float(value), dtype)
    kind = CPP_TYPES[dtype]
    if dtype is DType.U64:
        return f"UINT64_C({value})"
    if dtype is DType.I64:
        # The smallest one is the negation of a number that does not exist.
        return f"INT64_C({value})" if value > np.iinfo(np.int64).min else f"(INT64_C({value + 1}) - 1)"
    return f"{kind}({value})" if dtype is not DType.I32 or value == np.iinfo(np.int32).min else str(value)


def divisor_text(value: float | int | bool, dtype: DType) -> str | None:
    """Return a number as a `Divisor`; None where a plain division by it is a product already."""
    mantissa, _ = math.frexp(float(value))
    if dtype not in LANES or abs(mantissa) == 0.5 or not math.isfinite(value):
        return None
    return f"divisor({literal_text(value, dtype)})"


def _float_literal(number: float, dtype: DType) -> str:
    if math.isnan(number):
        return "kNaN" if dtype in LANES else "(double)kNaN"
    if math.isinf(number):
        text = "kInfinity" if number > 0 else "-kInfinity"
        return text if dtype in LANES else f"(double){text}"
    with np.errstate(all="ignore"):
        text = str(np.float32(np.array(number).astype(dtype.numpy))) if dtype in LANES else repr(number)
    if text in ("inf", "-inf"):
        return "kInfinity" if number > 0 else "-kInfinity"
    if "e" not in text and "." not in text:
        text += ".0"
    return f"{text}f" if dtype in LANES else text


class Operand:
    """A C++ expression with its element type; `varying` says that it has a value for each lane."""

    def __init__(self, text: str, dtype: DType, *, varying: bool, literal: float | int | bool | None = None) -> None:
        self.text, self.dtype, self.varying, self.literal = text, dtype, varying, literal

    def wide(self, lanes: str) -> str:
        """Return the expression with one value for each lane."""
        if self.varying or lanes == "float":
            return self.text
        if self.dtype is DType.BOOL:
            return f"mask_of<{lanes}>({self.text})"
        return f"broadcast<{lanes}>({self.text})" if self.dtype in LANES else self.text


def apply_text(function: str, args: list[Operand], result: DType, lanes: str) -> str:
    """Return an elementwise function of `args` in C++.

    Args:
        function: a key of `core.elementwise.FUNCTIONS`.
        args: the operands.
        result: the result's element type.
        lanes: the C++ type of float values here, "V" in code that is written once for vectors and single elements.

    Raises:
        Refusal: the function is not generated for these element types.
    """
    if function == "cast":
        return _cast_text(args[0], result)
    text = _function_text(function, args, lanes)
    return text if function in _KEEPS_PRECISION else rounded_text(text, result)


def rounded_text(text: str, dtype: DType) -> str:
    """Return a float expression rounded to what its element type can hold."""
    return f"round_{NARROW_FLOATS[dtype]}({text})" if dtype in NARROW_FLOATS else text


def _function_text(function: str, args: list[Operand], lanes: str) -> str:
    dtype = args[-1].dtype
    if function == "where":
        return choice_text(args[0], args[1].wide(lanes), args[2].wide(lanes))
    if dtype is DType.BOOL:
        if function in _LOGICAL:
            return f"{_LOGICAL[function]}({', '.join(a.wide(lanes) for a in args)})"
        if function == "equal":
            return f"not_(xor_({args[0].wide(lanes)}, {args[1].wide(lanes)}))"
        raise Refusal(f"The function {function} of booleans is not generated.")
    if function in _COMPARISONS or (function in _OPERATORS and dtype.is_float):
        return f"{args[0].text} {_OPERATORS[function]} {args[1].text}"
    return _float_call(function, args, lanes) if dtype.is_float else _integer_call(function, args)


def choice_text(condition: Operand, inside: str, outside: str) -> str:
    """Return one of two expressions: lane by lane where the condition differs between lanes."""
    if condition.varying:
        return f"select({condition.text}, {inside}, {outside})"
    return f"{condition.text} ? {inside} : {outside}"


def _float_call(function: str, args: list[Operand], lanes: str) -> str:
    if function in ("max", "min"):
        call = "at_least" if function == "max" else "at_most"
        for number, other in ((args[1], args[0]), (args[0], args[1])):
            if number.literal is not None and not math.isnan(float(number.literal)):
                return f"{call}({other.wide(lanes)}, {number.text})"
    if function == "pow" and args[1].literal in (2, 3):
        base = args[0].wide(lanes)
        return " * ".join([base] * int(args[1].literal or 0))
    if function not in _FLOAT_CALLS:
        raise Refusal(f"The function {function} of {args[-1].dtype.text} is not generated.")
    return f"{_FLOAT_CALLS[function]}({', '.join(a.wide(lanes) for a in args)})"


def _integer_call(function: str, args: list[Operand]) -> str:
    if function not in _INTEGER_CALLS:
        raise Refusal(f"The function {function} of {args[-1].dtype.text} is not generated.")
    return f"int_{function}({', '.join(a.text for a in args)})"


def _cast_text(arg: Operand, result: DType) -> str:
    if arg.dtype is result:
        return arg.text
    if result is DType.BOOL:
        return f"{arg.text} != 0"
    if result in LANES:
        if arg.dtype in LANES:
            return rounded_text(arg.text, result)
        if arg.dtype is DType.BOOL:
            return f"mask_to_float({arg.text})"
        return rounded_text(f"(float){arg.text}", result)
    if arg.dtype.is_float and result in _WIDER:
        # What does not fit keeps its low bits, as in ONNX Runtime; C++ alone leaves it open.
        return f"({CPP_TYPES[result]})({_WIDER[result]}){arg.text}"
    return f"({CPP_TYPES[result]}){arg.text}"


_WIDER = {
    DType.I8: "int32_t",
    DType.I16: "int32_t",
    DType.U8: "int32_t",
    DType.U16: "int32_t",
    DType.U32: "int64_t",
}
"""The integers that processors convert floats to."""
