from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from korch_cli.core.check import check
from korch_cli.core.graph import PrimitiveGraph, Value
from korch_cli.core.primitive import Constant, Elementwise, Input, Opaque
from korch_cli.core.text import parse_graph
from korch_cli.core.types import DType, TensorType

CONV = 'attributes={"after":[1,1],"before":[1,1],"dilations":[1,1],"group":2,"strides":[2,2]}'
WINDOW = "window=[3,3] strides=[2,2] dilations=[1,1] before=[1,1] after=[1,1] count_padding=false"


def graph(operands: Sequence[str], result: str, operation: str) -> PrimitiveGraph:
    """One primitive: operand types, result type, operation."""
    lines = [f'%{i} "x{i}" {operand} = input' for i, operand in enumerate(operands)]
    refs = ", ".join(f"%{i}" for i in range(len(operands)))
    lines.append(f'%{len(operands)} "y" {result} = {operation} ({refs}) @0')
    return parse_graph("\n".join([*lines, f"outputs (%{len(operands)})"]))


@pytest.mark.parametrize(
    ("operands", "result", "operation"),
    [
        (["f32[2,3]", "f32[3]"], "f32[2,3]", "elementwise add"),
        (["f32[2]"], "i64[2]", "elementwise cast"),
        (["i32[2]", "i32[]"], "bool[2]", "elementwise less"),
        (["bool[2]", "f16[2]", "f16[]"], "f16[2]", "elementwise where"),
        (["bool[2]", "bool[2]"], "bool[2]", "elementwise and"),
        (["f32[3,1]"], "f32[2,3,4]", "broadcast"),
        (["f32[2,3,4]"], "f32[1,3,1]", "reduce sum axes=[0,2]"),
        (["f32[1,2,7,8]"], "f32[1,2,4,4]", f"window_reduce max {WINDOW}"),
        (["f32[1,2,8,8]"], "f32[1,2,5,5]", f"window_reduce max {WINDOW}"),
        (["f32[2,3]"], "f32[3,2]", "transpose perm=[1,0]"),
        (["f32[2,3]"], "f32[6,1]", "reshape"),
        (["f32[5,4]"], "f32[2,4]", "slice starts=[1,3] steps=[2,-1]"),
        (["f32[5]"], "f32[0]", "slice starts=[9] steps=[1]"),
        (["f32[2,3]"], "f32[2,7]", "pad before=[0,1] value=0.0"),
        (["f32[2,3]", "f32[2,1]"], "f32[2,4]", "concat axis=1"),
        (["f32[2,3]"], "f32[2,5]", "gather axis=1 indices=[0,0,2,1,1]"),
        (["f32[5,2,3]", "f32[3,4]"], "f32[5,2,4]", "linear matmul attributes={}"),
        (["f32[1,4,8,8]", "f32[6,2,3,3]"], "f32[1,6,4,4]", f"linear conv {CONV}"),
        (["f32[2]", "f32[7]"], "string[]", "opaque operator=0 output=1"),
    ],
)
def test_what_is_right_passes(operands: Sequence[str], result: str, operation: str) -> None:
    check(graph(operands, result, operation))


@pytest.mark.parametrize(
    ("operands", "result", "operation", "reason"),
    [
        (["f32[2]"], "f32[2]", "elementwise divine", "there is no elementwise function divine"),
        (["f32[2]"], "f32[2]", "elementwise add", "1 operands instead of 2"),
        (["f32[2]", "f32[3]"], "f32[3]", "elementwise add", "do not broadcast"),
        (["f32[1]", "f32[1]"], "f32[3]", "elementwise add", "do not broadcast to"),
        (["f32[2]", "f16[2]"], "f32[2]", "elementwise add", "different element types"),
        (["f32[2]", "f32[2]"], "f32[2]", "elementwise less", "the result is bool, not f32"),
        (["f32[2]", "f32[2]"], "i32[2]", "elementwise add", "the result is f32, not i32"),
        (["f32[2]", "f32[2]", "f32[2]"], "f32[2]", "elementwise where", "the condition of where is bool"),
        (["i32[2]"], "bool[2]", "elementwise not", "the operands of not are bool"),
        (["f32[3]"], "f32[2,4]", "broadcast", "do not broadcast"),
        (["f32[3]"], "f16[3]", "broadcast", "an operand is not f16"),
        (["f32[3]"], "f32[3]", "reduce sum axes=[]", "at least one axis"),
        (["f32[3]"], "f32[1]", "reduce norm axes=[0]", "no reduction norm"),
        (["f32[3,2]"], "f32[1,1]", "reduce sum axes=[1,0]", "not ascending"),
        (["f32[3]"], "f32[3]", "reduce sum axes=[1]", "not all axes"),
        (["f32[3]"], "f32[]", "reduce sum axes=[0]", "has the shape"),
        (["f32[1,2,7,8]"], "f32[1,2,4,4]", f"window_reduce min {WINDOW}", "no window reduction min"),
        (["f32[7]"], "f32[4]", f"window_reduce max {WINDOW}", "too few axes"),
        (["f32[7,7]"], "f32[1,4,4]", f"window_reduce max {WINDOW}", "differ in rank"),
        (["f32[2,7,7]"], "f32[3,4,4]", f"window_reduce max {WINDOW}", "an axis without a window"),
        (["f32[7,7]"], "f32[5,4]", f"window_reduce max {WINDOW}", "gives 4 to 4 positions, not 5"),
        (["f32[7,7]"], "f32[4,4]", f"window_reduce max {WINDOW.replace('[2,2]', '[0,2]')}", "less than 1"),
        (["f32[7,7]"], "f32[4,4]", f"window_reduce max {WINDOW.replace('before=[1,1]', 'before=[-1,1]')}", "negative"),
        (
            ["f32[7,7]"],
            "f32[4,4]",
            f"window_reduce max {WINDOW.replace('[2,2]', '[2]')}",
            "for each axis of the window",
        ),
        (["f32[2,3]"], "f32[2,3]", "transpose perm=[1,0]", "has the shape"),
        (["f32[2,3]"], "f32[2,2]", "transpose perm=[0,0]", "no permutation"),
        (["f32[2,3]"], "f32[5]", "reshape", "number of elements"),
        (["f32[2,3]"], "f16[6]", "reshape", "an operand is not f16"),
        (["f32[5]"], "f32[3]", "slice starts=[1] steps=[2]", "leaves"),
        (["f32[5]"], "f32[3]", "slice starts=[1] steps=[-1]", "leaves"),
        (["f32[5]"], "f32[3]", "slice starts=[1] steps=[0]", "a step is zero"),
        (["f32[5]"], "f32[3]", "slice starts=[1,0] steps=[1,1]", "for each axis"),
        (["f32[2]"], "f32[3]", "pad before=[2] value=0.0", "does not fit"),
        (["f32[2]"], "f32[3]", "pad before=[-1] value=0.0", "does not fit"),
        (["f32[2]"], "f32[3]", "pad before=[1,0] value=0.0", "for each axis"),
        (["f32[2]", "f32[2]"], "f32[5]", "concat axis=0", "do not add up"),
        (["f32[2]", "f32[2]"], "f32[4]", "concat axis=1", "no axis 1"),
        (["f32[2,3]", "f32[2,2]"], "f32[4,3]", "concat axis=0", "another axis than 0"),
        (["f32[2]", "f32[2,1]"], "f32[4]", "concat axis=0", "differ in rank"),
        (["f32[2]"], "f32[1]", "gather axis=0 indices=[2]", "an index leaves"),
        (["f32[2]"], "f32[1]", "gather axis=1 indices=[0]", "no axis 1"),
        (["f32[2]"], "f32[2]", "gather axis=0 indices=[0]", "has the shape"),
        (["f32[2,3]", "f32[3,2]"], "f32[2,2]", "linear einsum attributes={}", "no product einsum"),
        (["f32[2,3]"], "f32[2,2]", "linear matmul attributes={}", "1 operands instead of 2"),
        (["f32[2,3]", "f32[3,2]"], "f32[2,2]", 'linear matmul attributes={"group":1}', "no attributes"),
        (["f32[3]", "f32[3,2]"], "f32[2]", "linear matmul attributes={}", "at least two axes"),
        (["f32[2,3]", "f32[4,2]"], "f32[2,2]", "linear matmul attributes={}", "inner extent"),
        (["f32[2,3]", "f32[3,2]"], "f32[2,3]", "linear matmul attributes={}", "has the shape"),
        (["f32[2,3]", "f32[3,2]"], "f32[2,2]", 'linear matmul attributes={"b":1,"a":1}', "not sorted"),
        (["f32[1,4,8,8]", "f32[6,2,3,3]"], "f32[1,6,4,4]", "linear conv attributes={}", "a conv has the attributes"),
        (["f32[1,4,8,8]", "f32[6,4,3,3]"], "f32[1,6,4,4]", f"linear conv {CONV}", "does not have the channels"),
        (["f32[1,4,8,8]", "f32[5,2,3,3]"], "f32[1,5,4,4]", f"linear conv {CONV}", "do not divide"),
        (["f32[1,4,8,8]", "f32[6,2,3,3]"], "f32[1,6,8,8]", f"linear conv {CONV}", "has the shape"),
        (["f32[4,8]", "f32[6,2]"], "f32[1,6]", f"linear conv {CONV}", "differ in rank"),
        (
            ["f32[1,4,8,8]", "f32[6,2,3,3]"],
            "f32[1,6,4,4]",
            f"linear conv {CONV.replace(':2,', ':[2],')}",
            "group is a number",
        ),
        (
            ["f32[1,4,8,8]", "f32[6,2,3,3]"],
            "f32[1,6,4,4]",
            f"linear conv {CONV.replace(':2,', ':0,')}",
            "group is at least 1",
        ),
        ([], "f32[2]", "concat axis=0", "at least one operand"),
        (["f32[2]"], "f32[2]", "opaque operator=3 output=0", "names another operator"),
        (["f32[2]"], "f32[2]", "opaque operator=0 output=-1", "names no output"),
    ],
)
def test_what_is_wrong_is_said(operands: Sequence[str], result: str, operation: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as raised:
        check(graph(operands, result, operation))
    assert f"value %{len(operands)} (y)" in str(raised.value)


def test_sources() -> None:
    f32 = TensorType(DType.F32, (2,))
    for value, reason in [
        (Value(0, "x", f32, Input(), (), 3), "a source comes from no operator"),
        (Value(0, "x", TensorType(DType.F32, (-1,)), Input()), "an extent is negative"),
        (Value(0, "x", f32, Constant(np.zeros(2, np.int64))), r"the constant holds i64\[2\], not f32\[2\]"),
        (Value(1, "x", f32, Input()), "has the id 1"),
        (Value(0, "x", f32, Elementwise("neg"), (0,), 0), "reads %0, which does not come before it"),
        (Value(0, "x", f32, Elementwise("neg"), (-1,), 0), "reads %-1, which does not come before it"),
    ]:
        with pytest.raises(ValueError, match=reason):
            check(PrimitiveGraph((value,), ()))
    with pytest.raises(ValueError, match="a source has no operands"):
        check(PrimitiveGraph((Value(0, "x", f32, Input()), Value(1, "y", f32, Input(), (0,))), ()))


def test_the_graph_around_the_values() -> None:
    f32 = TensorType(DType.F32, (2,))
    x, y = Value(0, "x", f32, Input()), Value(1, "x", f32, Opaque(0, 0), (0,), 0)
    with pytest.raises(ValueError, match="a name that an earlier value has"):
        check(PrimitiveGraph((x, y), ()))
    with pytest.raises(ValueError, match="the output %1 is not a value"):
        check(PrimitiveGraph((x,), (1,)))
    with pytest.raises(ValueError, match="the output %2 of operator 0 does not exist"):
        check(PrimitiveGraph((x,), (0,), {0: (-1, 2)}))
