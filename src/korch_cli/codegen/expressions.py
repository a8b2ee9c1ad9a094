"""Index arithmetic and elementwise functions as C++ expressions."""

from __future__ import annotations

import math

import numpy as np

from korch_cli.codegen.index import Atom, Div, Expr, Lookup, Var
from korch_cli.codegen.nest import Guards
from korch_cli.core.errors import Refusal
from korch_cli.core.types import DType

CPP_TYPES = {DType.F32: "float", DType.BOOL: "uint8_t", DType.I32: "int32_t", DType.I64: "int64_t"}
"""What an element is in memory."""

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
    "abs": "abs_",
    "ceil": "ceil_",
    "cos": "cos_",
    "erf": "erf_",
    "exp": "exp_",
    "floor": "floor_",
    "log": "log_",
    "max": "vmax",
    "min": "vmin",
    "neg": "neg",
    "pow": "pow_",
    "reciprocal": "reciprocal_",
    "round": "round_",
    "sigmoid": "sigmoid_",
    "sign": "sign_",
    "sin": "sin_",
    "softplus": "softplus_",
    "sqrt": "sqrt_",
    "tanh": "tanh_",
}
_LOGICAL = {"and": "and_", "or": "or_", "xor": "xor_", "not": "not_"}
_INTEGER_CALLS = {"abs": "int_abs", "max": "int_max", "min": "int_min", "neg": "int_neg", "sign": "int_sign"}


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


def literal_text(value: float | int | bool, dtype: DType) -> str:
    """Return a number as a C++ literal of its element type."""
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if not dtype.is_float:
        return f"INT64_C({value})" if dtype is DType.I64 else str(value)
    number = float(value)
    if math.isnan(number):
        return "kNaN"
    if math.isinf(number):
        return "kInfinity" if number > 0 else "-kInfinity"
    text = str(np.float32(number))
    if "e" not in text and "." not in text:
        text += ".0"
    return f"{text}f"


class Operand:
    """A C++ expression with its element type; `varying` says that it has a value for each lane."""

    def __init__(self, text: str, dtype: DType, *, varying: bool, literal: float | int | bool | None = None) -> None:
        self.text, self.dtype, self.varying, self.literal = text, dtype, varying, literal

    def wide(self, lanes: str) -> str:
        """Return the expression with one value for each lane."""
        if self.varying or self.dtype is not DType.F32 or lanes == "float":
            return self.text
        return f"broadcast<{lanes}>({self.text})"


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
    dtype = args[-1].dtype
    if function == "cast":
        return _cast_text(args[0], result)
    if function == "where":
        return choice_text(args[0], args[1].wide(lanes), args[2].wide(lanes))
    if dtype is DType.BOOL:
        if function in _LOGICAL:
            return f"{_LOGICAL[function]}({', '.join(a.text for a in args)})"
        if function == "equal":
            return f"not_(xor_({args[0].text}, {args[1].text}))"
        raise Refusal(f"The function {function} of booleans is not generated.")
    if dtype is not DType.F32:
        return _integer_text(function, args)
    if function in _OPERATORS:
        return _operator_text(function, args)
    return _float_call(function, args, lanes)


def choice_text(condition: Operand, inside: str, outside: str) -> str:
    """Return one of two expressions: lane by lane where the condition differs between lanes."""
    if condition.varying:
        return f"select({condition.text}, {inside}, {outside})"
    return f"{condition.text} ? {inside} : {outside}"


def _operator_text(function: str, args: list[Operand]) -> str:
    return f"{args[0].text} {_OPERATORS[function]} {args[1].text}"


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
        raise Refusal(f"The function {function} of f32 is not generated.")
    return f"{_FLOAT_CALLS[function]}({', '.join(a.wide(lanes) for a in args)})"


def _integer_text(function: str, args: list[Operand]) -> str:
    if function == "div":
        return f"int_div({args[0].text}, {args[1].text})"
    if function in _OPERATORS:
        return f"{args[0].text} {_OPERATORS[function]} {args[1].text}"
    if function in _INTEGER_CALLS:
        return f"{_INTEGER_CALLS[function]}({', '.join(a.text for a in args)})"
    raise Refusal(f"The function {function} of {args[-1].dtype.text} is not generated.")


def _cast_text(arg: Operand, result: DType) -> str:
    if arg.dtype is result:
        return arg.text
    if result is DType.BOOL:
        return f"{arg.text} != 0"
    if arg.dtype is DType.BOOL:
        return f"mask_to_float({arg.text})" if result is DType.F32 else f"({CPP_TYPES[result]}){arg.text}"
    return f"({CPP_TYPES[result]}){arg.text}"
