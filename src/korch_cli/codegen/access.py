"""Loads, stores and conditions as C++: one element, or the lanes of a vector."""

from __future__ import annotations

from korch_cli.codegen.elements import read, suffixed, written
from korch_cli.codegen.expressions import LANES, Operand, Tables, guards_text, held_type, index_text
from korch_cli.codegen.index import Div, Expr, Var, variable
from korch_cli.codegen.nest import Count, Guard, Guards, Load, Store
from korch_cli.core.types import DType

_MAX_LANES = 16


def load_text(load: Load, dtype: DType, lane: Var | None, tables: Tables) -> str:
    """Return a load as an expression.

    Args:
        load: what is loaded.
        dtype: its element type.
        lane: the variable whose neighbouring values fill a vector `V`; None where one element is loaded.
        tables: collects the tables that the address needs.
    """
    pointer = f"a{load.argument}"
    address = index_text(load.address, tables)
    if lane is None:
        guarded = guards_text(load.guards, tables)
        element = read(f"{pointer}[{address}]", dtype)
        text = element if guarded == "true" else f"(({guarded}) ? {element} : 0)"
        return f"{text} != 0" if dtype is DType.BOOL else text
    if all(lane not in g.position.variables for g in load.guards):
        call = _vector_load(load.address, dtype, lane, tables)
        if call is not None:
            nothing = "Mask<V>{}" if dtype is DType.BOOL else "V{}"
            text = f"{call[0]}({pointer} + {call[1]})"
            return f"({guards_text(load.guards, tables)}) ? {text} : {nothing}" if load.guards else text
    gather = "lane_mask" if dtype is DType.BOOL else "lanes"
    element = read(f"{pointer}[{index_text(_in_lane(load.address, lane), tables)}]", dtype)
    condition = guards_text(_guards_in_lane(load.guards, lane), tables)
    value = element if condition == "true" else f"({condition}) ? {element} : 0"
    return f"{gather}<V>([&](int64_t i) {{ return {value}; }})"


def repeats(load: Load, lane: Var) -> int:
    """Return how many neighbouring lanes share an element, from the first lane on: 1 where none do."""
    found = _repeated(load.address, lane)
    return 1 if found is None or any(lane in g.position.variables for g in load.guards) else found[0]


def _vector_load(address: Expr, dtype: DType, lane: Var, tables: Tables) -> tuple[str, str] | None:
    """The function that loads neighbouring elements, and the address of the first lane's."""
    step = address.coefficient(lane)
    if step == 1:
        call = "load_mask" if dtype is DType.BOOL else suffixed("load", dtype)
        return f"{call}<V>", index_text(address, tables)
    if dtype is not DType.F32:
        return None
    if step in (2, -1):
        return ("load_pairs<V>" if step == 2 else "load_reversed<V>"), index_text(address, tables)
    found = _repeated(address, lane)
    return None if found is None else (f"load_repeated<V, {found[0]}>", index_text(address, tables))


def _repeated(address: Expr, lane: Var) -> tuple[int, Expr] | None:
    """Match rest + lane / n for a power of two n, where lanes begin at multiples of n: return n and the rest."""
    for atom, coefficient in address.terms:
        if isinstance(atom, Div) and coefficient == 1 and atom.operand == variable(lane):
            rest = Expr(tuple(term for term in address.terms if term[0] != atom), address.constant)
            if lane not in rest.variables and atom.by in (2, 4, 8, 16):
                return atom.by, rest
    return None


def transposed_rows(load: Load, dtype: DType, lane: Var, across: Var, tables: Tables) -> str | None:
    """Return row `i` of the square that holds a load for the lanes from `lane` on and as many values of `across`.

    None unless neighbours lie along `across`. The square begins at the variable `<across>_first`.
    """
    address = load.address
    if dtype not in LANES or load.guards or address.coefficient(across) != 1 or lane == across:
        return None
    if address.coefficient(lane) in (None, 0, 1):
        return None
    first = Var(f"{across.name}_first", across.extent)
    row = index_text(_in_lane(address, lane).substitute({across: variable(first)}), tables)
    return f"{suffixed('load', dtype)}<vf>(a{load.argument} + {row})"


def store_text(store: Store, value: Operand, dtype: DType, lane: Var | None, tables: Tables) -> str:
    """Return the statement that stores a value; `lane` as for loads."""
    pointer = f"r{store.result}"
    address = index_text(store.address, tables)
    if lane is None or lane not in store.address.variables:
        return f"{pointer}[{address}] = {written(value.text, dtype)};"
    text = value.wide("V") if dtype in LANES else f"mask_of<V>({value.text})"
    if store.address.coefficient(lane) == 1:
        call = "store_mask" if dtype is DType.BOOL else suffixed("store", dtype)
        return f"{call}({pointer} + {address}, {text});"
    element = f"{pointer}[{index_text(_in_lane(store.address, lane), tables)}]"
    call = "spread_mask" if dtype is DType.BOOL else "spread"
    return f"{call}<V>({text}, [&](int64_t i, auto x) {{ {element} = {written('x', dtype)}; }});"


def condition_operand(guards: Guards, lane: Var | None, tables: Tables) -> Operand:
    """Return whether all guards hold, in each lane where that differs."""
    if lane is None or all(lane not in g.position.variables for g in guards):
        return Operand(f"({guards_text(guards, tables)})", DType.BOOL, varying=False)
    text = guards_text(_guards_in_lane(guards, lane), tables)
    return Operand(f"lane_mask<V>([&](int64_t i) {{ return {text}; }})", DType.BOOL, varying=True)


def count_text(count: Count, dtype: DType, lane: Var | None, tables: Tables) -> str:
    """Return a product of index expressions as a number, in each lane if `lane` is not None."""
    factors, guards = count.factors, count.guards
    if lane is not None:
        factors, guards = tuple(_in_lane(factor, lane) for factor in factors), _guards_in_lane(guards, lane)
    product = " * ".join(f"({index_text(factor, tables)})" for factor in factors)
    condition = guards_text(guards, tables)
    number = f"({held_type(dtype)})({product if condition == 'true' else f'({condition}) ? {product} : 1'})"
    return number if lane is None else f"lanes<V>([&](int64_t i) {{ return {number}; }})"


def _in_lane(expr: Expr, lane: Var) -> Expr:
    """The expression in lane `i` of the vector that begins at `lane`."""
    return expr.substitute({lane: variable(lane) + variable(Var("i", _MAX_LANES))})


def _guards_in_lane(guards: Guards, lane: Var) -> Guards:
    return tuple(Guard(_in_lane(g.position, lane), g.low, g.high) for g in guards)
