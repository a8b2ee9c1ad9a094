"""Whatever type and opset version a primitive has: it is refused, or ONNX Runtime loads its function."""

from __future__ import annotations

from collections.abc import Iterator

import onnxruntime
import pytest
from test_function_bodies import body_of
from test_function_bodies import one as lines_of

from korch_cli.core.elementwise import FUNCTIONS
from korch_cli.core.kernel import KernelBody
from korch_cli.core.types import DType
from korch_cli.emit import can_be_function, probe_model
from korch_cli.emit.primitives import OLDEST_OPSET
from korch_cli.fission.registry import LATEST

OPSETS = sorted({*range(OLDEST_OPSET, 14), 18, 21, LATEST[""]})
TYPES = [dtype for dtype in DType if dtype is not DType.STRING]
ANY = frozenset({"where", "equal", "cast", "max", "min", "greater", "less", "greater_equal", "less_equal"})
NUMERIC = frozenset({"add", "sub", "mul", "div", "mod", "fmod", "abs", "sign"})
LOGICAL = frozenset({"and", "or", "xor", "not"})


def takes(function: str, dtype: DType) -> bool:
    """Whether an operator of ONNX computes this function of this type, at some version."""
    if function in LOGICAL:
        return dtype is DType.BOOL
    if function in ANY:
        return True
    if function in NUMERIC:
        return dtype is not DType.BOOL
    if function.startswith("bit_"):
        return dtype.is_integer
    if function.startswith("shift_"):
        return dtype.is_integer and dtype.text.startswith("u")
    if function == "neg":
        return dtype is not DType.BOOL and not dtype.text.startswith("u")
    return dtype.is_float or (function == "pow" and dtype in (DType.I32, DType.I64))


def one(result: str, operation: str, *operands: str) -> KernelBody:
    return body_of(*lines_of(result, operation, *operands))


def elementwise_of(dtype: DType) -> Iterator[KernelBody]:
    typed = f"{dtype.text}[2,5]"
    for name, function in FUNCTIONS.items():
        if not takes(name, dtype):
            continue
        operands = ["bool[2,5]" if name == "where" and not i else typed for i in range(function.arity)]
        results = [other for other in TYPES if other is not dtype] if name == "cast" else [function.result or dtype]
        for result in results:
            yield one(f"{result.text}[2,5]", f"elementwise {name}", *operands)


def layouts_of(t: str) -> Iterator[KernelBody]:
    yield one(f"{t}[3,2,5]", "broadcast", f"{t}[2,1]")
    yield one(f"{t}[5,2]", "transpose perm=[1,0]", f"{t}[2,5]")
    yield one(f"{t}[5,2]", "reshape", f"{t}[2,5]")
    yield one(f"{t}[2,5]", "reshape", f"{t}[2,5]")
    yield one(f"{t}[2,3]", "slice starts=[0,1] steps=[1,1]", f"{t}[2,5]")
    yield one(f"{t}[2,3]", "slice starts=[0,4] steps=[1,-2]", f"{t}[2,5]")
    yield one(f"{t}[4,6]", "pad before=[1,0] value=1.0", f"{t}[2,5]")
    yield one(f"{t}[2,8]", "concat axis=1", f"{t}[2,5]", f"{t}[2,3]")
    yield one(f"{t}[2,4]", "gather axis=1 indices=[4,0,0,2]", f"{t}[2,5]")


def sums_of(dtype: DType) -> Iterator[KernelBody]:
    t = dtype.text
    functions = ["max", "min"] if dtype is DType.BOOL else ["max", "min", "sum", "prod"]
    for function in [*functions, "mean"] if dtype.is_float else functions:
        yield one(f"{t}[2,1]", f"reduce {function} axes=[1]", f"{t}[2,5]")
    window = "window=[3,2] strides=[2,1] dilations=[1,1] before=[1,0] after=[1,0] count_padding=false"
    for function in ("max", "sum", "mean"):
        yield one(f"{t}[1,3,4,5]", f"window_reduce {function} {window}", f"{t}[1,3,7,6]")
    prefix = "window=[5] strides=[1] dilations=[1] before=[4] after=[0] count_padding=false"
    yield one(f"{t}[2,5]", f"window_reduce sum {prefix}", f"{t}[2,5]")
    yield one(f"{t}[2,3]", "linear matmul attributes={}", f"{t}[2,4]", f"{t}[4,3]")
    conv = '{"after":[0,1],"before":[1,1],"dilations":[1,1],"group":2,"strides":[2,1]}'
    yield one(f"{t}[1,4,3,6]", f"linear conv attributes={conv}", f"{t}[1,4,6,6]", f"{t}[4,2,3,3]")


def loads(body: KernelBody, opset: int) -> None:
    proto, _ = probe_model(body, "k", "korch.test", opset=opset, replicas=1)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.text)
def test_a_function_loads_or_is_refused(dtype: DType) -> None:
    loaded = 0
    for body in (*elementwise_of(dtype), *layouts_of(dtype.text), *sums_of(dtype)):
        for opset in OPSETS:
            if can_be_function(body, opset) is None:
                loads(body, opset)
                loaded += 1
    # Much is said for every type, at least at the newer opsets.
    assert loaded > 100
