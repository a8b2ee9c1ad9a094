"""Graphs of bodies that several tests generate kernels for."""

from __future__ import annotations

from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.text import parse_graph


def graph(*lines: str) -> PrimitiveGraph:
    return parse_graph("\n".join(lines))


def layout(operand: str, op: str, result: str, function: str = "neg", dtype: str = "f32") -> PrimitiveGraph:
    """A layout primitive, with an elementwise one behind it."""
    return graph(
        f'%0 "x" {dtype}[{operand}] = input',
        f'%1 "y" {dtype}[{result}] = {op} (%0) @0',
        f'%2 "z" {dtype}[{result}] = elementwise {function} (%1) @1',
        "outputs (%2)",
    )


def softmax(dtype: str, shape: str, axes: str, reduced: str) -> PrimitiveGraph:
    return graph(
        f'%0 "x" {dtype}[{shape}] = input',
        f'%1 "m" {dtype}[{reduced}] = reduce max axes=[{axes}] (%0) @0',
        f'%2 "d" {dtype}[{shape}] = elementwise sub (%0, %1) @0',
        f'%3 "e" {dtype}[{shape}] = elementwise exp (%2) @0',
        f'%4 "s" {dtype}[{reduced}] = reduce sum axes=[{axes}] (%3) @0',
        f'%5 "y" {dtype}[{shape}] = elementwise div (%3, %4) @0',
        "outputs (%5)",
    )
