"""Values that are read twice, one after the other: as many paths through a body as two to the power of their number."""

from __future__ import annotations

import pytest

from korch_cli.codegen import generate, generate_cuda
from korch_cli.core.graph import PrimitiveGraph
from tests.cuda_on_cpu.agreement import body_of
from tests.unit.codegen.body_graphs import graph

TIMES = 64
"""Whoever follows every path does not come to an end."""


def doubled(function: str, shape: str, first: int) -> list[str]:
    """Return the lines that apply a function to a value and itself `TIMES` times, from value `first` on."""
    return [
        f'%{i} "v{i}" f32[{shape}] = elementwise {function} (%{i - 1}, %{i - 1}) @0'
        for i in range(first, first + TIMES)
    ]


def bodies(function: str) -> dict[str, PrimitiveGraph]:
    """Return bodies in which such values are an output, stand in front of a reduction, beside it, behind it, divide."""
    end = TIMES + 2
    small, large = "5", "5,37"
    inputs = [f'%0 "x" f32[{large}] = input', f'%1 "s" f32[{small},1] = input']
    return {
        "output": graph(*inputs, *doubled(function, f"{small},1", 2), f"outputs (%{end - 1})"),
        "front": graph(
            f'%0 "r" f32[{small}] = input',
            f'%1 "x" f32[{large}] = input',
            *doubled(function, large, 2),
            f'%{end} "sum" f32[{small},1] = reduce sum axes=[1] (%{end - 1}) @0',
            f"outputs (%{end})",
        ),
        "beside": graph(
            *inputs,
            *doubled(function, f"{small},1", 2),
            f'%{end} "p" f32[{large}] = elementwise mul (%0, %{end - 1}) @0',
            f'%{end + 1} "sum" f32[{small},1] = reduce sum axes=[1] (%{end}) @0',
            f"outputs (%{end + 1})",
        ),
        "behind": graph(
            *inputs[:1],
            f'%1 "sum" f32[{small},1] = reduce sum axes=[1] (%0) @0',
            *doubled(function, f"{small},1", 2),
            f'%{end} "q" f32[{large}] = elementwise div (%0, %{end - 1}) @0',
            f"outputs (%{end})",
        ),
        "columns": graph(
            f'%0 "x" f32[{large}] = input',
            '%1 "sum" f32[1,37] = reduce sum axes=[0] (%0) @0',
            *doubled(function, "1,37", 2),
            f'%{end} "d" f32[{large}] = elementwise sub (%0, %{end - 1}) @0',
            f'%{end + 1} "max" f32[1,37] = reduce max axes=[0] (%{end}) @0',
            f"outputs (%{end + 1})",
        ),
    }


@pytest.mark.parametrize("function", ["add", "max", "mul", "sub"])
@pytest.mark.parametrize("place", sorted(bodies("add")))
def test_every_value_is_computed_once(place: str, function: str) -> None:
    body = body_of(bodies(function)[place])
    sources = [kernel.source for kernel in generate(body)] + [kernel.source for kernel in generate_cuda(body)]
    assert sources
    assert max(map(len, sources)) < 500 * TIMES
