from __future__ import annotations

import pytest

from korch_cli.candidates import lower_bound_us
from korch_cli.core.kernel import KernelBody
from korch_cli.core.machine import MachineLimits
from korch_cli.core.text import parse_graph

MEMORY = MachineLimits("", 1, ((1 << 40, 1e9),), 1e30, 0.0)
"""A byte takes a nanosecond, and arithmetic no time."""
ARITHMETIC = MachineLimits("", 1, ((1, 1e30),), 0.5e9, 0.0)
"""One operation of a fused pair takes a nanosecond, and memory no time."""


def body(*lines: str) -> KernelBody:
    return KernelBody("", parse_graph("\n".join(lines)), (), ())


def one(operands: list[str], result: str, operation: str) -> KernelBody:
    lines = [f'%{i} "a{i}" {operand} = input' for i, operand in enumerate(operands)]
    refs = ", ".join(f"%{i}" for i in range(len(operands)))
    return body(*lines, f'%{len(operands)} "v0" {result} = {operation} ({refs})', f"outputs (%{len(operands)})")


@pytest.mark.parametrize(
    ("operands", "result", "operation", "size_bytes"),
    [
        (["f32[10]", "f32[10]"], "f32[10]", "elementwise add", 120),
        (["f16[10]"], "bool[10]", "elementwise cast", 30),
        (["f32[10,1]"], "f32[10,7]", "broadcast", 320),
        (["f32[10,7]"], "f32[10,1]", "reduce sum axes=[1]", 320),
        (["f32[10,7]"], "f32[7,10]", "transpose perm=[1,0]", 560),
        # Only a part of the operand is needed.
        (["f32[10,7]"], "f32[2,3]", "slice starts=[1,1] steps=[1,1]", 48),
        (["f32[10,7]"], "f32[10,4]", "gather axis=1 indices=[2,2,0,2]", 160 + 80),
        # All of it is needed, and the result is larger.
        (["f32[10]"], "f32[14]", "pad before=[2] value=0.0", 96),
        (["f32[10]", "f32[4]"], "f32[14]", "concat axis=0", 112),
        # A window of 2 with a stride of 3 leaves every third row out, and the last one; padding is not read.
        (
            ["f32[2,7,4]"],
            "f32[2,2,4]",
            "window_reduce max window=[2,1] strides=[3,1] dilations=[1,1] before=[0,0] after=[0,0] count_padding=false",
            2 * 4 * 4 * 4 + 64,
        ),
        (
            ["f32[6]"],
            "f32[4]",
            "window_reduce max window=[2] strides=[2] dilations=[1] before=[1] after=[1] count_padding=false",
            40,
        ),
        (["f32[2,3]", "f32[3,4]"], "f32[2,4]", "linear matmul attributes={}", 24 + 48 + 32),
    ],
)
def test_bytes(operands: list[str], result: str, operation: str, size_bytes: int) -> None:
    assert lower_bound_us(one(operands, result, operation), MEMORY) == pytest.approx(size_bytes / 1000)


@pytest.mark.parametrize(
    ("lines", "size_bytes"),
    [
        # x is read once, whatever uses it; y is written; what lies between is not moved.
        (
            [
                '%0 "a0" f32[10] = input',
                '%1 "v0" f32[10] = elementwise neg (%0)',
                '%2 "v1" f32[10] = elementwise mul (%1, %0)',
                "outputs (%2)",
            ],
            80,
        ),
        # A literal is no operand, and an output that repeats is written once.
        (
            [
                '%0 "a0" f32[10] = input',
                '%1 "c0" f32[] = literal 2.0',
                '%2 "v0" f32[10] = elementwise mul (%0, %1)',
                "outputs (%2, %2)",
            ],
            80,
        ),
        # A slice at the end limits what the chain before it needs, through an elementwise function and a reduction.
        (
            [
                '%0 "a0" f32[10,8] = input',
                '%1 "v0" f32[10,8] = elementwise neg (%0)',
                '%2 "v1" f32[10,1] = reduce sum axes=[1] (%1)',
                '%3 "v2" f32[3,1] = slice starts=[1,0] steps=[1,1] (%2)',
                "outputs (%3)",
            ],
            3 * 8 * 4 + 12,
        ),
        # Of 12 elements of the concatenation, 9 are wanted; 4 may come from the second operand.
        (
            [
                '%0 "a0" f32[8] = input',
                '%1 "a1" f32[4] = input',
                '%2 "v0" f32[12] = concat axis=0 (%0, %1)',
                '%3 "v1" f32[9] = slice starts=[0] steps=[1] (%2)',
                "outputs (%3)",
            ],
            5 * 4 + 1 * 4 + 36,
        ),
        # Three of four gathered elements may be the same one, twice.
        (
            [
                '%0 "a0" f32[8] = input',
                '%1 "v0" f32[4] = gather axis=0 indices=[5,5,1,2] (%0)',
                '%2 "v1" f32[3] = slice starts=[0] steps=[1] (%1)',
                "outputs (%2)",
            ],
            2 * 4 + 12,
        ),
        # Nothing certain is known of what a part of a windowed result needs.
        (
            [
                '%0 "a0" f32[8] = input',
                '%1 "v0" f32[7] = window_reduce max window=[2] strides=[1] dilations=[1] before=[0] after=[0] '
                "count_padding=false (%0)",
                '%2 "v1" f32[3] = slice starts=[0] steps=[1] (%1)',
                "outputs (%2)",
            ],
            12,
        ),
    ],
)
def test_bytes_of_several_primitives(lines: list[str], size_bytes: int) -> None:
    assert lower_bound_us(body(*lines), MEMORY) == pytest.approx(size_bytes / 1000)


@pytest.mark.parametrize(
    ("operands", "result", "operation", "flops"),
    [
        (["f32[10]", "f32[10]"], "f32[10]", "elementwise add", 10),
        (["f32[10]"], "f32[10]", "elementwise exp", 120),
        (["f32[10]", "f32[10]"], "f32[10]", "elementwise div", 40),
        (["f32[10,4]", "f32[10,1]"], "f32[10,4]", "elementwise div", 40),
        (["bool[10]", "bool[10]"], "bool[10]", "elementwise and", 2.5),
        (["f32[10,7]"], "f32[10,1]", "reduce sum axes=[1]", 60),
        (["f32[10,7]"], "f32[7,10]", "transpose perm=[1,0]", 0),
        (["f32[2,3]", "f32[3,4]"], "f32[2,4]", "linear matmul attributes={}", 48),
    ],
)
def test_arithmetic(operands: list[str], result: str, operation: str, flops: float) -> None:
    assert lower_bound_us(one(operands, result, operation), ARITHMETIC) == pytest.approx(flops / 1000)


def test_a_power_with_a_literal_exponent_is_a_product() -> None:
    square = body(
        '%0 "a0" f32[10] = input',
        '%1 "c0" f32[] = literal 2.0',
        '%2 "v0" f32[10] = elementwise pow (%0, %1)',
        "outputs (%2)",
    )
    assert lower_bound_us(square, ARITHMETIC) == pytest.approx(0.01)


def test_dispatch_and_the_slower_of_the_two() -> None:
    add = one(["f32[10]", "f32[10]"], "f32[10]", "elementwise add")
    assert lower_bound_us(add, MachineLimits("", 1, ((1, 1e9),), 1e9, 3.0)) == pytest.approx(3.12)
    assert lower_bound_us(add, MachineLimits("", 1, ((1, 1e9),), 1e6, 3.0)) == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("elements", "rate"),
    # Between two calibrated sizes the better of the two rates counts, and so does any better rate of a larger size.
    [(1, 4e9), (12, 4e9), (20, 4e9), (50, 3e9), (100, 3e9), (200, 2e9), (500, 1e9), (10**6, 1e9)],
)
def test_the_rate_is_one_that_the_caches_may_reach(elements: int, rate: float) -> None:
    limits = MachineLimits("", 1, ((100, 4e9), (200, 1.5e9), (400, 3e9), (1000, 2e9), (3000, 1e9)), 1e30, 0.0)
    negate = one([f"f32[{elements}]"], f"f32[{elements}]", "elementwise neg")
    assert lower_bound_us(negate, limits) == pytest.approx(8 * elements / rate * 1e6)
